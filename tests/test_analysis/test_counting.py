"""Every cause of a host sync is counted, and counted once."""

import numpy as np
import pytest
import torch
from torch import Tensor

from mmturbox.analysis.counting import Counter


def _inputs():
    x = torch.arange(6.)
    return dict(
        x=x, mask=x > 2, n=torch.tensor(3), idx=torch.tensor([1, 2, 3]), np=np)


def count(code: str) -> Counter:
    scope = _inputs()
    with Counter() as counter:
        exec(code, {'torch': torch}, scope)
    return counter


@pytest.mark.parametrize('code, expected', [
    ('n.item()', 1),
    ('float(n)', 1),
    ('int(n)', 1),
    ('bool(n)', 1),
    ('assert n', 1),
    ('max(x[0], x[1])', 1),
    ('range(n)', 1),
    ('mask.nonzero()', 1),
    ('torch.nonzero(mask, as_tuple=True)', 1),
    ('torch.where(mask)', 1),
    ('x[mask]', 1),
    ('x[mask] = x[idx]', 1),
    ('x[mask] = x[mask] + 1', 2),
    ('x[:n]', 1),
    ('x[n]', 1),
    ('x.new_zeros((n,))', 1),
    ('torch.masked_select(x, mask)', 1),
    ('torch.unique(x)', 1),
    ('x.unique(return_inverse=True, return_counts=True)', 1),
    ('torch.unique(x.view(2, 3), dim=0)', 1),
    ('torch.unique_consecutive(x)', 1),
    ('x.cpu()', 1),
    ('x.numpy()', 1),
    ('np.asarray(x)', 1),
    ('x.tolist()', 1),
    ('x.cpu().numpy()', 1),
    ('x.detach().cpu().numpy().tolist()', 1),
    ('x.cpu().tolist()', 1),
    ('torch.repeat_interleave(x[:3], idx)', 1),
    ('x[:3].repeat_interleave(idx)', 1),
    ('torch.tensor([x[0], x[1], 2.])', 2),
    ('torch.equal(x, x)', 1),
    ('torch.inverse(torch.eye(3, device=x.device))', 1),
    ('f"{n}"', 1),
    # The size, the value or the place is known to the host.
    ('x[:3].repeat_interleave(idx, output_size=6)', 0),
    ('torch.repeat_interleave(x, 2)', 0),
    ('x[mask] = 0', 0),
    ('x[idx]', 0),
    ('x[1] = 5.', 0),
    ('torch.where(mask, x, 0)', 0),
    ('x.masked_fill(mask, 0)', 0),
    ('x.shape[0], len(x), x.size(0), x.dim()', 0),
    ('list(x)', 0),
    # Host tensors on a GPU machine too.
    ('torch.tensor([1., 2.])[1].item()', 0),
    ('x.new_zeros((torch.tensor([4, 5])[1],))', 0),
    ('(torch.from_numpy(np.ones(3)) * 2).tolist()', 0),
    ('torch.tensor([1., 2.]).to(x.device)[1].item()', 1),
    ('(torch.tensor(2.) * x[0]).item()', 1),
])
def test_each_host_sync_is_counted_once(code, expected):
    assert count(code).syncs == expected


@pytest.mark.parametrize('code, expected', [
    ('x + 1', 1),
    ('x.mul_(2).add_(1)', 2),
    ('x.view(2, 3).t()[0].detach().unsqueeze(0)', 0),
    ('x.shape, x.is_contiguous(), x.dtype', 0),
    ('torch.empty(3, device=x.device)', 0),
    ('torch.zeros(3, device=x.device)', 1),
    ('torch.zeros(3) + torch.ones(3)', 0),
    ('torch.zeros(3) + x[:3]', 1),
    ('x.to(torch.float64)', 1),
])
def test_launches_leave_out_views_metadata_and_host_work(code, expected):
    assert count(code).launches == expected


@pytest.mark.parametrize('code, expected', [
    ('torch.tensor([1., 2.], device=x.device)', 1),
    ('x.new_tensor([1., 2.])', 1),
    ('torch.tensor([1., 2.]).to(x.device)', 1),
    ('torch.from_numpy(np.ones(2)).to(x)', 1),
    ('x[[0, 1]]', 1),
    ('x[np.array([0, 1])]', 1),
    ('x.copy_(torch.zeros(6))', 1),
    ('x.to(x.device)', 0),
    ('torch.tensor([1., 2.])', 0),
    ('x[idx], x[1], x[:2]', 0),
])
def test_uploads_are_copies_of_host_data_to_the_device(code, expected):
    assert count(code).uploads == expected


def test_to_device_leaves_the_host_tensor_a_host_tensor():
    host = torch.ones(3)
    counter = Counter()
    counter.mark_host([host])
    with counter:
        moved = host.to(torch.device('cpu'))
        host.sum().item()
        assert counter.syncs == 0
        moved.sum().item()
    assert counter.syncs == 1


def test_optimizer_step_counters_are_not_counted():
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight])
    counter = Counter()
    for _ in range(2):
        weight.sum().backward()
        optimizer.step()
    counter.mark_host(s['step'] for s in optimizer.state.values())
    with counter:
        optimizer.step()
    assert counter.syncs == 0
    assert counter.launches > 0


def test_custom_operators_that_size_their_output_by_data_are_a_sync():
    from mmturbox.ops.nms import _nms
    from mmturbox.ops.points_in_boxes import points_in_boxes_all
    boxes = torch.tensor([[0., 0., 2., 2.], [0., 0., 2., 2.1]])
    scores = torch.tensor([.5, .6])
    with Counter() as counter:
        for _ in range(2):
            _nms(boxes, scores, .5, 0)
    assert (counter.syncs, counter.launches) == (2, 2)
    with Counter() as counter:
        points_in_boxes_all(torch.zeros(1, 4, 3), torch.zeros(1, 2, 7))
    assert counter.syncs == 0


class _Reads(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        grad.tolist()
        return grad * grad.sum().item()


def test_the_backward_pass_is_counted_too():
    x = torch.ones(4, requires_grad=True)
    y = _Reads.apply(x)
    with Counter() as counter:
        y.sum().backward()
    assert counter.syncs == 2
    # sum; ones_like, sum, item, mul: expand is a view.
    assert counter.launches == 5
    masked = x[x > 0].sum()
    with Counter() as counter:
        masked.backward()
    assert counter.syncs == 1, 'the gradient is put back through the mask'


def test_the_line_that_caused_the_sync_is_named():
    x = torch.ones(4)
    with Counter() as counter:
        for _ in range(3):
            x.sum().item()
        x.tolist()
    (worst, number, cause), other = counter.lines('sync')
    file, line = worst.split(':')
    assert file.endswith('test_counting.py')
    assert 'x.sum().item()' in open(__file__).readlines()[int(line) - 1]
    assert (number, cause) == (3, '.item()')
    assert other[1:] == (1, '.tolist()')


def test_counting_changes_no_result_and_ends_with_the_block():
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 3)
    x = torch.randn(2, 3)
    plain = layer(x)
    with Counter() as counter:
        counted = layer(x)
    assert torch.equal(plain, counted)
    before = counter.launches
    assert before > 0
    layer(x)
    assert counter.launches == before
