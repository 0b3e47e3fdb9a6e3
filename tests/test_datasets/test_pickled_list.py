"""Joined parts are the pickle of the joined lists."""

import io
import pickle
import pickletools
import sys

import numpy as np
import pytest

from mmturbox.datasets.info_check import info_layout
from mmturbox.datasets.pickled_list import join_parts, write_part

META = dict(categories=dict(car=0), version='v1.0-mini')


def record(i):
    return dict(
        token=f'{i}',
        timestamp=1e9 + i,
        valid=bool(i % 2),
        names=['car', 'truck', sys.intern('shared'), 'x' * 300],
        big=2**40 + i,
        inner=[dict(a=i, b=None, c=(i, -i)) for _ in range(i % 5)],
        traj=np.full((3, 2), i, np.float32),
        scalar=np.float64(i))


@pytest.mark.parametrize('sizes', [
    [3], [1], [0], [], [1000], [1001], [1, 0, 2, 1], [2500, 1, 999]
])
def test_any_parts_join_to_the_list_of_all(tmp_path, sizes):
    parts, expected = [], []
    for n, size in enumerate(sizes):
        records = [record(len(expected) + i) for i in range(size)]
        expected += records
        parts.append(tmp_path / f'{n}.pkl')
        write_part(parts[-1], records)
    path = tmp_path / 'infos.pkl'
    join_parts(path, META, parts)
    for load in (pickle.loads, lambda b: pickle._Unpickler(io.BytesIO(b)).load(
    )):
        found = load(path.read_bytes())
        assert list(found) == ['metainfo', 'data_list']
        assert found['metainfo'] == META
        assert len(found['data_list']) == len(expected)
        for a, b in zip(found['data_list'], expected, strict=True):
            np.testing.assert_array_equal(a.pop('traj'), b['traj'])
            assert a == {k: v for k, v in b.items() if k != 'traj'}
    assert info_layout(path) == 'new'
    assert sum(1 for _ in pickletools.genops(path.read_bytes())) > 5


def test_a_file_that_is_no_part_is_refused_and_nothing_written(tmp_path):
    part = tmp_path / 'part.pkl'
    part.write_bytes(pickle.dumps(dict(a=1), 3))
    with pytest.raises(ValueError, match='part.pkl is no part'):
        join_parts(tmp_path / 'infos.pkl', META, [part])
    assert [p.name for p in tmp_path.iterdir()] == ['part.pkl']
