"""The three nearest points."""

import math

import pytest
import torch

from mmturbox.ops import three_nn


@pytest.mark.parametrize('dtype', [
    torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_distances_and_indices_are_the_three_smallest(device, dtype):
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(2, 70, 3, generator=generator).to(dtype)
    source = torch.randn(2, 90, 3, generator=generator).to(dtype)
    distance, index = three_nn(target.to(device), source.to(device))
    assert distance.dtype == dtype and index.dtype == torch.int32
    want = torch.cdist(target.double(), source.double())
    taken = want.gather(2, index.cpu().long())
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 1e-2}.get(dtype, 1e-6)
    torch.testing.assert_close(
        distance.cpu().double(), want.sort(2)[0][..., :3],
        rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(
        taken, want.sort(2)[0][..., :3], rtol=1e-5, atol=1e-5)


def test_fewer_than_three_points_and_strange_ones(device):
    """KF-A3."""
    target = torch.zeros(1, 2, 3, device=device)
    source = torch.tensor([[[0., 3, 4], [math.nan, 0, 0], [0, 0, 0]]])
    distance, index = three_nn(target, source.to(device))
    assert distance.cpu().tolist() == [[[0, 5, math.inf]] * 2]
    assert index.cpu().tolist() == [[[2, 0, 0]] * 2]
    distance, index = three_nn(target, source[:, :0].to(device))
    assert bool((distance == math.inf).all()) and not index.any()


def test_nothing_is_differentiated():
    target = torch.randn(1, 4, 3, requires_grad=True)
    distance, index = three_nn(target, target)
    assert not distance.requires_grad and not index.requires_grad


def test_wrong_input_is_named():
    with pytest.raises(ValueError, match='source'):
        three_nn(torch.zeros(1, 5, 3), torch.zeros(1, 5, 2))
