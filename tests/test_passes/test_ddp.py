"""DDP settings: the edits, and two gloo processes that train with them."""

import os

import pytest
import torch
import torch.multiprocessing as mp
from mmengine.config import Config
from mmengine.model import BaseModel, MMDistributedDataParallel
from torch import nn

from mmturbox.passes.base import Declined, Environment, Set
from mmturbox.passes.ddp import DDPSettings
from mmturbox.passes.driver import unmet_need
from mmturbox.passes.edits import apply_edits


def plan(cfg, **options):
    options = {**DDPSettings.options, **options}
    cfg = cfg if isinstance(cfg, Config) else Config(cfg)
    return DDPSettings().plan(cfg, Environment(world_size=2), **options)


def sets(**values):
    return [Set(('model_wrapper_cfg', k), v) for k, v in values.items()]


@pytest.mark.parametrize('find_unused', [False, True])
def test_stock_defaults_are_kept(find_unused):
    cfg = dict(find_unused_parameters=True) if find_unused else {}
    assert plan(cfg) == sets(
        type='MMDistributedDataParallel',
        broadcast_buffers=False,
        find_unused_parameters=find_unused,
        gradient_as_bucket_view=True)


def test_only_absent_keys_are_added_to_the_users_config():
    cfg = dict(model_wrapper_cfg=dict(find_unused_parameters=True))
    assert plan(cfg) == sets(gradient_as_bucket_view=True)
    cfg = dict(
        model_wrapper_cfg=dict(
            type=MMDistributedDataParallel, gradient_as_bucket_view=False))
    assert plan(cfg) == []


def test_static_graph_only_when_asked():
    cfg = dict(model_wrapper_cfg=dict(gradient_as_bucket_view=True))
    assert plan(cfg) == []
    assert plan(cfg, static_graph=True) == sets(static_graph=True)


@pytest.mark.parametrize(
    'kind', ['MMFullyShardedDataParallel', 'mine.MMDistributedDataParallel'])
def test_foreign_wrappers_are_declined_with_the_reason(kind):
    out = plan(dict(model_wrapper_cfg=dict(type=kind)))
    assert isinstance(out, Declined)
    assert kind in out.reason


def test_one_process_is_declined_with_the_reason():
    assert 'process' in unmet_need(DDPSettings(), Environment(world_size=1))


def test_planning_twice_gives_no_edits():
    cfg = Config({})
    edits = plan(cfg, static_graph=True)
    assert all(DDPSettings().allows(e) for e in edits)
    apply_edits(cfg, edits)
    assert plan(cfg, static_graph=True) == []


class Toy(BaseModel):
    """Rank 1 has no targets for some steps; its loss keys stay (KF-G3)."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Conv2d(4, 1, 1)

    def forward(self, x, target, mode='loss'):
        y = self.head(self.body(torch.stack(x)))
        target = torch.stack(target)[:, None, None, None]
        weight = target.isfinite()
        error = (y - torch.where(weight, target, 0)).abs() * weight
        scale = torch.where(torch.stack(x).amax() > 50, float('inf'), 1.)
        return dict(loss=error.mean() * scale)


def samples(rank, bad_at=None):
    generator = torch.Generator().manual_seed(rank)
    out = []
    for i in range(12):
        x = torch.randn(2, 5, 5, generator=generator)
        if bad_at is not None and rank == 0 and i // 2 == bad_at:
            x = x + 100
        target = torch.tensor(float('nan') if rank == 1 and 2 <= i < 8 else i)
        out.append(dict(x=x, target=target))
    return out


def train(rank, work_dir, turbo, bad_at=None):
    from mmengine.runner import Runner
    cfg = Config(dict(find_unused_parameters=False))
    if turbo:
        apply_edits(cfg, plan(cfg))
    kind = 'mmturbox.OptimWrapper' if turbo else 'OptimWrapper'
    torch.manual_seed(0)
    runner = Runner(
        model=Toy(),
        work_dir=work_dir,
        train_dataloader=dict(
            dataset=samples(rank, bad_at),
            # Each rank has data of its own.
            sampler=torch.utils.data.SequentialSampler(range(12)),
            batch_size=2),
        train_cfg=dict(by_epoch=True, max_epochs=1),
        optim_wrapper=dict(
            type=kind,
            optimizer=dict(type='SGD', lr=0.01, momentum=0.9),
            clip_grad=dict(max_norm=1.)),
        default_hooks=dict(checkpoint=None),
        launcher='pytorch',
        experiment_name=f'ddp-{turbo}-{bad_at}',
        randomness=dict(seed=0),
        cfg=cfg)
    runner.train()
    return runner


def worker(rank, port, folder):
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE='2',
        MASTER_ADDR='127.0.0.1',
        MASTER_PORT=str(port))
    import mmturbox.registry  # noqa: F401
    from mmturbox.system import compat
    compat.install()
    out = {}
    for name, args in dict(
            stock=(False, ), turbo=(True, ), skip=(True, 2)).items():
        runner = train(rank, f'{folder}/{name}', *args)
        out[name] = {
            k: v.detach()
            for k, v in runner.model.module.named_parameters()
        }
        if name != 'stock':
            assert runner.model.gradient_as_bucket_view
            out[f'{name} skipped'] = runner.optim_wrapper.skipped_steps
        assert not runner.model.broadcast_buffers
        assert not runner.model.find_unused_parameters
    torch.save(out, f'{folder}/{rank}.pt')
    torch.distributed.destroy_process_group()


@pytest.fixture(scope='module')
def ranks(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp('ddp'))
    port = 20000 + os.getpid() % 20000
    mp.spawn(worker, (port, folder), nprocs=2)
    return [torch.load(f'{folder}/{rank}.pt') for rank in range(2)]


def test_two_ranks_train_as_stock_also_when_one_has_no_targets(ranks):
    # KF-G3
    for rank in ranks:
        for name, value in rank['turbo'].items():
            torch.testing.assert_close(value, rank['stock'][name])
            assert torch.equal(value, ranks[0]['turbo'][name])


def test_a_bad_gradient_of_one_rank_skips_the_step_on_all(ranks):
    # KF-D7
    for rank in ranks:
        assert rank['turbo skipped'] == 0
        assert rank['skip skipped'] == 1
        for name, value in rank['skip'].items():
            assert value.isfinite().all()
            assert torch.equal(value, ranks[0]['skip'][name])
        # The other steps were made.
        assert not torch.equal(rank['skip']['head.weight'],
                               rank['turbo']['head.weight'])
