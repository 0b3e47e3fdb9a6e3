"""Two processes convert a set of the size of nuScenes' training split at least
1.8 times as fast as one, the tables being loaded.

Takes a quarter of an hour on an idle machine, so it is only run when asked:

    MMTURBOX_MEASURE=1 pytest -s tests/test_datasets/test_nuscenes_speed.py
"""

import copy
import os
import shutil
import statistics
import time

import pytest

from mmturbox.datasets.nuscenes.infos import make_parts, metainfo
from mmturbox.datasets.nuscenes.records import RecordMaker
from mmturbox.datasets.pickled_list import join_parts
from mmturbox.datasets.shards import default_workers

TRAINING_SAMPLES = 28_130
_REPEATED = ('scene', 'sample', 'sample_data', 'ego_pose', 'instance',
             'sample_annotation')


def repeated(nusc, num_samples):
    """The same scenes again and again under new tokens."""
    out = copy.copy(nusc)
    out._token2ind = dict(nusc._token2ind)
    for name in _REPEATED:
        setattr(out, name, [])
        out._token2ind[name] = {}
    known = {
        row['token'] for name in _REPEATED for row in getattr(nusc, name)
    }
    copies = -(-num_samples // len(nusc.sample))
    for i in range(copies):

        def renamed(value, i=i):
            if isinstance(value, str):
                return f'{value}{i:04x}' if value in known else value
            if isinstance(value, list):
                return [renamed(v) for v in value]
            if isinstance(value, dict):
                return {k: renamed(v) for k, v in value.items()}
            return value

        for name in _REPEATED:
            rows, index = getattr(out, name), out._token2ind[name]
            for row in getattr(nusc, name):
                row = renamed(row)
                index[row['token']] = len(rows)
                rows.append(row)
    return out


def seconds(nusc, folder, workers):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    begin = time.perf_counter()
    parts = make_parts(
        RecordMaker(nusc), dict(train=nusc.sample), folder, workers,
        lambda done, total: None)
    join_parts(folder / 'infos.pkl', metainfo(nusc), parts['train'])
    return time.perf_counter() - begin


def measure(nusc, folder, rounds):
    """Interleaved; median seconds of one and of two processes."""
    one, two = [], []
    for _ in range(rounds):
        one.append(seconds(nusc, folder, 1))
        two.append(seconds(nusc, folder, 2))
    return statistics.median(one), statistics.median(two)


def test_repeated_tables_convert_alike_on_two_processes(nusc, tmp_path):
    many = repeated(nusc, 4 * len(nusc.sample))
    assert len(many.sample) == 4 * len(nusc.sample)
    files = []
    for workers in (1, 2):
        assert seconds(many, tmp_path / str(workers), workers) > 0
        files.append((tmp_path / str(workers) / 'infos.pkl').read_bytes())
    assert files[0] == files[1]
    assert many.get('sample', many.sample[-1]['token']) is many.sample[-1]


@pytest.mark.slow
@pytest.mark.skipif(
    default_workers() < 2 or not os.environ.get('MMTURBOX_MEASURE'),
    reason='needs two idle cores and MMTURBOX_MEASURE=1')
def test_two_processes_are_nearly_twice_as_fast(nusc, tmp_path):
    many = repeated(nusc, TRAINING_SAMPLES)
    one, two = measure(many, tmp_path / 'out', rounds=3)
    print(f'{len(many.sample)} records: {one:.1f} s on one process, {two:.1f} '
          f's on two, {one / two:.2f} times as fast')
    assert one / two >= 1.8
