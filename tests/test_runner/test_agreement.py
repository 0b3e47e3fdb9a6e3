"""Two gloo ranks plan from the same facts, or stop with one reason."""

import os
import socket

import pytest
import torch.multiprocessing as mp
from torch import distributed

from mmturbox.passes.base import Environment
from mmturbox.passes.plan import Plan, Step
from mmturbox.runner.agreement import (
    agree_on_environment,
    agree_on_plan,
    agree_on_switch,
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
