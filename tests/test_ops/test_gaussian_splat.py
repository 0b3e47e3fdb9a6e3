"""Splatting of 3D Gaussians onto a voxel grid."""

import math

import pytest
import torch

from mmturbox.ops import (
    gaussian_precisions,
    gaussian_radii,
    gaussian_splat,
    gaussian_splat_dense,
    gaussian_splat_probabilistic,
)
from mmturbox.ops.gaussian_splat import (
    gaussian_splat_backward_reference,
    gaussian_splat_reference,
)

OPS = torch.ops.mmturbox
LOWER, SIZE = [-4.0, -5.0, -1.0], 0.5
GRID = [9, 7, 18]


def make_input(gaussians=24, classes=5, dtype=torch.float64, device='cpu',
               batch=2):
    """Means, also outside of the grid; opacities, semantics, precisions,
    radii."""
    generator = torch.Generator().manual_seed(gaussians + classes)

    def rand(*shape):
        return torch.rand(batch, gaussians, *shape, generator=generator,
                          dtype=torch.float64)

    means = rand(3) * torch.tensor([7., 6, 11]) + torch.tensor([-5., -6, -2])
    scales = rand(3) * 0.6 + 0.2
    radii = gaussian_radii(scales, 1.5, SIZE)
    precisions = gaussian_precisions(scales, rand(4) - 0.5)
    floats = means, rand(), rand(classes) - 0.3, precisions
    return *(t.to(device, dtype) for t in floats), radii.to(device)


def plain_weights(means, precisions, radii):
    """Independent of the package: (B, N, V) by full matrices, and which
    pairs touch."""
    index = torch.cartesian_prod(*map(torch.arange, GRID)).to(means.device)
    lower = means.new_tensor(LOWER)
    centres = lower + (index + 0.5) * SIZE
    xx, yy, zz, xy, yz, xz = precisions.unbind(-1)
    matrix = torch.stack((xx, xy, xz, xy, yy, yz, xz, yz, zz),
                         -1).unflatten(-1, (3, 3))
    d = means[:, :, None] - centres
    weight = torch.exp(-0.5 * torch.einsum('bnvi,bnij,bnvj->bnv', d, matrix,
                                           d))
    voxel = torch.trunc((means - lower) / SIZE)
    touches = (voxel[:, :, None] - index).abs().amax(-1) <= radii[..., None]
    return torch.where(touches, weight, 0)


def plain_additive(means, opacities, semantics, precisions, radii):
    weight = plain_weights(means, precisions, radii) * opacities[..., None]
    return torch.einsum('bnv,bnc->bvc', weight, semantics)


def plain_probabilistic(means, opacities, semantics, precisions, radii):
    weight = plain_weights(means, precisions, radii)
    xx, yy, zz, xy, yz, xz = precisions.unbind(-1)
    matrix = torch.stack((xx, xy, xz, xy, yy, yz, xz, yz, zz),
                         -1).unflatten(-1, (3, 3))
    share = (opacities * torch.linalg.det(matrix).sqrt() /
             (2 * math.pi)**1.5)[..., None] * weight
    total = share.sum(1)[..., None]
    classes = semantics.shape[2]
    default = semantics.new_full((classes, ), 1 / (classes - 1))
    default[-1] = 0
    mixed = torch.einsum('bnv,bnc->bvc', share, semantics)
    mixed = torch.where(total > 1e-9, mixed / total.clamp(min=1e-9), default)
    return mixed, 1 - (1 - weight).prod(1), weight.sum(1)


def place(function):
    return lambda *tensors: function(*tensors, LOWER, SIZE, GRID)


def results(function, arguments):
    """Outputs and the gradients of a weighted sum of them."""
    leaves = [t.clone().requires_grad_() for t in arguments[:4]]
    out = function(*leaves, arguments[4])
    out = out if isinstance(out, tuple) else (out, )
    generator = torch.Generator().manual_seed(0)
    loss = sum((o * torch.randn(o.shape, generator=generator).to(o)).sum()
               for o in out)
    return *(o.detach() for o in out), *torch.autograd.grad(loss, leaves)


FORMS = pytest.mark.parametrize('ours, plain', [
    (place(gaussian_splat), plain_additive),
    (place(gaussian_splat_probabilistic), plain_probabilistic),
], ids=['additive', 'probabilistic'])


# One chunk of columns, a whole one, and more than one.
@pytest.mark.parametrize('classes', [18, 23])
@FORMS
def test_equals_the_definition_forward_and_backward(
        device, ours, plain, classes):
    arguments = make_input(classes=classes, device=device, batch=1)
    for a, b in zip(results(ours, arguments), results(plain, arguments),
                    strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
    arguments = *(t.float() for t in arguments[:4]), arguments[4]
    for a, b in zip(results(ours, arguments), results(plain, arguments),
                    strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_more_gaussians_than_a_block_tests_at_once(device):
    """They cross the borders of tiles, and of the list of 512."""
    *floats, radii = make_input(530, 2, torch.float32, device, batch=1)
    arguments = *floats, radii.clamp(max=1)
    torch.testing.assert_close(
        place(gaussian_splat)(*arguments), plain_additive(*arguments),
        rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('product', [False, True])
def test_kernels_equal_the_reference(device, product):
    means, _, table, precisions, radii = make_input(device=device)
    arguments = means, table, precisions, radii, LOWER, SIZE, GRID
    found = OPS.gaussian_splat(*arguments, product)
    for a, b in zip(found, gaussian_splat_reference(*arguments, product),
                    strict=True):
        torch.testing.assert_close(a, b)
    grads = torch.randn_like(found[0]), torch.randn_like(found[1]), found[1]
    for a, b in zip(
            OPS.gaussian_splat_backward(*grads, *arguments),
            gaussian_splat_backward_reference(*grads, *arguments),
            strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize('ours', [gaussian_splat,
                                  gaussian_splat_probabilistic])
def test_gradients_are_right(device, ours):
    *leaves, radii = make_input(3, 3, device=device, batch=1)
    leaves[0] = leaves[0] * 0.2 - leaves[0].new_tensor([3.4, 4.4, 0.4])
    grid = [3, 4, 5]
    assert ours(*leaves, radii, LOWER, SIZE, grid)[0].sum() > 1
    assert torch.autograd.gradcheck(
        lambda *tensors: ours(*tensors, radii, LOWER, SIZE, grid),
        [t.requires_grad_() for t in leaves], fast_mode=True, atol=1e-4)


def test_voxels_without_gaussians_have_the_default(device):
    means, opacities, semantics, precisions, radii = make_input(device=device)
    nobody = torch.full_like(radii, -1)
    assert not place(gaussian_splat)(means, opacities, semantics, precisions,
                                     nobody).any()
    mixed, occupancy, density = place(gaussian_splat_probabilistic)(
        means, opacities, semantics, precisions, nobody)
    assert torch.equal(mixed[0, 0].cpu(),
                       torch.tensor([0.25] * 4 + [0]).double())
    assert not occupancy.any() and not density.any()


def test_the_support_is_a_cube_about_the_truncated_voxel(device):
    """Also of a mean below the grid, whose voxel is truncated upwards."""
    means = torch.tensor([[[-4.3, -2.9, 1.1]]], device=device)
    precisions = torch.zeros(1, 1, 6, device=device)
    ones = torch.ones(1, 1, device=device)
    for radius in (0, 1, 2):
        out = place(gaussian_splat)(
            means, ones, ones[..., None], precisions,
            torch.full((1, 1), radius, device=device))
        found = out.view(*GRID).nonzero()
        low = (0, max(4 - radius, 0), 4 - radius)
        high = (radius, 4 + radius, 4 + radius)
        assert found.amin(0).tolist() == list(low)
        assert found.amax(0).tolist() == list(high)
        assert bool((out[out != 0] == 1).all())


@FORMS
def test_means_that_are_not_finite_or_far_away_touch_nothing(
        device, ours, plain):
    arguments = make_input(6, device=device)
    expected = results(ours, tuple(t[:, 5:] for t in arguments))
    for k, value in enumerate((math.nan, math.inf, -math.inf, 1e20, -1e20)):
        arguments[0][:, k, k % 3] = value
    found = results(ours, arguments)
    for a, b in zip(found[:-4], expected[:-4], strict=True):
        torch.testing.assert_close(a, b)
    for a, b in zip(found[-4:], expected[-4:], strict=True):
        torch.testing.assert_close(a[:, 5:], b)
        # Means apart: their own matrix times no moments may be anything.
        assert not a[:, :5].any()


@FORMS
def test_whole_grid_and_no_gaussians(device, ours, plain):
    arguments = make_input(2, device=device)
    arguments = *arguments[:4], torch.full_like(arguments[4], 2**31 - 1)
    for a, b in zip(results(ours, arguments), results(plain, arguments),
                    strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
    for tensors in ([t[:, :0] for t in arguments],
                    [t[:0] for t in arguments]):
        found = results(ours, tensors)
        assert found[0].shape == (len(tensors[0]), math.prod(GRID), 5)
        assert [t.shape for t in found[-4:]] == [t.shape
                                                 for t in tensors[:4]]


def test_the_dense_form_adds_gaussians_that_reach_everything(device):
    arguments = make_input(7, device=device)
    radii = arguments[4].clone()
    radii[:, 5:] = 99

    def split(*tensors):
        few = place(gaussian_splat)(*(t[:, :5] for t in tensors))
        return gaussian_splat_dense(few, *(t[:, 5:] for t in tensors[:4]),
                                    LOWER, SIZE, GRID)

    arguments = *arguments[:4], radii
    for a, b in zip(results(split, arguments),
                    results(place(gaussian_splat), arguments), strict=True):
        torch.testing.assert_close(a, b)


def test_precisions_are_the_inverse_covariance():
    generator = torch.Generator().manual_seed(0)
    scales = torch.rand(9, 3, generator=generator, dtype=torch.float64) + 0.1
    angle = torch.tensor(0.7, dtype=torch.float64)
    # About z: the covariance is that of the transposed rotation.
    rotation = torch.stack((angle.cos(), angle * 0, angle * 0, angle.sin()))
    c, s = (2 * angle).cos(), (2 * angle).sin()
    matrix = torch.stack((c, -s, 0 * c, s, c, 0 * c, 0 * c, 0 * c,
                          0 * c + 1)).view(3, 3)
    covariance = matrix.t() @ torch.diag_embed(scales**2) @ matrix
    found = gaussian_precisions(scales, 3 * rotation.expand(9, 4))
    inverse = torch.linalg.inv(covariance)
    for k, (i, j) in enumerate(((0, 0), (1, 1), (2, 2), (0, 1), (1, 2),
                                (0, 2))):
        torch.testing.assert_close(found[:, k], inverse[:, i, j])


def test_radii_round_up():
    scales = torch.tensor([[0.1, 0.2, 0.5], [0.5, 0.51, 0.1], [0, 0, 0]])
    radii = gaussian_radii(scales, 3, 0.5)
    assert radii.dtype == torch.int32 and radii.tolist() == [3, 4, 0]


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@FORMS
def test_half_precision_rounds_the_float32_result_once(
        device, ours, plain, dtype):
    arguments = make_input(8, dtype=dtype, device=device)
    exact = *(t.float() for t in arguments[:4]), arguments[4]
    found, expected = ours(*arguments), ours(*exact)
    if not isinstance(found, tuple):
        found, expected = (found, ), (expected, )
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == dtype and torch.equal(a, b.to(dtype))
    grads = results(ours, arguments)[-4:]
    assert all(grad.dtype == dtype for grad in grads)


@FORMS
def test_results_do_not_depend_on_run_threads_or_strides(
        device, ours, plain):
    arguments = make_input(12, 7, torch.float32, device)
    strided = [t.repeat_interleave(2, 1)[:, ::2] for t in arguments]
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(results(ours, arguments))
    finally:
        torch.set_num_threads(before)
    found.append(results(ours, strided))
    for again in found[1:]:
        for a, b in zip(again, found[0], strict=True):
            assert torch.equal(a, b)


def test_operators_pass_opcheck():
    means, _, table, precisions, radii = make_input(3, 2, batch=1)
    grid = [3, 2, 4]
    arguments = means, table, precisions, radii, LOWER, SIZE, grid
    found = OPS.gaussian_splat(*arguments, True)
    torch.library.opcheck(
        OPS.gaussian_splat_backward.default,
        (torch.randn_like(found[0]), torch.randn_like(found[1]), found[1],
         *arguments))
    for tensor in arguments[:3]:
        tensor.requires_grad_()
    torch.library.opcheck(OPS.gaussian_splat.default, (*arguments, True))


@pytest.mark.parametrize('change, message', [
    (dict(means=torch.zeros(2, 4, 2)), 'means'),
    (dict(opacities=torch.zeros(2, 4, 1)), 'opacities'),
    (dict(semantics=torch.zeros(2, 4)), 'semantics'),
    (dict(precisions=torch.zeros(2, 4, 3, 3)), 'precisions'),
    (dict(radii=torch.zeros(2, 3).int()), 'radii'),
    (dict(radii=torch.zeros(2, 4)), 'integers'),
    (dict(radii=torch.zeros(2, 4, device='meta').int()), 'meta'),
    (dict(grid=[0, 1, 1]), 'grid'),
    (dict(voxel_size=0.0), 'voxel_size'),
])
def test_bad_arguments_are_named(change, message):
    arguments = dict(
        means=torch.zeros(2, 4, 3), opacities=torch.zeros(2, 4),
        semantics=torch.zeros(2, 4, 5), precisions=torch.zeros(2, 4, 6),
        radii=torch.zeros(2, 4).int(), lower=LOWER, voxel_size=SIZE,
        grid=GRID)
    for function in (gaussian_splat, gaussian_splat_probabilistic):
        with pytest.raises(ValueError, match=message):
            function(**(arguments | change))
