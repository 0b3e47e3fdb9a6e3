"""Pooling of camera features into the bird's eye view."""

import itertools
import math

import pytest
import torch

from mmturbox.ops import bev_cells, bev_pool, bev_pool_intervals
from mmturbox.ops.bev_pool import (
    bev_cells_reference,
    bev_pool_backward_reference,
    bev_pool_intervals_reference,
    bev_pool_reference,
)

OPS = torch.ops.mmturbox
GRID = (5, 4, 2)


def make_input(channels=8, dtype=torch.float32, device='cpu',
               shape=(2, 3, 4, 11, 5), grid=GRID):
    """Depth, context and cells; a third of the points are outside."""
    generator = torch.Generator().manual_seed(channels)
    B, N, _, H, W = shape
    num_cells = math.prod(grid)
    depth = torch.rand(shape, generator=generator)
    context = torch.randn(B, N, channels, H, W, generator=generator)
    cells = torch.randint(-num_cells // 4, num_cells * 5 // 4, shape,
                          generator=generator)
    # Neighbours above each other share a cell, as they mostly do.
    cells[..., 1::2, :] = cells[..., :-1:2, :]
    return (depth.to(device, dtype), context.to(device, dtype),
            cells.int().to(device))


def outer_product(depth, context, cells, grid=GRID):
    """The stock way: every product, then one sum over all cells."""
    X, Y, Z = grid
    B, num_cells = len(depth), X * Y * Z
    rows = cells.long() + torch.arange(
        B, device=cells.device).view(-1, 1, 1, 1, 1) * num_cells
    keep = (cells >= 0) & (cells < num_cells)
    products = depth[..., None] * context.permute(0, 1, 3, 4, 2)[:, :, None]
    out = products.new_zeros(B * num_cells, context.shape[2])
    out = out.index_add(0, rows[keep], products[keep])
    maps = out.view(B, Z, Y, X, -1).permute(0, 4, 1, 2, 3)
    return torch.cat(maps.unbind(2), 1)


def run(depth, context, cells, grid=GRID, seed=0):
    """Output and both gradients."""
    depth, context = (t.detach().clone().requires_grad_()
                      for t in (depth, context))
    out = bev_pool(depth, context, bev_pool_intervals(cells, grid))
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(out.shape, generator=generator).to(out)
    out.backward(weight)
    return out.detach(), depth.grad, context.grad


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_cells_match_plain_python(device, dtype):
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(7, 50, 3, generator=generator) * 16 - 8
    lower, size = (-6, -4, -2), (2, 3, 4)
    found = bev_cells(points.to(device, dtype), lower, size, GRID)
    assert found.dtype == torch.int32 and found.shape == (7, 50)
    expected = []
    for point in points.flatten(0, 1).tolist():
        x, y, z = ((p - low) / s
                   for p, low, s in zip(point, lower, size, strict=True))
        inside = all(-1 < v < n
                     for v, n in zip((x, y, z), GRID, strict=True))
        expected.append((int(z) * 4 + int(y)) * 5 + int(x) if inside else -1)
    assert found.flatten().tolist() == expected
    assert 0 < sum(cell < 0 for cell in expected) < 300


def test_cells_at_the_borders_and_not_finite(device):
    """Truncation: a point less than a cell below the bound is in cell 0."""
    points = torch.tensor([[-0.99, 0, 0], [-1, 0, 0], [4.99, 0, 0],
                           [5, 0, 0], [0, 3.99, 1.99], [0, 0, 2],
                           [math.nan, 0, 0], [0, math.inf, 0],
                           [0, 0, -math.inf], [1e30, 0, 0]], device=device)
    found = bev_cells(points, (0, 0, 0), (1, 1, 1), GRID)
    assert found.tolist() == [0, -1, 4, -1, 35, -1, -1, -1, -1, -1]
    for dtype in (torch.float16, torch.bfloat16):
        half = points.to(dtype)
        assert torch.equal(bev_cells(half, (0, 0, 0), (1, 1, 1), GRID),
                           bev_cells(half.float(), (0, 0, 0), (1, 1, 1),
                                     GRID))


def test_intervals_match_plain_python(device):
    cells = make_input()[2]
    found = bev_pool_intervals(cells.to(device), GRID)
    num_cells = math.prod(GRID)
    lists = [[] for _ in range(2 * num_cells + 1)]
    for point, cell in enumerate(cells.flatten().tolist()):
        sample = point // cells[0].numel()
        inside = 0 <= cell < num_cells
        lists[sample * num_cells + cell if inside else -1].append(point)
    flat = list(itertools.chain(*lists))
    assert found.points.tolist() == flat
    assert found.pixels.tolist() == [p // 220 * 55 + p % 55 for p in flat]
    starts = [0, *itertools.accumulate(map(len, lists[:-1]))]
    assert found.starts.tolist() == starts
    assert found.grid == GRID


# Whole vectors, single channels, more than a warp holds of either.
@pytest.mark.parametrize('channels', [8, 7, 1, 132, 131])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_equals_the_outer_product_forward_and_backward(
        device, channels, dtype):
    depth, context, cells = make_input(channels, dtype, device)
    found = run(depth, context, cells)
    leaves = depth.clone().requires_grad_(), context.clone().requires_grad_()
    out = outer_product(*leaves, cells)
    generator = torch.Generator().manual_seed(0)
    out.backward(torch.randn(out.shape, generator=generator).to(out))
    for a, b in zip(found, (out, *(t.grad for t in leaves)), strict=True):
        assert a.dtype == dtype
        torch.testing.assert_close(a, b)


def test_kernels_equal_the_reference(device):
    depth, context, cells = make_input(12, device=device)
    context = context.permute(0, 1, 3, 4, 2)
    num_cells = math.prod(GRID)
    points = torch.randn(2, 9, 3, device=device) * 4
    box = [-6., -4, -2], [2., 3, 4], list(GRID)
    assert torch.equal(OPS.bev_cells(points, *box),
                       bev_cells_reference(points, *box))
    lists = OPS.bev_pool_intervals(cells, num_cells)
    for a, b in zip(lists, bev_pool_intervals_reference(cells, num_cells),
                    strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)
    out = OPS.bev_pool(depth, context, cells, *lists)
    torch.testing.assert_close(
        out, bev_pool_reference(depth, context, cells, *lists))
    arguments = torch.randn_like(out), depth, context, cells
    for a, b in zip(OPS.bev_pool_backward(*arguments),
                    bev_pool_backward_reference(*arguments), strict=True):
        torch.testing.assert_close(a, b)


def test_gradients_are_right(device):
    depth, context, cells = make_input(3, torch.float64, device,
                                       (2, 1, 3, 3, 2))
    intervals = bev_pool_intervals(cells, GRID)
    assert torch.autograd.gradcheck(
        lambda d, c: bev_pool(d, c, intervals),
        (depth.requires_grad_(), context.requires_grad_()))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@pytest.mark.parametrize('channels', [16, 5])
def test_half_precision_rounds_the_float32_result_once(
        device, dtype, channels):
    depth, context, cells = make_input(channels, dtype, device)
    found = run(depth, context, cells)
    exact = run(depth.float(), context.float(), cells)
    assert all(t.dtype == dtype for t in found)
    torch.testing.assert_close(found[0], exact[0].to(dtype))
    weight = torch.randn(
        found[0].shape, generator=torch.Generator().manual_seed(0)).to(
            found[0])
    leaves = depth.float().requires_grad_(), context.float().requires_grad_()
    bev_pool(*leaves, bev_pool_intervals(cells, GRID)).backward(
        weight.float())
    for a, b in zip(found[1:], leaves, strict=True):
        torch.testing.assert_close(a, b.grad.to(dtype))


def test_mixed_precision_takes_the_wider_type(device):
    depth, context, cells = make_input(4, device=device)
    out, grad_depth, grad_context = run(depth, context.half(), cells)
    assert out.dtype == grad_depth.dtype == torch.float32
    assert grad_context.dtype == torch.float16


@pytest.mark.parametrize('shape', [(0, 3, 4, 3, 5), (2, 0, 4, 3, 5),
                                   (2, 3, 0, 3, 5), (2, 3, 4, 0, 5),
                                   (2, 3, 4, 3, 0)])
def test_empty_inputs_give_zeros(device, shape):
    out, grad_depth, grad_context = run(
        *make_input(4, device=device, shape=shape))
    assert out.shape == (shape[0], 8, 4, 5) and not out.any()
    assert grad_depth.shape == shape
    assert grad_context.shape == (*shape[:2], 4, *shape[3:])
    assert not grad_context.any()


def test_no_channels_and_no_points_inside(device):
    depth, context, cells = make_input(4, device=device)
    out = run(depth, context[:, :, :0], cells)
    assert out[0].shape == (2, 0, 4, 5) and not out[1].any()
    for outside in (-1, 40, 2**31 - 1, -2**31):
        for result in run(depth, context, torch.full_like(cells, outside)):
            assert not result.any()


def test_all_points_in_one_cell_and_one_point(device):
    depth, context, cells = make_input(4, device=device)
    out, *_ = run(depth, context, torch.full_like(cells, 7))
    total = torch.einsum('bndhw,bnchw->bc', depth, context)
    torch.testing.assert_close(out[:, :4, 1, 2], total)
    out[:, :4, 1, 2] = 0
    assert not out.any()
    one = run(depth[:1, :1, :1, :1, :1], context[:1, :1, :, :1, :1],
              torch.zeros_like(cells[:1, :1, :1, :1, :1]), (1, 1, 1))[0]
    assert torch.equal(
        one.flatten(), depth[0, 0, 0, 0, 0] * context[0, 0, :, 0, 0])


def test_views_of_memory_give_the_same(device):
    depth, context, cells = make_input(8, device=device)
    expected = run(depth, context, cells)
    views = (depth.transpose(3, 4).contiguous().transpose(3, 4),
             context.permute(0, 1, 3, 4, 2).contiguous().permute(
                 0, 1, 4, 2, 3), cells.flip(2).flip(2).repeat_interleave(
                     2, 2)[:, :, ::2])
    assert not any(view.is_contiguous() for view in views)
    for a, b in zip(run(*views), expected, strict=True):
        assert torch.equal(a, b)
    # Starts in the middle of a vector of 16 bytes.
    shifted = torch.empty(context.numel() + 1, device=device)[1:].view(
        2, 3, 11, 5, 8).permute(0, 1, 4, 2, 3)
    for a, b in zip(run(depth, shifted.copy_(context), cells), expected,
                    strict=True):
        assert torch.equal(a, b)
    out, *_ = expected
    assert out.is_contiguous(memory_format=torch.channels_last)


def test_results_do_not_depend_on_run_or_threads(device):
    arguments = make_input(20, device=device, shape=(2, 2, 5, 9, 20))
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            intervals = bev_pool_intervals(arguments[2], GRID)
            results.append((*run(*arguments), *intervals[:4]))
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        for a, b in zip(result, results[0], strict=True):
            assert torch.equal(a, b)


def test_operators_pass_opcheck():
    depth, context, cells = make_input(3, shape=(1, 2, 3, 2, 2))
    context = context.permute(0, 1, 3, 4, 2)
    torch.library.opcheck(
        OPS.bev_cells.default,
        (torch.randn(4, 3), [0., 0, 0], [1., 1, 1], list(GRID)))
    num_cells = math.prod(GRID)
    torch.library.opcheck(OPS.bev_pool_intervals.default, (cells, num_cells))
    lists = OPS.bev_pool_intervals(cells, num_cells)
    arguments = depth.requires_grad_(), context.requires_grad_(), cells
    torch.library.opcheck(OPS.bev_pool.default, (*arguments, *lists))
    torch.library.opcheck(
        OPS.bev_pool_backward.default,
        (torch.randn(num_cells, 3), depth.detach(), context.detach(), cells))


@pytest.mark.parametrize('change, message', [
    (dict(depth=torch.zeros(2, 3, 4, 11)), 'depth'),
    (dict(depth=torch.zeros(2, 3, 5, 11, 5)), 'depth'),
    (dict(context=torch.zeros(2, 3, 8, 5, 11)), 'context'),
    (dict(context=torch.zeros(2, 3, 8, 11, 5, device='meta')), 'device'),
])
def test_bad_arguments_are_named(change, message):
    depth, context, cells = make_input()
    arguments = dict(depth=depth, context=context,
                     intervals=bev_pool_intervals(cells, GRID))
    with pytest.raises(ValueError, match=message):
        bev_pool(**(arguments | change))


def test_bad_geometry_is_named():
    cells = make_input()[2]
    with pytest.raises(ValueError, match='grid'):
        bev_pool_intervals(cells, (5, 0, 2))
    with pytest.raises(ValueError, match='cells'):
        bev_pool_intervals(cells.float(), GRID)
    with pytest.raises(ValueError, match='less than 2.31'):
        bev_pool_intervals(cells, (2**15, 2**15, 1))
    with pytest.raises(ValueError, match='points'):
        bev_cells(torch.zeros(4, 2), (0, 0, 0), (1, 1, 1), GRID)
    with pytest.raises(ValueError, match='voxel_size'):
        bev_cells(torch.zeros(4, 3), (0, 0, 0), (1, 0, 1), GRID)
