"""Max pooling of sparse tensors, and their dense form."""

import math

import pytest
import torch
from torch.nn import functional as F

from mmturbox.ops import (
    OPERATORS,
    sparse_max_pool,
    sparse_rulebook,
    sparse_to_dense,
)

OPS = torch.ops.mmturbox
BATCH, SHAPE = 2, (6, 7, 5)


def make_coords(rows):
    """Distinct rows in random order."""
    generator = torch.Generator().manual_seed(rows)
    number = torch.randperm(BATCH * math.prod(SHAPE), generator=generator)
    number, columns = number[:rows], []
    for size in reversed(SHAPE):
        columns.append(number % size)
        number = number // size
    return torch.stack([number, *reversed(columns)], 1).int()


def make_features(rows, channels, device, dtype=torch.float32):
    generator = torch.Generator().manual_seed(channels)
    return torch.randn(rows, channels, generator=generator,
                       dtype=torch.float64).to(device, dtype)


@pytest.mark.parametrize('kernel, stride, padding', [
    (3, 2, 1), (2, 2, 0), ((1, 3, 2), (1, 2, 1), (0, 1, 0))])
def test_pooling_equals_the_dense_one(device, kernel, stride, padding):
    coords = make_coords(150).to(device)
    x = make_features(150, 17, device).requires_grad_()
    book = sparse_rulebook(coords, BATCH, SHAPE, kernel, stride, padding)
    found = sparse_max_pool(x, book.tables)
    low = x.detach().min() - 1
    dense = sparse_to_dense(x - low, coords, BATCH, SHAPE)
    dense = F.max_pool3d(dense, kernel, stride, padding)
    b, z, y, c = book.coords.long().unbind(1)
    expected = dense[b, :, z, y, c] + low
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad(found, x, grad)[0],
        torch.autograd.grad(expected, x, grad)[0])


def pool_calls(device, dtype, rows, outs, taps, channels):
    generator = torch.Generator().manual_seed(rows + outs)
    table, reached = (
        torch.randint(-n, n, (taps, m), generator=generator).clamp_(
            min=-1).int().to(device)
        for n, m in ((rows, outs), (outs, rows)))
    chain = torch.full((rows,), -1, dtype=torch.int32, device=device)
    third = rows // 3
    chain[:2 * third] = torch.arange(third, 3 * third, device=device,
                                     dtype=torch.int32)
    x = make_features(rows, channels, device, dtype).round(decimals=1)
    x[::7, ::3] = math.nan
    grad = make_features(outs, channels, device, dtype)
    for links in (None, chain):
        out = OPERATORS['sparse_max_pool'](x, table, reached, links)
        yield 'sparse_max_pool', (x, table, reached, links)
        yield 'sparse_max_pool_grad', (x, out, grad, reached)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64,
                                   torch.float16, torch.bfloat16])
@pytest.mark.parametrize('rows, outs, taps, channels', [
    (90, 130, 8, 13), (300, 40, 27, 32), (1, 1, 1, 1), (3, 0, 2, 4)])
def test_kernels_equal_the_reference(device, dtype, rows, outs, taps,
                                     channels):
    """Also with ties, NaN, and rows that read nothing."""
    if outs == 0:
        taps_of = torch.zeros(taps, 0, dtype=torch.int32, device=device)
        x = make_features(rows, channels, device, dtype)
        assert OPS.sparse_max_pool(
            x, taps_of, taps_of.new_full((taps, rows), -1),
            None).shape == (0, channels)
        return
    for name, arguments in pool_calls(device, dtype, rows, outs, taps,
                                      channels):
        found = getattr(OPS, name)(*arguments)
        assert found.dtype == dtype
        torch.testing.assert_close(
            found, OPERATORS[name](*arguments), rtol=0, atol=0,
            equal_nan=True)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64,
                                   torch.float16, torch.bfloat16])
def test_dense_form_holds_the_lowest_row_of_a_place(device, dtype):
    coords = torch.cat([make_coords(70), make_coords(70)[::2],
                        torch.tensor([[0, 6, 0, 0], [2, 0, 0, 0],
                                      [0, -1, 0, 0]]).int()]).to(device)
    x = make_features(len(coords), 37, device, dtype).requires_grad_()
    found = sparse_to_dense(x, coords, BATCH, SHAPE)
    assert found.shape == (BATCH, 37, *SHAPE) and found.dtype == dtype
    expected = torch.zeros_like(found)
    for n in reversed(range(len(coords) - 3)):
        b, z, y, c = coords[n].tolist()
        expected[b, :, z, y, c] = x.detach()[n]
    assert torch.equal(found, expected)
    grad = torch.randn_like(found)
    found.backward(grad)
    b, z, y, c = coords[:70].long().unbind(1)
    assert torch.equal(x.grad[:70], grad[b, :, z, y, c])
    assert not x.grad[70:].any()
    assert torch.equal(sparse_to_dense(x, coords, BATCH, SHAPE), found)


def test_gradcheck(device):
    coords = make_coords(20).to(device)
    x = make_features(20, 3, device, torch.float64).requires_grad_()
    tables = sparse_rulebook(coords, BATCH, SHAPE, 2, 2).tables
    assert torch.autograd.gradcheck(lambda x: sparse_max_pool(x, tables), x)
    assert torch.autograd.gradcheck(
        lambda x: sparse_to_dense(x, coords, BATCH, SHAPE), x)


def test_no_rows_one_axis_and_strided_memory(device):
    coords = torch.zeros(0, 2, dtype=torch.int32, device=device)
    x = torch.zeros(0, 3, device=device, requires_grad=True)
    dense = sparse_to_dense(x, coords, 2, (9,))
    assert dense.shape == (2, 3, 9) and not dense.any()
    dense.sum().backward()
    assert x.grad.shape == (0, 3)
    pooled = sparse_max_pool(x, sparse_rulebook(coords, 2, (9,), 2, 2).tables)
    assert pooled.shape == (0, 3)
    coords, x = make_coords(50).to(device), make_features(50, 6, device)
    wide = torch.zeros(50, 8, dtype=torch.int32, device=device)
    wide[:, ::2] = coords
    view = x.t().contiguous().t()
    assert torch.equal(
        sparse_to_dense(view, wide[:, ::2], BATCH, SHAPE),
        sparse_to_dense(x, coords, BATCH, SHAPE))
    tables = sparse_rulebook(coords, BATCH, SHAPE, 3, 2, 1).tables
    assert torch.equal(sparse_max_pool(view, tables),
                       sparse_max_pool(x, tables))


def test_wrong_arguments_are_named():
    coords = make_coords(10)
    tables = sparse_rulebook(coords, BATCH, SHAPE, 2, 2).tables
    with pytest.raises(ValueError, match='features'):
        sparse_max_pool(torch.zeros(11, 3), tables)
    with pytest.raises(ValueError, match='features'):
        sparse_to_dense(torch.zeros(11, 3), coords, BATCH, SHAPE)
    with pytest.raises(ValueError, match='coords'):
        sparse_to_dense(torch.zeros(10, 3), coords.long(), BATCH, SHAPE)


def test_operators_pass_opcheck():
    coords = make_coords(12)
    x = make_features(12, 3, 'cpu').requires_grad_()
    tables = sparse_rulebook(coords, BATCH, SHAPE, 2, 2).tables
    torch.library.opcheck(
        OPS.sparse_max_pool.default,
        (x, tables.table, tables.transposed, None))
    torch.library.opcheck(OPS.sparse_to_dense.default,
                          (x, coords, BATCH, SHAPE))


def test_threads_do_not_change_results():
    found = []
    before = torch.get_num_threads()
    name_and_arguments = list(pool_calls('cpu', torch.float32, 3000, 2000, 9,
                                         40))
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append([getattr(OPS, name)(*arguments)
                          for name, arguments in name_and_arguments])
    finally:
        torch.set_num_threads(before)
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
