"""Stock functions are replaced while a turbo run is at work, and only then."""

import sys
from importlib.util import find_spec
from types import ModuleType

import pytest
import torch
from mmengine.config import Config

from mmturbox.passes.base import Environment
from mmturbox.passes.driver import make_plan
from mmturbox.runner import calls
from mmturbox.runner.calls import FAMILIES, Family, in_place
from mmturbox.testing.fresh_python import mmcv_with, run

needs_mmcv = pytest.mark.skipif(
    find_spec('mmcv') is None, reason='mmcv not installed')

# An _ext that loads and has every function, none of which computes.
COMPILED = b"""
def __getattr__(name):
    if name.startswith('__'):
        raise AttributeError(name)
    def kernel(*args, **kwargs):
        raise RuntimeError('stock kernel ' + name)
    return kernel
"""
BOXES = """
import torch
boxes = torch.tensor([[0., 0, 4, 4], [0, 0, 4, 4.1], [9, 9, 12, 12]])
scores = torch.tensor([.5, .6, .7])
"""
RUNNER = BOXES + """
import tempfile
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, MODELS
from mmengine.dataset import BaseDataset
from mmturbox.runner import TurboRunner

@MODELS.register_module()
class Net(BaseModel):
    def __init__(self, backbone=None):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, mode='tensor', **kwargs):
        from mmcv.ops import nms
        kept = nms(boxes, scores, .5)[1]
        return dict(loss=self.layer(boxes[kept]).square().mean())

@DATASETS.register_module()
class Points(BaseDataset):
    def load_data_list(self):
        return [dict(x=torch.zeros(4)) for _ in range(4)]

def runner():
    return TurboRunner.from_cfg(Config(dict(
        model=dict(type='Net'), work_dir=tempfile.mkdtemp(),
        train_dataloader=dict(
            batch_size=2, num_workers=0, dataset=dict(type='Points'),
            sampler=dict(type='DefaultSampler')),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=.1)),
        train_cfg=dict(by_epoch=True, max_epochs=1),
        env_cfg=dict(dist_cfg=dict(backend='gloo')))))
"""


@needs_mmcv
def test_a_turbo_run_over_a_compiled_mmcv_uses_our_kernels(tmp_path):
    text = run(RUNNER + """
one = runner()
assert 'nms' in one.cfg.turbo.applied, one.plan.table()
assert one.cfg.operator_calls.nms is True
one.train()
from mmcv.ops import nms
try:
    nms(boxes, scores, .5)
except RuntimeError as error:
    print('outside:', error)
""", mmcv_with(tmp_path, '_ext.py', COMPILED))
    assert 'outside: stock kernel nms' in text


@needs_mmcv
def test_the_stock_run_over_a_compiled_mmcv_stays_stock(tmp_path):
    text = run(RUNNER + """
try:
    runner().train()
except RuntimeError as error:
    print('inside:', error)
""", mmcv_with(tmp_path, '_ext.py', COMPILED), MMTURBOX='0')
    assert 'inside: stock kernel nms' in text


@needs_mmcv
@pytest.mark.parametrize('family', [f for f in FAMILIES if FAMILIES[f].ext])
def test_every_family_replaces_functions_that_we_provide(family, tmp_path):
    from mmturbox.ops import mmcv_ext
    assert set(FAMILIES[family].ext) <= set(mmcv_ext.provided())


@pytest.fixture
def stock(monkeypatch):
    """A module with a function, and another that imported it."""
    home, user = ModuleType('stock_home'), ModuleType('stock_user')

    class Kind:

        def double(self):
            return 'stock'

    home.twice = user.twice = lambda x: ('stock', x)
    home.Kind = Kind
    user.Kind = Kind
    for module in (home, user):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    here = ModuleType('our_calls')
    here.twice = lambda stock: lambda x: ('ours', stock(x))
    here.double = lambda stock: lambda self: 'ours'
    monkeypatch.setitem(sys.modules, 'our_calls', here)
    monkeypatch.setitem(
        calls.FAMILIES, 'toy',
        Family(calls=(('stock_home.twice', 'our_calls.twice'),
                      ('stock_home.Kind.double', 'our_calls.double'),
                      ('not_installed.function', 'our_calls.twice'))))
    return home, user


def test_modules_that_imported_a_function_get_ours_too(stock):
    home, user = stock
    with in_place(['toy']):
        assert user.twice(1) == home.twice(1) == ('ours', ('stock', 1))
        assert user.Kind().double() == 'ours'
    assert user.twice(1) == home.twice(1) == ('stock', 1)
    assert user.Kind().double() == 'stock'


def test_an_error_inside_puts_stock_back(stock):
    with pytest.raises(KeyError), in_place(['toy']):
        raise KeyError
    assert stock[1].twice(1) == ('stock', 1)


def test_small_matrices_are_inverted_by_us_and_others_by_stock():
    small = torch.eye(4, dtype=torch.float64).repeat(3, 1, 1) * 2
    large = torch.eye(7) * 2
    before = torch.inverse
    with in_place(['small_matrix']):
        assert torch.inverse is not before
        for function in (torch.inverse, torch.linalg.inv,
                         torch.Tensor.inverse):
            assert torch.equal(function(small), small / 4)
            assert torch.equal(function(large), large / 4)
        assert torch.equal(small.inverse(), small / 4)
        with pytest.raises(torch.linalg.LinAlgError):
            torch.inverse(torch.zeros(3, 3))
    assert torch.inverse is before
    assert 'inverse' not in vars(torch.Tensor)


@needs_mmcv
def test_the_plan_tells_what_is_replaced_and_why_not(monkeypatch):
    cfg = Config(dict(model=dict(type='X')))
    steps = {step.name: step for step in make_plan(cfg).steps}
    assert "mmturbox's here" in steps['nms'].reason
    assert 'no wait to save' in steps['small_matrix'].reason
    steps = {s.name: s for s in make_plan(cfg, Environment('cuda')).steps}
    assert 'no native operators for cuda' in steps['nms'].reason
    monkeypatch.setattr('mmturbox.ops.native', lambda device: True)
    plan = make_plan(cfg, Environment('cuda'))
    plan.apply(cfg)
    assert cfg.operator_calls == dict(small_matrix=True)
