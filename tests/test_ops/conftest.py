"""Where a test of an operator runs."""

from collections.abc import Iterator

import pytest
import torch

_CUDA = [pytest.param('cuda', marks=pytest.mark.gpu)]


@pytest.fixture(
    params=['cpu', 'shim', *(_CUDA if torch.cuda.is_available() else [])])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The device to make tensors on.

    'shim' gives CPU tensors too, and routes the operators to the CUDA kernels
    under the execution shim; 'cuda' is there where there is a GPU.
    """
    if request.param == 'shim':
        from mmturbox.testing.cuda_shim import cuda_shim
        with cuda_shim():
            yield 'cpu'
    else:
        yield request.param
