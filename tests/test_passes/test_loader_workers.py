from dataclasses import replace

import pytest
from mmengine.config import Config

from mmturbox.passes.base import Declined, Environment, Set
from mmturbox.passes.driver import make_plan
from mmturbox.passes.edits import apply_edits
from mmturbox.passes.loader_workers import LoaderWorkers

GIB = 1 << 30
GPU = Environment(
    device='cuda',
    cores=64,
    local_world_size=4,
    memory=1024 * GIB,
    shm=512 * GIB)


def config(workers=4, **kwargs):
    return Config(
        dict(
            train_dataloader=dict(
                batch_size=2, num_workers=workers, **kwargs)))


def plan(cfg, env=GPU, **options):
    return LoaderWorkers().plan(cfg, env,
                                **{**LoaderWorkers.options, **options})


def workers(n):
    return Set('train_dataloader.num_workers', n)


PERSIST = Set('train_dataloader.persistent_workers', True)


def test_auto_takes_the_ranks_share_of_the_cores():
    assert plan(config()) == [workers(15), PERSIST]
    assert plan(config(), num_workers='auto') == plan(config())


def test_auto_never_lowers():
    assert plan(config(20)) == [PERSIST]
    assert plan(config(), replace(GPU, cores=4)) == [PERSIST]


@pytest.mark.parametrize('change, expected', [
    (dict(memory=128 * GIB), 8),
    (dict(shm=40 * GIB), 10),
    (dict(shm=64 << 20), 4),
])
def test_auto_is_bounded_by_memory_and_shared_memory(change, expected):
    out = plan(config(), replace(GPU, **change), persistent_workers=False)
    if expected == 4:
        assert isinstance(out, Declined)
    else:
        assert out == [workers(expected)]


def test_auto_leaves_the_cores_to_a_cpu_run_and_a_loader_without_workers():
    assert plan(config(), replace(GPU, device='cpu')) == [PERSIST]
    assert isinstance(plan(config(0)), Declined)


def test_a_number_is_set_and_zero_leaves():
    assert plan(config(), num_workers=7) == [workers(7), PERSIST]
    assert plan(config(0), num_workers=7) == [workers(7), PERSIST]
    assert plan(config(), num_workers=0) == [PERSIST]


@pytest.mark.parametrize('bad', ['all', -1, True, 2.5])
def test_bad_numbers_are_named(bad):
    with pytest.raises(ValueError, match='turbo.loader_workers.num_workers'):
        plan(config(), num_workers=bad)


def test_keys_of_the_user_are_kept():
    cfg = config(20, persistent_workers=False)
    out = plan(cfg)
    assert isinstance(out, Declined)
    assert 'workers' in out.reason


def test_only_asked_for_by_name_or_level():
    # Other numbers of workers draw other augmentations.
    def status(**turbo):
        cfg = config()
        cfg.turbo = turbo
        env = replace(GPU, level=turbo.get('level', 'same'))
        step = next(s for s in make_plan(cfg, env).steps
                    if s.name == 'loader_workers')
        return step.status

    assert status() == 'off'
    assert status(level='max') == 'applied'
    assert status(loader_workers=dict(num_workers=8)) == 'applied'


def test_planning_twice_gives_no_edits():
    cfg = config()
    edits = plan(cfg)
    assert all(LoaderWorkers().allows(e) for e in edits)
    apply_edits(cfg, edits)
    assert isinstance(plan(cfg), Declined)
