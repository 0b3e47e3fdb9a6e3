import pytest
from mmengine.config import Config

from mmturbox.passes.base import Declined, Environment, Set
from mmturbox.passes.edits import apply_edits
from mmturbox.passes.loader import LoaderSettings

GIB = 1 << 30
GPU = Environment(
    device='cuda', cores=32, memory=256 * GIB, shm=128 * GIB)
CPU = Environment(cores=2, memory=8 * GIB, shm=4 * GIB)


def config(**train):
    return Config(
        dict(
            train_dataloader=dict(batch_size=2, num_workers=4, **train),
            val_dataloader=dict(batch_size=1, num_workers=0),
            test_dataloader=None))


def plan(cfg, env=GPU, **options):
    return LoaderSettings().plan(cfg, env,
                                 **{**LoaderSettings.options, **options})


def init(threads=1, opencv_threads=0):
    return Set(
        'train_dataloader.worker_init_fn',
        dict(
            type='mmturbox.worker_init',
            threads=threads,
            opencv_threads=opencv_threads))


def test_a_gpu_gets_pinned_memory_and_more_batches_in_flight():
    assert plan(config()) == [
        Set('train_dataloader.pin_memory', True),
        Set('train_dataloader.prefetch_factor', 4),
        init()
    ]


def test_a_cpu_run_gets_bounded_threads_only():
    assert plan(config(), CPU) == [init()]


def test_keys_of_the_user_are_kept():
    cfg = config(
        pin_memory=False, prefetch_factor=2, worker_init_fn=dict(type='mine'))
    assert plan(cfg) == []


def test_opencv_threads_are_those_of_the_config():
    # KF-B6
    cfg = config()
    cfg.env_cfg = dict(mp_cfg=dict(opencv_num_threads=2))
    assert plan(cfg, CPU) == [init(opencv_threads=2)]


@pytest.mark.parametrize('env', [
    Environment(device='cuda', memory=256 * GIB, shm=64 << 20),
    Environment(device='cuda', memory=4 * GIB, shm=128 * GIB),
    Environment(
        device='cuda',
        local_world_size=64,
        world_size=64,
        memory=256 * GIB,
        shm=128 * GIB),
])
def test_no_more_batches_in_flight_than_memory_holds(env):
    assert plan(config()) != plan(config(), env)
    paths = [e.path[-1] for e in plan(config(), env)]
    assert paths == ['pin_memory', 'worker_init_fn']


def test_options():
    assert plan(
        config(), pin_memory=False, prefetch_factor=0, worker_threads=0) == []
    assert plan(config(), CPU, worker_threads=2) == [init(threads=2)]
    with pytest.raises(ValueError, match='turbo.loader.prefetch_factor'):
        plan(config(), prefetch_factor=-1)


@pytest.mark.parametrize('cfg', [
    Config({}),
    Config(dict(train_dataloader=dict(batch_size=2))),
    Config(dict(train_dataloader=dict(batch_size=2, num_workers=0)))
])
def test_loaders_without_workers_are_declined_with_the_reason(cfg):
    out = plan(cfg)
    assert isinstance(out, Declined)
    assert 'workers' in out.reason


def test_planning_twice_gives_no_edits():
    cfg = config()
    edits = plan(cfg)
    assert all(LoaderSettings().allows(e) for e in edits)
    apply_edits(cfg, edits)
    assert plan(cfg) == []
