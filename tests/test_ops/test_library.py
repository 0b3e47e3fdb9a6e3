"""Declaring operators, and loading or missing the native modules."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest
import torch

from mmturbox.ops import MISSING, OPERATORS, native

HIDE = "import sys; sys.modules['mmturbox._C'] = None\n"
POINT_OPS = """
import torch
from mmturbox import ops
points = torch.rand(50, 4) * 4
size, bounds = [1.0] * 3, [0.0] * 3 + [4.0] * 3
coors = ops.dynamic_voxelize(points, size, bounds)
assert ops.hard_voxelize(points, size, bounds, 3, 99)[0].shape[1:] == (3, 4)
feats = points.clone().requires_grad_()
ops.dynamic_scatter(feats, coors, 'mean')[0].sum().backward()
assert ops.points_in_boxes_part(points[None, :, :3],
                                torch.ones(1, 2, 7)).shape == (1, 50)
logits = torch.zeros(4, 3, requires_grad=True)
label = torch.arange(4)
ops.sigmoid_focal_loss(logits, label).backward()
ops.softmax_focal_loss(logits, label).backward()
maps = torch.rand(1, 2, 8, 8, requires_grad=True)
ops.roi_align(maps, torch.tensor([[0., 1, 1, 5, 5]]), 2).sum().backward()
assert ops.native() is False and 'cpu' in ops.MISSING
print('all ran')
"""


def run(code, **environment):
    return subprocess.run(
        [sys.executable, '-W', 'always', '-c', code],
        env={**os.environ, **environment}, capture_output=True, text=True,
        timeout=300)


def test_without_the_native_module_one_warning_and_everything_runs():
    done = run(HIDE + POINT_OPS, MMTURBOX_REQUIRE_OPS='0')
    assert done.returncode == 0, done.stderr
    assert 'all ran' in done.stdout
    assert done.stderr.count('UserWarning') == 1
    assert 'mmturbox._C' in done.stderr
    assert 'pip install --no-build-isolation -e .' in done.stderr


def test_required_operators_that_are_missing_stop_the_import():
    done = run(HIDE + 'import mmturbox.ops', MMTURBOX_REQUIRE_OPS='1')
    assert done.returncode != 0
    assert 'RuntimeError: MMTURBOX_REQUIRE_OPS=1' in done.stderr
    assert 'pip install --no-build-isolation -e .' in done.stderr


@pytest.mark.skipif(not native(), reason='no native operators')
def test_required_operators_that_are_there_load_without_a_warning():
    done = run('import mmturbox.ops', MMTURBOX_REQUIRE_OPS='1')
    assert done.returncode == 0, done.stderr
    assert 'native operators' not in done.stderr


def test_import_needs_neither_mmengine_nor_mmcv():
    done = run("""
import sys, mmturbox.ops, mmturbox.ops.mmcv_ext
for name in ('mmengine', 'mmcv', 'mmdet', 'mmdet3d', 'cv2'):
    assert name not in sys.modules, name
""")
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not native(), reason='no native operators')
def test_every_operator_has_a_native_cpu_kernel():
    lacking = [
        name for name in OPERATORS
        if not torch._C._dispatch_has_kernel_for_dispatch_key(
            f'mmturbox::{name}', 'CPU')
    ]
    assert not lacking


def test_a_backend_that_is_not_loaded_says_why():
    assert all(MISSING.values())
    if torch.version.cuda is None:
        assert 'cuda' in MISSING and not native('cuda')


@pytest.mark.skipif(not native(), reason='no native operators')
@pytest.mark.skipif(shutil.which('nm') is None, reason='needs binutils nm')
def test_the_native_module_uses_the_stable_abi_of_torch_only():
    path = importlib.util.find_spec('mmturbox._C').origin
    listing = subprocess.run(
        ['nm', '-D', '--undefined-only', path], capture_output=True,
        text=True, check=True).stdout
    names = {line.split()[-1].split('@')[0] for line in
             listing.splitlines()}
    # Of C++ only what libstdc++ defines: torch's own are mangled c10/at/...
    foreign = {n for n in names if re.match(
        r'_Z\w{0,4}?(2at|3c10|5torch|6caffe2|8pybind11)', n)}
    assert not foreign
    torch_names = {n for n in names if 'torch' in n}
    assert torch_names
    assert all(re.match(r'(aoti_torch_|torch_)', n) for n in torch_names)
    python = {n for n in names if n.startswith(('Py', '_Py'))}
    assert python <= {'PyModule_Create2'}
