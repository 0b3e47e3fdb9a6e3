"""Work in shards: resumed, on processes, and killed without harm."""

import json
import os
import select
import signal
from functools import partial
from multiprocessing import get_context

import pytest

from mmturbox.datasets import DataError, shards
from mmturbox.datasets.shards import (
    Marker,
    WorkFolder,
    cut,
    default_workers,
    lock_file,
    run_shards,
)


def make_files(folder, i):
    (folder / f'{i}').write_text(f'{i} by {os.getpid()}')


def results(folder, count):
    return [folder / f'{i}' for i in range(count)]


@pytest.mark.parametrize('workers', [1, 2, 9])
def test_each_shard_is_made_once_and_counted(tmp_path, workers):
    seen = []
    run_shards(
        partial(make_files, tmp_path), results(tmp_path, 5), [3, 3, 3, 3, 1],
        workers, lambda *a: seen.append(a))
    texts = [path.read_text().split(' by ') for path in results(tmp_path, 5)]
    assert [text[0] for text in texts] == ['0', '1', '2', '3', '4']
    assert (str(os.getpid()) in {text[1] for text in texts}) == (workers == 1)
    assert seen[0] == (0, 13) and seen[-1] == (13, 13)
    assert len(seen) == 6 and seen == sorted(seen)


@pytest.mark.parametrize('workers', [1, 2])
def test_what_is_there_is_not_made_again(tmp_path, workers):
    (tmp_path / '1').write_text('before')
    seen = []
    run_shards(
        partial(make_files, tmp_path), results(tmp_path, 3), [1, 1, 1],
        workers, lambda *a: seen.append(a))
    assert (tmp_path / '1').read_text() == 'before'
    assert seen[0] == (1, 3) and seen[-1] == (3, 3)
    seen.clear()
    run_shards(None, results(tmp_path, 3), [1, 1, 1], workers,
               lambda *a: seen.append(a))
    assert seen == [(3, 3)]


def fails(folder, i):
    if i == 1:
        raise DataError('x.bin does not exist')
    make_files(folder, i)


@pytest.mark.parametrize('workers', [1, 2])
def test_error_of_a_shard_is_the_error_of_the_run(tmp_path, workers):
    with pytest.raises(DataError, match='x.bin does not exist'):
        run_shards(
            partial(fails, tmp_path), results(tmp_path, 4), [1] * 4, workers)
    assert not (tmp_path / '1').exists()


def dies(folder, number, i):
    if i == 2:
        os.kill(os.getpid(), number)
    make_files(folder, i)


# Ctrl-C reaches the workers too, which must end at once.
@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGINT])
def test_killed_worker_is_told_and_not_waited_for(tmp_path, number):
    with pytest.raises(DataError, match='worker process was killed.*again'):
        run_shards(
            partial(dies, tmp_path, number), results(tmp_path, 6), [1] * 6, 2)


def test_no_workers_are_refused(tmp_path):
    with pytest.raises(ValueError, match='--workers must be 1 or more'):
        run_shards(partial(make_files, tmp_path), [], [], 0)


def waits(queue, i):
    queue.put(os.getpid())
    signal.pause()


def run_waiting(folder, queue):
    run_shards(partial(waits, queue), results(folder, 2), [1, 1], 2)


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    """Nobody else would end them."""
    context = get_context('fork')
    queue = context.SimpleQueue()
    parent = context.Process(target=run_waiting, args=(tmp_path, queue))
    parent.start()
    workers = [os.pidfd_open(queue.get()) for _ in range(2)]
    parent.kill()
    parent.join()
    for worker in workers:
        # Readable when the process has ended.
        ended, _, _ = select.select([worker], [], [], 20)
        assert ended
        os.close(worker)


def test_work_folder_keeps_shards_of_the_same_only(tmp_path):
    work = WorkFolder(tmp_path / 'work', dict(a=1, b=[2]))
    (work.path / 'shard').write_text('x')
    WorkFolder(tmp_path / 'work', dict(a=1, b=[2]))
    assert (work.path / 'shard').exists()
    WorkFolder(tmp_path / 'work', dict(a=2, b=[2]))
    assert not (work.path / 'shard').exists()
    work.remove()
    assert not work.path.exists()


@pytest.fixture
def marker(tmp_path):
    return Marker(tmp_path / 'm.json', dict(a=1),
                  [tmp_path / 'x', tmp_path / 'y'])


def test_done_means_all_results_of_this(marker, tmp_path):
    assert not marker.is_done(False)
    marker.begin()
    assert not marker.is_done(False)
    for path in marker.results:
        path.write_text('1')
    assert marker.is_done(False)
    (tmp_path / 'y').unlink()
    assert not marker.is_done(False)


def test_results_of_something_else_are_guarded_then_replaced(marker):
    marker.begin()
    for path in marker.results:
        path.write_text('1')
    other = Marker(marker.path, dict(a=2, c=0), marker.results)
    with pytest.raises(DataError, match='made with other a, c.*--overwrite'):
        other.is_done(False)
    assert not other.is_done(True)
    assert marker.is_done(False)
    # From here on the marker is the other's, and nothing old may stay.
    other.begin()
    assert not any(path.exists() for path in marker.results)
    assert json.loads(marker.path.read_text()) == dict(a=2, c=0)


def test_two_runs_are_kept_from_the_same_results(marker, tmp_path):
    with marker.alone(False) as done:
        assert not done
        with pytest.raises(DataError, match='another run is writing .*/x;'), \
                marker.alone(True):
            raise AssertionError('both at work')
        with Marker(tmp_path / 'n.json', {}, [tmp_path / 'z']).alone(False):
            pass
    with marker.alone(False):
        pass
    assert not list(tmp_path.iterdir())


def test_lock_of_a_file_that_was_removed_is_none(tmp_path):
    """Else two runs that opened it one after the other would both go on."""
    path = tmp_path / 'lock'
    with open(path, 'w') as before:
        path.unlink()
        assert not lock_file(before, path)
        with open(path, 'w') as after:
            assert not lock_file(before, path)
            assert lock_file(after, path)


@pytest.mark.parametrize('done', [False, True])
def test_what_killed_runs_left_goes(marker, tmp_path, done):
    marker.begin()
    for path in marker.results[:1 + done]:
        path.write_text('1')
    kept = sorted(tmp_path.iterdir())
    (tmp_path / 'y.partial-17').write_text('part')
    shard = marker.work / 'shard'
    shard.parent.mkdir()
    shard.write_text('1')
    with marker.alone(False) as found:
        assert found == done
        assert shard.exists() == (not done)
    if not done:
        kept.append(marker.work)
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_finished_results_may_be_read_only(marker, monkeypatch):
    marker.begin()
    for path in marker.results:
        path.write_text('1')
    monkeypatch.setattr(shards, 'lock_file', None)
    with marker.alone(False) as done:
        assert done


def test_broken_marker_says_nothing(marker, tmp_path):
    marker.path.write_text('{')
    assert not marker.is_done(False)
    (tmp_path / 'x').write_text('1')
    with pytest.raises(DataError, match='does not say how it was made'):
        marker.is_done(False)


def test_cut_gives_even_an_empty_list_a_piece():
    assert [list(r) for r in cut(5, 2)] == [[0, 1], [2, 3], [4]]
    assert [list(r) for r in cut(0, 2)] == [[]]
    assert default_workers() >= 1
