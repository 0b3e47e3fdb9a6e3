"""Means of voxels against grouping and averaging."""

import pytest
import torch

from mmturbox.ops import hard_voxelize_batch, mmcv_ext, voxel_mean
from mmturbox.ops.voxel_mean import voxel_mean_reference
from mmturbox.ops.voxelize import grid_size

SIZE = [0.5, 0.4, 1.0]
RANGE = [-8.0, -6.0, -2.0, 8.0, 6.0, 2.0]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def make_points(*numbers, dtype=torch.float32, device='cpu'):
    generator = torch.Generator().manual_seed(sum(numbers))
    scale = torch.tensor([2, 2, 0.7, 1, 3])
    return [(torch.randn(n, 5, generator=generator) * scale).to(device, dtype)
            for n in numbers]


def one_by_one(voxels, num_points):
    """Means of grouped points, added one after the other."""
    wide = voxels.float() if voxels.element_size() < 4 else voxels
    total = torch.zeros_like(wide[:, 0])
    for place in range(voxels.shape[1]):
        total = total + wide[:, place]
    return (total / num_points[:, None]).to(voxels.dtype)


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('max_points, max_voxels', [(3, 60), (5, 9999)])
def test_means_equal_those_of_grouped_points(dtype, max_points, max_voxels,
                                             device):
    samples = make_points(700, 0, 1, 400, dtype=dtype, device=device)
    samples[0][5, 2] = float('nan')
    limits = (SIZE, RANGE, max_points, max_voxels)
    means, coors, num_points = voxel_mean(samples, *limits)
    expected = hard_voxelize_batch(samples, *limits)
    assert means.dtype == dtype and int(num_points.max()) == max_points
    assert torch.equal(coors, expected[1])
    assert torch.equal(num_points, expected[2])
    assert torch.equal(means, one_by_one(expected[0], num_points))


@pytest.mark.parametrize('dtype', DTYPES)
def test_kernels_equal_the_reference(dtype, device):
    points, = make_points(900, dtype=dtype)
    rest = ([400, 0, 500], SIZE, RANGE, grid_size(SIZE, RANGE), 4, 70)
    found = torch.ops.mmturbox.voxel_mean(points.to(device), *rest)
    for a, b in zip(found, voxel_mean_reference(points, *rest), strict=True):
        assert a.dtype == b.dtype and torch.equal(a.cpu(), b)


def test_means_are_those_of_hard_simple_vfe():
    mmcv_ext.install()
    vfe = pytest.importorskip('mmdet3d.models.voxel_encoders')
    samples = make_points(2000, 900)
    means, coors, count = voxel_mean(samples, SIZE, RANGE, 8, 9999)
    voxels, *_ = hard_voxelize_batch(samples, SIZE, RANGE, 8, 9999)
    expected = vfe.HardSimpleVFE(5)(voxels, count, coors)
    few = count <= 4  # PyTorch sums more than four in an order of its own
    assert 50 < int(few.sum()) < len(count)
    assert torch.equal(means[few], expected[few])
    torch.testing.assert_close(means, expected)


def test_gradients_are_those_of_grouped_points(device):
    points, = make_points(60, dtype=torch.float64, device=device)
    points.requires_grad_()

    def run(features):
        # Which voxel a point falls in has no gradient: moved features only.
        return voxel_mean([torch.cat((points.detach()[:, :3], features), 1)],
                          SIZE, RANGE, 2, 20)[0]

    features = points.detach()[:, 3:].clone().requires_grad_()
    assert torch.autograd.gradcheck(run, features)
    means, _, count = voxel_mean([points], SIZE, RANGE, 2, 20)
    means.sum().backward()
    # Of a voxel with n points kept, each has a share of 1 / n.
    kept = points.grad.abs().sum(1) > 0
    assert int(kept.sum()) == int(count.sum()) < 60
    torch.testing.assert_close(
        points.grad[kept].sum(0), torch.full((5, ), len(means) * 1.,
                                             dtype=torch.float64,
                                             device=device))


@pytest.mark.parametrize('points', [torch.zeros(0, 5),
                                    torch.rand(100, 5) + 1000])
def test_no_points_in_range_give_no_voxels(points, device):
    """KF-A1."""
    points = points.to(device).requires_grad_()
    means, coors, count = voxel_mean([points], SIZE, RANGE, 3, 9)
    assert means.shape == (0, 5) and coors.shape == (0, 4)
    assert count.shape == (0, ) and count.dtype == torch.int32
    means.sum().backward()
    assert points.grad.shape == points.shape and not points.grad.any()


def test_results_do_not_depend_on_run_threads_or_memory():
    samples = make_points(20000, 9000)
    views = [p.t().contiguous().t() for p in samples]
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            for given in (samples, views):
                results.append(voxel_mean(given, [0.1] * 3, RANGE, 5, 999))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(other, results[0], strict=True):
            assert torch.equal(a, b)


def test_operator_passes_opcheck():
    points, = make_points(30)
    torch.library.opcheck(
        torch.ops.mmturbox.voxel_mean.default,
        (points.requires_grad_(), [10, 20], SIZE, RANGE,
         grid_size(SIZE, RANGE), 3, 10))


def test_bad_arguments_are_named():
    points, = make_points(3)
    with pytest.raises(ValueError, match='max_num_points'):
        voxel_mean([points], SIZE, RANGE, 0, 5)
    with pytest.raises(ValueError, match='shape'):
        voxel_mean([points[0]], SIZE, RANGE, 3, 5)
