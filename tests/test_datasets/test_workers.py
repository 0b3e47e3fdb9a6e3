"""Data workers: bounded threads, the draws of MMEngine's workers."""

import os
import random

import numpy as np
import pytest
import torch
from mmengine.runner import Runner

from mmturbox.datasets.loaders import complete_worker_init
from mmturbox.datasets.loaders.workers import USER_LIMITS
from mmturbox.runner import TurboRunner

cv2 = pytest.importorskip('cv2')


class Draws:
    """Each sample holds what the random generators of its worker give."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return dict(
            index=index,
            draws=(random.random(), np.random.rand(), torch.rand(()).item()))


class Threads(Draws):
    """Each sample holds the state of its worker, after some real work."""

    def __getitem__(self, index):
        before = len(os.listdir('/proc/self/task'))
        points = np.ones((100000, 4), np.float32)
        points @ np.eye(4, dtype=np.float32)
        np.ones((300, 300)) @ np.ones((300, 300))
        cv2.resize(np.zeros((900, 1600, 3), np.uint8), (704, 256))
        return dict(
            cv2=cv2.getNumThreads(),
            omp=os.environ.get('OMP_NUM_THREADS'),
            grown=len(os.listdir('/proc/self/task')) - before)


def loader(dataset, **kwargs):
    return dict(
        dataset=dataset,
        sampler=dict(type='DefaultSampler', shuffle=True),
        batch_size=2,
        num_workers=2,
        **kwargs)


def limits(**kwargs):
    return dict(worker_init_fn=dict(type='mmturbox.worker_init', **kwargs))


def batches(build, *args, epochs=2, **kwargs):
    torch.manual_seed(1)
    data = build(*args, seed=5, **kwargs)
    out = []
    for epoch in range(epochs):
        data.sampler.set_epoch(epoch)
        out += list(data)
    return out, torch.rand(()).item()


@pytest.mark.parametrize('quiet', [{}, dict(disable_subprocess_warning=True)])
def test_batches_equal_those_of_mmengines_workers(quiet):
    stock = batches(Runner.build_dataloader, loader(Draws(), **quiet))
    ours = batches(TurboRunner.build_dataloader,
                   loader(Draws(), **limits(), **quiet))
    # The same samples, draws and state of the main process's generator.
    assert ours == stock


def test_no_seed_means_no_seeding():
    cfg = complete_worker_init(loader(Draws(), **limits()), None)
    assert cfg['worker_init_fn']['seeding'] is None
    assert list(TurboRunner.build_dataloader(loader(Draws(), **limits())))


def test_other_loaders_pass_through():
    for cfg in (loader(Draws()), None,
                loader(Draws(), worker_init_fn=dict(type='mine'))):
        assert complete_worker_init(cfg, 1) is cfg


def test_threads_of_a_worker_are_bounded(monkeypatch):
    # KF-B5
    for name in USER_LIMITS:
        monkeypatch.delenv(name, raising=False)
    before = cv2.getNumThreads()
    # Its pool is alive when the workers are forked.
    cv2.resize(np.zeros((2000, 2000, 3), np.uint8), (1000, 1000))
    cfg = loader(Threads(), **limits(threads=1, opencv_threads=1))
    for batch in TurboRunner.build_dataloader(cfg, seed=0):
        assert set(batch['cv2']) == {1}
        assert set(batch['omp']) == {'1'}
        assert max(batch['grown']) <= 2
    assert cv2.getNumThreads() == before
    assert 'OMP_NUM_THREADS' not in os.environ


def test_pixels_do_not_depend_on_the_threads():
    # KF-B5
    image = np.random.default_rng(0).integers(
        0, 256, (450, 800, 3), dtype=np.uint8)
    before, out = cv2.getNumThreads(), []
    for threads in (0, 1, 4):
        cv2.setNumThreads(threads)
        out.append(cv2.resize(image, (352, 128)))
    cv2.setNumThreads(before)
    assert all(np.array_equal(out[0], x) for x in out)


def test_limits_of_the_user_stay(monkeypatch):
    # KF-B6
    monkeypatch.setenv('OMP_NUM_THREADS', '3')
    cfg = loader(Threads(), **limits())
    for batch in TurboRunner.build_dataloader(cfg, seed=0):
        assert set(batch['omp']) == {'3'}
    assert os.environ['OMP_NUM_THREADS'] == '3'


def test_spawned_workers_draw_alike():
    one = dict(num_workers=1)
    ours, _ = batches(
        TurboRunner.build_dataloader, {
            **loader(Draws(), multiprocessing_context='spawn', **limits()),
            **one
        },
        epochs=1)
    stock, _ = batches(
        Runner.build_dataloader, {
            **loader(Draws()),
            **one
        }, epochs=1)
    assert ours == stock
