"""Pillar statistics, pooling and gradient sums: kernels and references."""

import pytest
import torch

from mmturbox.ops.pillar_pool import (
    pillar_grads,
    pillar_grads_reference,
    pillar_pool,
    pillar_pool_reference,
    pillar_stats,
    pillar_stats_reference,
)


def pillars(count=50, room=7, width=9, dtype=torch.float32, seed=0,
            device='cpu'):
    generator = torch.Generator().manual_seed(seed)
    num = torch.randint(1, room + 1, (count, ), generator=generator).int()
    values = torch.randn(count, room, width, generator=generator).to(dtype)
    values *= (torch.arange(room) < num[:, None])[:, :, None]
    return values.to(device), num.to(device)


def channels(width, dtype=torch.float32, device='cpu'):
    torch.manual_seed(1)
    mean, invstd, weight, bias = torch.randn(4, width, dtype=dtype).to(device)
    return mean, invstd.abs() + .1, weight, bias


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('shape', [(50, 7, 9), (1, 1, 1), (3, 20, 33),
                                   (300, 2, 5), (3, 1, 300)])
def test_operators_equal_their_references(shape, dtype, device):
    values, num = pillars(*shape, dtype=dtype, device=device)
    for got, expected in zip(
            pillar_stats(values, num),
            pillar_stats_reference(values, num),
            strict=True):
        torch.testing.assert_close(got, expected)
    given = (values, num, *channels(shape[2], dtype, device))
    pooled, index = pillar_pool(*given)
    torch.testing.assert_close(pooled, pillar_pool_reference(*given)[0])
    assert torch.equal(index, pillar_pool_reference(*given)[1])
    grad = torch.randn(shape[0], shape[2], dtype=dtype, device=device)
    for got, expected in zip(
            pillar_grads(values, num, index, grad),
            pillar_grads_reference(values, num, index, grad),
            strict=True):
        assert got.dtype == torch.float64
        torch.testing.assert_close(got, expected)


def test_operators_equal_torch_batch_norm_bit_for_bit():
    values, num = pillars(400, 20, 32)
    _, _, weight, bias = channels(32)
    normed, mean, invstd = torch.native_batch_norm(
        values.transpose(1, 2).contiguous(), weight, bias, None, None, True,
        .1, 1e-3)
    got_mean, var_sum = pillar_stats(values, num)
    assert torch.equal(got_mean, mean)
    var = (var_sum / (400 * 20)).double()
    assert torch.equal((1 / torch.sqrt(var + 1e-3)).float(), invstd)
    pooled, index = pillar_pool(values, num, mean, invstd, weight, bias)
    expected, where = normed.relu().max(2)
    assert torch.equal(pooled, expected)
    assert torch.equal(index[pooled > 0].long(), where[pooled > 0])


def test_no_pillars(device):
    values, num = pillars(0, device=device)
    pooled, index = pillar_pool(values, num, *channels(9, device=device))
    assert pooled.shape == index.shape == (0, 9)
    for one in pillar_grads(values, num, index, pooled):
        assert not one.any()


def test_a_nan_comes_out(device):
    values, num = pillars(device=device)
    mean, invstd, weight, bias = channels(9, device=device)
    weight[2] = float('nan')
    pooled, _ = pillar_pool(values, num, mean, invstd, weight, bias)
    assert pooled[:, 2].isnan().all() and not pooled[:, 3].isnan().any()


def test_counts_above_the_room_are_cut_off(device):
    values, num = pillars(device=device)
    full = torch.full_like(num, 7)
    for one, other in zip(
            pillar_stats(values, full * 3),
            pillar_stats(values, full),
            strict=True):
        assert torch.equal(one, other)


def test_gradient_sums_do_not_depend_on_the_threads():
    values, num = pillars(300)
    index = torch.zeros(300, 5).int()
    grad = torch.randn(300, 5)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(pillar_grads(values, num, index, grad))
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_opcheck():
    values, num = pillars()
    pooled, index = pillar_pool(values, num, *channels(9))
    ops = torch.ops.mmturbox
    torch.library.opcheck(ops.pillar_stats.default, (values, num))
    torch.library.opcheck(ops.pillar_pool.default,
                          (values, num, *channels(9)))
    torch.library.opcheck(ops.pillar_grads.default,
                          (values, num, index, pooled))


def test_wrong_inputs_are_named():
    values, num = pillars()
    with pytest.raises(ValueError, match=r'\(M, P, channels\)'):
        pillar_stats(values[0], num)
    with pytest.raises(ValueError, match=r'num_points must be \(50,\) int32'):
        pillar_stats(values, num.long())
    with pytest.raises(ValueError, match='index and grad'):
        pillar_grads(values, num, torch.zeros(50, 3).int(), values[:, 0])
