"""Inverses of small matrices, affine matrices applied to points."""

import pytest
import torch

from mmturbox.ops import (
    affine_inverse,
    apply_affine,
    rigid_inverse,
    small_inverse,
)
from mmturbox.ops import small_matrix as module

OPS = torch.ops.mmturbox
CASES = [('small', 2, 2), ('small', 3, 3), ('small', 4, 4),
         ('affine', 3, 4), ('affine', 4, 4), ('rigid', 3, 4), ('rigid', 4, 4)]
KINDS = dict(small=0, affine=1, rigid=2)
INVERSES = dict(small=small_inverse, affine=affine_inverse,
                rigid=rigid_inverse)
every_case = pytest.mark.parametrize('kind, rows, columns', CASES)


def make_matrices(kind, rows, columns, count=37, dtype=torch.float32):
    generator = torch.Generator().manual_seed(count)
    matrices = torch.randn(count, rows, columns, dtype=torch.float64,
                           generator=generator)
    if kind != 'small':
        matrices[:, :3, 3] *= 50
        matrices[:, 3:] = torch.tensor([0.0, 0.0, 0.0, 1.0])
    if kind == 'rigid':
        matrices[:, :3, :3] = torch.linalg.qr(matrices[:, :3, :3])[0]
    return matrices.to(dtype)


def whole(matrices):
    """Affine matrices with their last row."""
    if matrices.shape[1] == matrices.shape[2]:
        return matrices
    last = torch.tensor([0, 0, 0, 1]).to(matrices)
    return torch.cat((matrices, last.expand(len(matrices), 1, 4)), 1)


@every_case
@pytest.mark.parametrize('count', [0, 1, 7, 300])
def test_inverses_match_linalg_in_float64(device, kind, rows, columns, count):
    matrices = make_matrices(kind, rows, columns, count)
    exact = torch.linalg.inv(whole(matrices.double()))[:, :rows]
    found = INVERSES[kind](matrices.to(device))
    torch.testing.assert_close(found.cpu(), exact.float(), rtol=2e-5,
                               atol=2e-5)
    found = INVERSES[kind](matrices.double().to(device))
    torch.testing.assert_close(
        found.cpu(), exact, rtol=1e-6 if kind == 'rigid' else 1e-9,
        atol=1e-5 if kind == 'rigid' else 1e-9)


@every_case
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_kernels_equal_the_reference(device, kind, rows, columns, dtype):
    matrices = make_matrices(kind, rows, columns, 300, dtype).to(device)
    found = OPS.small_inverse(matrices, KINDS[kind])
    torch.testing.assert_close(
        found, module.small_inverse_reference(matrices, KINDS[kind]))
    grad = torch.randn_like(found)
    torch.testing.assert_close(
        OPS.small_inverse_backward(grad, found, KINDS[kind]),
        module.small_inverse_backward_reference(grad, found, KINDS[kind]),
        rtol=1e-5, atol=1e-5)


def with_condition(size, condition):
    generator = torch.Generator().manual_seed(size)
    left, right = (torch.linalg.qr(
        torch.randn(200, size, size, dtype=torch.float64,
                    generator=generator))[0] for _ in range(2))
    scale = condition**torch.linspace(0, -1, size, dtype=torch.float64)
    return left * scale @ right


def worst_error(found, exact):
    error = (found.double() - exact).flatten(1).norm(dim=1)
    return float((error / exact.flatten(1).norm(dim=1)).max())


@pytest.mark.parametrize('size', [2, 3, 4])
def test_ill_conditioned_matrices_in_float32(device, size):
    for condition in (1e2, 1e4, 1e6):
        matrices = with_condition(size, condition).float()
        exact = torch.linalg.inv(matrices.double())
        found = small_inverse(matrices.to(device)).cpu()
        # The exact inverse of the float32 matrix, rounded.
        assert worst_error(found, exact) < 1e-7


@pytest.mark.parametrize('size', [2, 3, 4])
def test_ill_conditioned_matrices_in_float64(device, size):
    for condition in (1e2, 1e4, 1e6):
        matrices = with_condition(size, condition)
        found = small_inverse(matrices.to(device)).cpu()
        step = torch.finfo(torch.float64).eps
        error = worst_error(found, torch.linalg.inv(matrices))
        assert error < 10 * step * condition**2


def test_singular_matrices_are_not_finite_and_do_not_spoil_others(device):
    for kind, rows, columns in CASES[:5]:
        matrices = make_matrices(kind, rows, columns, 20).to(device)
        exact = INVERSES[kind](matrices)
        matrices[3, :3] = 0
        matrices[17, 1] = matrices[17, 0]
        found = INVERSES[kind](matrices)
        assert not found[3].isfinite().all()
        # Singular but for rounding, where the host is not asked either.
        assert not (found[17].abs() < 1e12).all()
        rest = [i for i in range(20) if i not in (3, 17)]
        assert torch.equal(found[rest], exact[rest])


@every_case
def test_gradients_are_right(kind, rows, columns):
    matrices = make_matrices(kind, rows, columns, 3, torch.float64)
    if kind != 'small':
        matrices[:, :3, 3] /= 50

    def invert(free):
        parts = (free, matrices[:, free.shape[1]:])
        return INVERSES[kind](torch.cat(parts, 1))

    free = matrices[:, :3 if kind != 'small' else rows].clone()
    assert torch.autograd.gradcheck(invert, free.requires_grad_())


def test_a_last_row_has_no_gradient(device):
    matrices = make_matrices('affine', 4, 4).to(device).requires_grad_()
    affine_inverse(matrices).square().sum().backward()
    assert bool(matrices.grad[:, :3].all()) and not matrices.grad[:, 3].any()


@every_case
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_rounds_the_exact_result_once(kind, rows, columns,
                                                     dtype):
    matrices = make_matrices(kind, rows, columns).to(dtype)
    assert torch.equal(INVERSES[kind](matrices),
                       INVERSES[kind](matrices.float()).to(dtype))


@every_case
def test_batch_shapes_and_strides(kind, rows, columns):
    matrices = make_matrices(kind, rows, columns, 24)
    expected = INVERSES[kind](matrices).view(2, 3, 4, rows, columns)
    strided = matrices.view(2, 3, 4, rows, columns).permute(
        2, 0, 1, 4, 3).contiguous().permute(1, 2, 0, 4, 3)
    assert not strided.is_contiguous()
    assert torch.equal(INVERSES[kind](strided), expected)
    assert torch.equal(INVERSES[kind](matrices[0]), expected[0, 0, 0])


def make_chain(count=70, factors=3, rows=4, dtype=torch.float32):
    matrices = make_matrices('affine', 4, 4, 2 * factors, dtype)
    matrices = matrices.view(2, factors, 4, 4)[:, :, :rows]
    points = torch.randn(2, count, 3, dtype=dtype,
                         generator=torch.Generator().manual_seed(count))
    return points * 30, matrices


@pytest.mark.parametrize('rows', [3, 4])
@pytest.mark.parametrize('factors', [0, 1, 3])
def test_points_are_mapped_by_the_product(device, factors, rows):
    points, matrices = make_chain(70, factors, rows, torch.float64)
    expected = torch.cat((points, torch.ones(2, 70, 1).double()), 2)
    for k in reversed(range(factors)):
        expected = expected @ whole(matrices[:, k]).transpose(1, 2)
    found = apply_affine(points.to(device), matrices.to(device))
    torch.testing.assert_close(found.cpu(), expected[..., :3])


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('count, factors, rows', [
    (0, 2, 4), (1, 1, 3), (700, 3, 4), (2500, 2, 3)])
def test_affine_kernels_equal_the_reference(device, count, factors, rows,
                                            dtype):
    points, matrices = (
        t.to(device) for t in make_chain(count, factors, rows, dtype))
    close = dict(rtol=1e-4, atol=1e-2) if dtype == torch.float32 else {}
    found = OPS.apply_affine(points, matrices)
    torch.testing.assert_close(
        found, module.apply_affine_reference(points, matrices), **close)
    grad = torch.randn_like(found)
    for wanted in ((True, True), (True, False), (False, True)):
        arguments = (grad, points, matrices, *wanted)
        for one, other in zip(
                OPS.apply_affine_backward(*arguments),
                module.apply_affine_backward_reference(*arguments),
                strict=True):
            torch.testing.assert_close(one, other, **close)


def test_gradients_of_points_and_matrices_are_right():
    points, matrices = make_chain(4, 3, 3, torch.float64)
    assert torch.autograd.gradcheck(
        apply_affine,
        ((points / 30).requires_grad_(), (matrices / 9).requires_grad_()))
    points.requires_grad_()
    apply_affine(points, matrices).sum().backward()
    assert points.grad.shape == points.shape and matrices.grad is None


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_points_are_mapped_in_float32(dtype):
    points, matrices = (t.to(dtype) for t in make_chain())
    assert torch.equal(
        apply_affine(points, matrices),
        apply_affine(points.float(), matrices.float()).to(dtype))


def test_runs_and_numbers_of_threads_are_bitwise_equal(device):
    points, matrices = (t.to(device) for t in make_chain(5000))
    before = torch.get_num_threads()
    runs = []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            x, m = (t.clone().requires_grad_() for t in (points, matrices))
            out = apply_affine(x, m)
            (out.sin().sum() + small_inverse(m).sum()).backward()
            runs.append((out, x.grad, m.grad))
    finally:
        torch.set_num_threads(before)
    for run in runs[1:]:
        assert all(map(torch.equal, run, runs[0]))


@every_case
def test_inverse_operators_pass_opcheck(kind, rows, columns):
    matrices = make_matrices(kind, rows, columns, 3)
    torch.library.opcheck(OPS.small_inverse.default,
                          (matrices.requires_grad_(), KINDS[kind]))
    torch.library.opcheck(
        OPS.small_inverse_backward.default,
        (matrices.detach(), matrices.detach(), KINDS[kind]))


def test_affine_operators_pass_opcheck():
    points, matrices = make_chain(5)
    torch.library.opcheck(
        OPS.apply_affine.default,
        ((points / 30).requires_grad_(), (matrices / 9).requires_grad_()))
    torch.library.opcheck(
        OPS.apply_affine_backward.default,
        (points.detach(), points.detach(), matrices.detach(), True, True))


@pytest.mark.parametrize('inverse, shape', [
    (small_inverse, (2, 5, 5)), (small_inverse, (2, 3, 4)),
    (small_inverse, (3, )), (affine_inverse, (2, 3, 3)),
    (rigid_inverse, (2, 2, 4))])
def test_wrong_shapes_are_named(inverse, shape):
    with pytest.raises(ValueError, match='matrices must be'):
        inverse(torch.zeros(shape))


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match='int64'):
        small_inverse(torch.zeros(2, 3, 3).long())
    points, matrices = make_chain()
    with pytest.raises(ValueError, match='points must have'):
        apply_affine(points[..., :2], matrices)
    with pytest.raises(ValueError, match='matrices must have'):
        apply_affine(points, matrices[:1])
    with pytest.raises(ValueError, match='share'):
        apply_affine(points, matrices.double())
    with pytest.raises(ValueError, match='share'):
        apply_affine(points, matrices.to('meta'))
