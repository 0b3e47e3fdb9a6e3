"""What mmcv reports about its build."""

from ._provided import provides


@provides
def get_compiler_version() -> str:
    return 'mmturbox (no compiled mmcv)'


@provides
def get_compiling_cuda_version() -> str:
    return 'not available'
