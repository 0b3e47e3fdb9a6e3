"""The provider of ``mmcv._ext``, in environments of many kinds."""

import ast
import inspect
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from mmturbox import ops
from mmturbox.ops import mmcv_ext
from mmturbox.ops.mmcv_ext._names import NAMES
from mmturbox.ops.mmcv_ext._provided import PROVIDED

MMCV = find_spec('mmcv')
MMCV_FOLDER = Path(MMCV.origin).parent if MMCV else None
needs_mmcv = pytest.mark.skipif(MMCV is None, reason='mmcv not installed')
needs_mmdet3d = pytest.mark.skipif(
    find_spec('mmdet3d') is None, reason='mmdet3d not installed')
RUN_AN_OP = """
import torch, mmcv.ops
layer = mmcv.ops.Voxelization([1.0] * 3, [0.0] * 3 + [4.0] * 3, 2, 9)
assert layer(torch.rand(20, 4) * 4)[0].shape == (9, 2, 4)
"""


def run(code, *folders, **environment):
    """The output of ``code`` in a fresh interpreter."""
    path = os.pathsep.join(
        map(str, [*folders, os.environ.get('PYTHONPATH', '')]))
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', code],
        env={**os.environ, **environment, 'PYTHONPATH': path},
        capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def mmcv_with(folder, name, content):
    """A mmcv package in ``folder`` that is ours plus one file."""
    package = folder / 'mmcv'
    package.mkdir()
    for entry in MMCV_FOLDER.iterdir():
        if not entry.name.startswith('_ext'):
            (package / entry.name).symlink_to(entry)
    (package / name).write_bytes(content)
    return folder


def lite_mmcv(folder):
    return mmcv_with(folder, 'unrelated.txt', b'')


@needs_mmcv
def test_mmcv_without_ext_runs_cpu_ops(tmp_path):
    """KF-E3: no _ext."""
    text = run("""
import sys
from mmturbox.ops import mmcv_ext
assert mmcv_ext.install() and mmcv_ext.install()
assert 'mmcv' not in sys.modules, 'install must not import mmcv'
""" + RUN_AN_OP + "print(mmcv_ext.status())", lite_mmcv(tmp_path))
    assert 'mmturbox; mmcv has no compiled _ext' in text


@needs_mmcv
@pytest.mark.parametrize('name, content', [
    ('_ext.abi3.so', b'not a shared library'),
    ('_ext.py', b'raise ImportError("undefined symbol: _ZN3c10")'),
    ('_ext.py', b'raise OSError("libcudart.so.11.0: cannot open")'),
])
def test_an_ext_that_fails_to_load_is_replaced(tmp_path, name, content):
    """KF-E3: built for another torch."""
    text = run("""
from mmturbox.ops import mmcv_ext
assert mmcv_ext.install()
""" + RUN_AN_OP + "print(mmcv_ext.status())",
               mmcv_with(tmp_path, name, content))
    assert 'mmturbox; the compiled _ext of mmcv does not load' in text


def test_without_mmcv_our_ops_run_and_the_reason_is_logged():
    """KF-E3: no mmcv ops at all."""
    text = run("""
import logging, sys
sys.modules['mmcv'] = None
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
import torch
from mmturbox import ops
from mmturbox.ops import mmcv_ext
assert mmcv_ext.install() is False
assert ops.hard_voxelize(torch.rand(5, 4), [1.0] * 3,
                         [0.0] * 3 + [4.0] * 3, 2, 9)[1].shape == (1, 3)
print('status:', mmcv_ext.status())
""")
    assert 'INFO:mmturbox:mmcv._ext: not provided, mmcv is not inst' in text
    assert 'status: mmcv is not installed' in text


COMPILED = b"""
def __getattr__(name):
    if name.startswith('__') or name == 'unknown':
        raise AttributeError(name)
    return lambda *args, **kwargs: 'compiled ' + name
"""


@needs_mmcv
@pytest.mark.parametrize('before', ['', 'import mmcv.ops, mmcv._ext\n'])
def test_a_working_ext_is_kept_unless_forced(tmp_path, before):
    text = run(before + """
from mmturbox.ops import mmcv_ext
assert mmcv_ext.install() is False
import mmcv.ops, mmcv._ext
assert mmcv._ext.points_in_boxes_part_forward() == 'compiled ' \
       'points_in_boxes_part_forward'
assert mmcv_ext.status().startswith('compiled')
assert mmcv_ext.install(force=True)
assert mmcv._ext.is_mmturbox
assert mmcv._ext.hard_voxelize_forward.__module__.startswith('mmturbox')
assert mmcv._ext.upfirdn2d() == 'compiled upfirdn2d'
assert mmcv.ops.voxelize.ext_module is mmcv._ext
print(mmcv_ext.status())
""" + RUN_AN_OP, mmcv_with(tmp_path, '_ext.py', COMPILED))
    assert text.splitlines()[-1].startswith('mmturbox; ')
    assert text.strip().endswith("are mmcv's own")


@needs_mmcv
def test_the_choice_is_logged_once(tmp_path):
    text = run("""
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
from mmturbox.ops import mmcv_ext
for _ in range(3):
    mmcv_ext.install()
    import mmcv.ops
""", lite_mmcv(tmp_path))
    assert text.count('mmcv._ext: mmturbox') == 1
    assert 'mmcv has no compiled _ext' in text


@needs_mmcv
def test_a_missing_function_fails_by_name_when_it_is_called():
    """KF-E3: and not before."""
    mmcv_ext.install()
    ext = pytest.importorskip('mmcv._ext')
    lacking = sorted(NAMES - set(PROVIDED))
    if not getattr(ext, 'is_mmturbox', False) or not lacking:
        pytest.skip('every function is there')
    stub = getattr(ext, lacking[0])
    with pytest.raises(NotImplementedError) as caught:
        stub(1, key=2)
    assert lacking[0] in str(caught.value)
    assert 'mmturbox.info' in str(caught.value)
    with pytest.raises(AttributeError, match='no_such_function'):
        _ = ext.no_such_function


@needs_mmcv
def test_every_name_that_mmcv_asks_for_is_listed():
    asked = set()
    for file in (MMCV_FOLDER / 'ops').glob('*.py'):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and 'load_ext' in ast.dump(
                    node.func):
                asked |= {name.value for name in node.args[1].elts}
    assert asked
    assert asked <= NAMES
    assert set(PROVIDED) <= NAMES


@needs_mmcv
def test_parameters_are_named_and_ordered_as_mmcv_binds_them():
    binding = MMCV_FOLDER / 'ops/csrc/pytorch/pybind.cpp'
    if not binding.is_file():
        pytest.skip('this mmcv ships no sources')
    mmcv_ext.choose()
    bound = {}
    for name, rest in re.findall(r'm\.def\(\s*"(\w+)"(.*?)\);',
                                 binding.read_text(), re.DOTALL):
        arguments = re.findall(r'py::arg\("(\w+)"\)', rest)
        if name in PROVIDED and arguments:
            bound.setdefault(name, []).append(arguments)
    for name, orders in bound.items():  # knn_forward is bound twice
        names = list(inspect.signature(PROVIDED[name]).parameters)
        assert names in orders, name
    assert len(bound) >= 15


def test_modules_to_adapt_are_listed_where_no_import_is_needed():
    from mmturbox.ops.mmcv_ext import _adapt, _finder
    assert set(_finder.ADAPTED) == set(_adapt._ADAPTERS)


@needs_mmcv
def test_functions_that_ask_for_cuda_take_cpu_tensors():
    """mmcv's allocate on the current CUDA device."""
    mmcv_ext.install()
    mmcv_ops = pytest.importorskip('mmcv.ops')
    points = torch.rand(2, 30, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(mmcv_ops.furthest_point_sample(points, 5),
                       ops.furthest_point_sample(points, 5))
    assert torch.equal(mmcv_ops.knn(3, points), ops.knn(3, points))
    assert torch.equal(
        mmcv_ops.knn(3, xyz=points, center_xyz=points[:, :4].contiguous()),
        ops.knn(3, points, points[:, :4]))
    sampler = mmcv_ops.PointsSampler([4], ['FS'])
    assert sampler(points, torch.rand(2, 3, 30)).shape == (2, 8)


def test_one_name_cannot_be_provided_twice(monkeypatch):
    from mmturbox.ops.mmcv_ext import provides
    monkeypatch.setitem(PROVIDED, 'nms', len)
    with pytest.raises(ValueError, match='nms'):

        @provides
        def nms():
            pass


SPAWNED = """
import multiprocessing
import mmcv.ops
from torch.utils.data import DataLoader

class Data:

    def __len__(self):
        return 2

    def __getitem__(self, index):
        import mmcv._ext
        return mmcv._ext.is_mmturbox

def child(queue):
    import mmcv._ext
    queue.put(mmcv._ext.is_mmturbox)

if __name__ == '__main__':
    loader = DataLoader(Data(), num_workers=1,
                        multiprocessing_context='spawn')
    print('spawn', [bool(b) for b in loader])
    context = multiprocessing.get_context('forkserver')
    queue = context.Queue()
    process = context.Process(target=child, args=(queue, ))
    process.start()
    print('forkserver', queue.get())
    process.join()
"""


@needs_mmcv
def test_spawned_workers_get_it_before_their_main_module(tmp_path):
    """Also where the script was started by another program."""
    lite_mmcv(tmp_path)
    script = tmp_path / 'script.py'
    script.write_text(SPAWNED)
    launcher = tmp_path / 'launcher.py'
    launcher.write_text(f"""
import runpy
if __name__ == '__main__':
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install()
    runpy.run_path({str(script)!r}, run_name='__main__')
""")
    text = run(f"""
import runpy
runpy.run_path({str(launcher)!r}, run_name='__main__')
""", tmp_path)
    assert 'spawn [True, True]' in text
    assert 'forkserver True' in text
    assert text.count('mmcv._ext: mmturbox') <= 1, 'workers must not log'


@needs_mmcv
def test_a_spawned_process_finds_mmturbox_by_its_place():
    """Where only the parent's sys.path leads to it."""
    from mmturbox.ops.mmcv_ext import _finder
    text = run(f"""
import runpy, sys
file = {_finder.__file__!r}
root = file[:-len('/mmturbox/ops/mmcv_ext/_finder.py')]

class Hide:

    def find_spec(self, name, path=None, target=None):
        if name == 'mmturbox' and root not in sys.path:
            raise ModuleNotFoundError(name, name=name)

runpy.run_path(file, None, 'mmturbox_spawned')
sys.meta_path.insert(0, Hide())
import mmcv._ext
print('found', bool(mmcv._ext.is_mmturbox or mmcv._ext.__file__),
      root in sys.path)
""")
    assert 'found True True' in text


@needs_mmdet3d
def test_mmdet3d_imports_and_registers_all_its_modules():
    text = run("""
from mmturbox.ops import mmcv_ext
mmcv_ext.install()
import mmcv.ops, mmdet, mmdet3d
from mmdet3d.registry import MODELS
from mmdet3d.utils import register_all_modules
register_all_modules()
print(MODELS.get('CenterPoint').__name__)
""")
    assert text.strip().endswith('CenterPoint')
