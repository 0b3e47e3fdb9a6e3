"""CPU tensors in the place of CUDA ones."""

import pytest
import torch
from torch import nn

from mmturbox.testing.cpu_as_cuda import cpu_as_cuda

CPU = torch.device('cpu')


@pytest.mark.parametrize('device', ['cuda', 'cuda:1', torch.device('cuda')])
def test_every_way_to_a_device_leads_to_the_cpu(device):
    with cpu_as_cuda():
        tensors = (torch.ones(2, device=device),
                   torch.tensor([1.], device=device),
                   torch.ones(2).to(device),
                   torch.ones(2).to(device, torch.float64),
                   torch.ones(2).new_tensor([3.], device=device),
                   nn.Linear(2, 2).to(device).weight,
                   nn.Linear(2, 2).cuda().weight,
                   torch.ones(2).cuda(), torch.cuda.IntTensor(3))
    assert {tensor.device for tensor in tensors} == {CPU}
    assert tensors[-1].dtype == torch.int32


def test_questions_about_the_device_are_answered():
    before = torch.cuda.is_available, torch.cuda.FloatTensor
    with cpu_as_cuda():
        assert torch.cuda.is_available()
        assert torch.cuda.device_count() == 1
        torch.cuda.set_device(torch.cuda.current_device())
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    assert (torch.cuda.is_available, torch.cuda.FloatTensor) == before


def test_other_arguments_stay():
    with cpu_as_cuda():
        assert torch.ones(2).to(torch.float64).dtype == torch.float64
        assert torch.ones(2, device='meta').is_meta
        assert torch.einsum('i,i', torch.ones(2), torch.ones(2)) == 2
