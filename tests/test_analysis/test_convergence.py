"""Knees of made logs are found where they were put."""

import json

import numpy as np
import pytest

from mmturbox.analysis.convergence import (
    compare,
    read_run,
    smooth,
    trends_agree,
)

EVERY = 5


def write_log(folder, curve, steps=1000, noise=0., seconds=.1, first=0):
    """A work dir as MMEngine leaves it; ``curve`` maps steps to losses."""
    rng = np.random.default_rng(0)
    out = folder / '20260101_000000' / 'vis_data'
    out.mkdir(parents=True)
    at = np.arange(first + EVERY, first + steps + 1, EVERY)
    losses = curve(at) + rng.normal(0, noise, len(at)) if noise else curve(at)
    lines = [
        dict(loss=float(v), time=seconds, iter=int(s), step=int(s))
        for s, v in zip(at, losses, strict=True)
    ]
    lines.insert(3, dict(NDS=.1, step=1))  # a validation record
    (out / 'scalars.json').write_text('\n'.join(map(json.dumps, lines)))
    return str(folder)


def exponential(tau, plateau=1., top=9.):
    # Within 5 % of the fall after 3 tau.
    return lambda at: plateau + top * np.exp(-at / tau)


def linear(knee, plateau=1., top=9.):
    return lambda at: plateau + top * np.maximum(0, 1 - at / knee)


@pytest.mark.parametrize('curve, knee', [
    (exponential(50), 150),
    (exponential(100), 300),
    (linear(400), 380),
])
@pytest.mark.parametrize('noise', [0., .2])
def test_known_knees_are_found(tmp_path, curve, knee, noise):
    run = read_run(write_log(tmp_path, curve, noise=noise))
    assert run.knee == pytest.approx(knee, rel=.1)
    assert run.plateau == pytest.approx(1, abs=.1)
    assert run.knee_seconds == pytest.approx(run.knee * .1)


@pytest.mark.parametrize('curve', [
    lambda at: 10 - at / 200,
    lambda at: 0 * at + 3.,
    lambda at: 1 + at / 1000,
])
def test_falling_flat_and_rising_curves_have_not_converged(tmp_path, curve):
    assert read_run(write_log(tmp_path, curve, noise=.01)).knee is None


def test_rows_of_a_run_twice_as_fast(tmp_path):
    stock = read_run(write_log(tmp_path / 'a', exponential(50), noise=.1))
    turbo = read_run(
        write_log(tmp_path / 'b', exponential(50), noise=.1, seconds=.05))
    rows = {r.name: r for r in compare([stock, turbo])}
    assert rows['steps to convergence'].ratio == 1
    assert rows['time to convergence'].ratio == pytest.approx(2)
    assert rows['throughput'].ratio == pytest.approx(2)
    assert rows['throughput'].stock == pytest.approx(10)
    assert rows['final loss'].ratio == 1
    assert trends_agree(stock, turbo)


def test_runs_that_part_do_not_agree(tmp_path):
    stock = read_run(write_log(tmp_path / 'a', exponential(50), noise=.1))
    worse = read_run(write_log(tmp_path / 'b', exponential(50, plateau=3)))
    slower = read_run(write_log(tmp_path / 'c', exponential(100)))
    assert not trends_agree(stock, worse)
    assert not trends_agree(stock, slower)


def test_smoothing_shifts_nothing():
    ramp = np.arange(200.)
    assert np.allclose(smooth(ramp), ramp)
    assert smooth(np.array([1., 2.])).tolist() == [1., 2.]


def test_a_resumed_run_is_read_as_one(tmp_path):
    write_log(tmp_path, linear(400), steps=600)
    late = tmp_path / '20260102_000000' / 'vis_data'
    late.mkdir(parents=True)
    lines = [
        json.dumps(dict(loss=7., time=.1, iter=s, step=s))
        for s in range(505, 1001, 5)
    ]
    (late / 'scalars.json').write_text('\n'.join(lines) + '\n{"loss": 1')
    run = read_run(str(tmp_path))
    assert len(run.steps) == 200
    assert run.losses[run.steps > 500].tolist() == [7.] * 100


def test_folders_without_logs_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match='scalars.json'):
        read_run(str(tmp_path))
    folder = write_log(tmp_path / 'x', exponential(50))
    with pytest.raises(ValueError, match='at least 5'):
        read_run(folder, key='no_such_loss')
