"""Two gloo ranks plan from the same facts, or stop with one reason."""

import os
import socket

import pytest
import torch.multiprocessing as mp
from mmengine.dataset import BaseDataset, ConcatDataset, RepeatDataset
from torch import distributed
from torch.utils.data import Dataset, IterableDataset

from mmturbox.passes.base import Environment
from mmturbox.passes.plan import Plan, Step
from mmturbox.runner import agreement
from mmturbox.runner.agreement import (
    agree_on_environment,
    agree_on_order,
    agree_on_plan,
    agree_on_switch,
    order_digest,
)


def start(rank, port, results, work):
    os.environ.update(
        MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), LOCAL_RANK=str(rank))
    distributed.init_process_group('gloo', rank=rank, world_size=2)
    try:
        results[rank] = work(rank)
    except RuntimeError as error:
        results[rank] = str(error)
    finally:
        distributed.destroy_process_group()


def on_two_ranks(work):
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    with mp.get_context('spawn').Manager() as manager:
        results = manager.dict()
        mp.spawn(start, (port, results, work), nprocs=2)
        return [results[0], results[1]]


def least(rank):
    return agree_on_environment(
        Environment(
            world_size=2,
            local_world_size=2,
            cores=8 + rank,
            memory=5 - rank,
            shm=3 + rank))


def differ(rank):
    status = 'applied' if rank == 0 else 'off'
    agree_on_plan(Plan([Step('loader', 'data', 'bitwise', status)]))


def switch(rank):
    agree_on_switch(rank == 1)


def agree(rank):
    agree_on_switch(False)
    agree_on_plan(Plan([Step('loader', 'data', 'bitwise', 'applied')]))
    return 'agreed'


def test_the_plan_is_made_from_the_least_of_what_ranks_have():
    want = Environment(
        world_size=2, local_world_size=2, cores=8, memory=4, shm=3)
    assert on_two_ranks(least) == [want, want]


@pytest.mark.parametrize('work, text', [
    (differ, 'ranks [1] made another mmturbox plan than rank 0'),
    (switch, 'MMTURBOX=0 is set for ranks [1] only'),
])
def test_ranks_that_differ_all_stop_with_the_reason(work, text):
    for message in on_two_ranks(work):
        assert text in message


def test_equal_plans_go_on():
    assert on_two_ranks(agree) == ['agreed', 'agreed']


class Listed(BaseDataset):
    """Records of the names that a folder gives, in its order."""

    def load_data_list(self):
        return [
            dict(img_path=f'{self.ann_file}/{name}', size=dict(width=3))
            for name in os.listdir(self.ann_file)
        ]


class Bare(Dataset):

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length


class Stream(IterableDataset):

    def __iter__(self):
        return iter(())


def listed(monkeypatch, names, folder='/data'):
    monkeypatch.setattr(os, 'listdir', lambda path: list(names))
    return Listed(folder)


def test_digest_tells_order_and_content(monkeypatch):
    names = [f'{i}.jpg' for i in range(100)]
    first = order_digest(listed(monkeypatch, names))
    assert first == order_digest(listed(monkeypatch, names))
    # Another node may keep the same files elsewhere.
    assert first == order_digest(listed(monkeypatch, names, '/mnt/copy'))
    assert first != order_digest(listed(monkeypatch, names[::-1]))
    assert first != order_digest(listed(monkeypatch, names[1:] + names[:1]))
    assert first != order_digest(listed(monkeypatch, names[:-1]))


def test_digest_sees_through_wrappers(monkeypatch):
    digests = set()
    for names in (['a', 'b'], ['b', 'a']):
        dataset = listed(monkeypatch, names)
        digests.add(order_digest(RepeatDataset(dataset, 2)))
        digests.add(order_digest(ConcatDataset([dataset, dataset])))
    # Twice the same either way, in two orders.
    assert len(digests) == 2


def test_digest_of_other_datasets_is_their_length():
    assert order_digest(Bare(3)) == order_digest(Bare(3))
    assert order_digest(Bare(3)) != order_digest(Bare(4))
    assert order_digest(Stream())[0] is None
    assert order_digest(None)[0] is None


def test_records_are_read_few_whatever_the_length(monkeypatch):
    dataset = listed(monkeypatch, [str(i) for i in range(5000)])
    reads = []
    monkeypatch.setattr(dataset, 'get_data_info',
                        lambda i: reads.append(i) or {})
    order_digest(dataset)
    assert len(reads) == 32
    assert reads[0] == 0 and reads[-1] == 4999


@pytest.mark.parametrize('other, text', [
    ((3, 'y'), 'another order than on rank 0 (3 samples)'),
    ((4, 'y'), 'another length than on rank 0 (3 or 4 samples)'),
])
def test_odd_ranks_and_the_loader_are_named(monkeypatch, other, text):
    monkeypatch.setattr(agreement, 'get_world_size', lambda: 3)
    monkeypatch.setattr(agreement, 'all_gather_object',
                        lambda mine: [(3, 'x'), other, (3, 'x')])
    with pytest.raises(RuntimeError) as error:
        agree_on_order('val_dataloader', Bare(3))
    for part in ('val_dataloader', 'ranks [1]', 'Bare', text):
        assert part in str(error.value)


def order(rank):
    names = ['a', 'b', 'c']
    os.listdir = lambda path: names[::-1] if rank else names
    agree_on_order('train_dataloader', Listed('/data'))


def same_order(rank):
    os.listdir = lambda path: ['a', 'b', 'c']
    agree_on_order('train_dataloader', Listed(f'/node{rank}/data'))
    return 'agreed'


def test_folders_listed_in_another_order_stop_both_ranks():
    for message in on_two_ranks(order):
        assert 'train_dataloader: on ranks [1] the Listed' in message
    assert on_two_ranks(same_order) == ['agreed', 'agreed']
