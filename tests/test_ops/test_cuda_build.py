"""The CUDA kernels compile, link against the stable ABI and are complete."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mmturbox.ops import OPERATORS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope='module')
def library():
    if shutil.which('nvcc') is None:
        pytest.skip('NO CUDA KERNEL WAS COMPILED: nvcc is not on PATH')
    done = subprocess.run(
        [sys.executable, ROOT / 'tools/build_ops.py', 'cuda'],
        capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    return Path(done.stdout.split()[-1])


def test_every_kernel_compiles_for_sm_80_and_sm_90(library):
    rules = (library.parent / 'build.ninja').read_text()
    assert 'code=sm_80' in rules and 'code=sm_90' in rules
    sources = list((ROOT / 'ops/csrc/cuda').glob('*.cu'))
    assert sources and all(
        (library.parent / f'{source.name}.o').exists() for source in sources)


def test_the_cuda_module_uses_the_stable_abi_of_torch_only(library):
    listing = subprocess.run(['nm', '-D', '--undefined-only', library],
                             capture_output=True, text=True, check=True)
    names = {
        line.split()[-1].split('@')[0]
        for line in listing.stdout.splitlines()
    }
    foreign = {
        n for n in names
        if re.match(r'_Z\w{0,4}?(2at|3c10|5torch|6caffe2|8pybind11)', n)
    }
    assert not foreign
    assert all(re.match(r'(aoti_torch_|torch_)', n)
               for n in names if 'torch' in n)
    assert {n for n in names if n.startswith(('Py', '_Py'))
            } <= {'PyModule_Create2'}


def test_every_operator_has_a_cuda_kernel():
    from mmturbox.testing.cuda_shim import kernels
    lacking = set(OPERATORS) - set(kernels())
    assert not lacking
