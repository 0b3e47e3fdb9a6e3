"""All ranks plan from the same facts, end with the same plan, and see the same
data in the same order."""

import hashlib
import os.path as osp
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from mmengine.dist import all_gather_object, get_world_size

from mmturbox.passes.base import Environment
from mmturbox.passes.plan import Plan


def agree_on_switch(off: bool) -> None:
    """Raise RuntimeError when only some ranks have ``MMTURBOX=0``."""
    if get_world_size() == 1:
        return
    every = all_gather_object(off)
    if len(set(every)) > 1:
        ranks = [r for r, is_off in enumerate(every) if is_off]
        raise RuntimeError(f'MMTURBOX=0 is set for ranks {ranks} only; start '
                           'all ranks with the same environment')


def agree_on_environment(env: Environment) -> Environment:
    """The least of what the ranks have, so that one plan fits all."""
    if get_world_size() == 1:
        return env
    every = all_gather_object(env)
    return replace(
        env,
        cores=min(e.cores for e in every),
        memory=min(e.memory for e in every),
        shm=min(e.shm for e in every),
        local_world_size=max(e.local_world_size for e in every))


def agree_on_plan(plan: Plan) -> None:
    """Raise RuntimeError on every rank when their plans differ."""
    if get_world_size() == 1:
        return
    digests = all_gather_object(plan.digest())
    odd = [r for r, d in enumerate(digests) if d != digests[0]]
    if odd:
        raise RuntimeError(
            f'ranks {odd} made another mmturbox plan than rank 0. Start all '
            'ranks with the same config, command line and environment '
            '(MMTURBOX, installed packages), or turn the differing pass off; '
            f'the plan here is:\n{plan.table()}')


def agree_on_order(name: str, dataset: Any) -> None:
    """Raise RuntimeError on every rank when their datasets differ.

    Samplers hand out indices, so that a dataset in another order (a folder
    listed unsorted, a file that differs) trains some samples twice and scores
    predictions against other samples. Compared are the length and a few
    records, by their plain values; of paths only the last part counts, since
    nodes may keep the data in different places.

    Args:
        name: of the loader in the config.
        dataset: of that loader. Without ``get_data_info`` (MMEngine's
            datasets have it) only the length is compared.
    """
    if get_world_size() == 1:
        return
    every = all_gather_object(order_digest(dataset))
    odd = [r for r, digest in enumerate(every) if digest != every[0]]
    if odd:
        lengths = sorted({str(digest[0]) for digest in every})
        what = 'length' if len(lengths) > 1 else 'order'
        raise RuntimeError(
            f'{name}: on ranks {odd} the {type(dataset).__name__} has another '
            f'{what} than on rank 0 ({" or ".join(lengths)} samples). Sort '
            'what is listed from folders, and give all ranks the same '
            'annotation file and seed')


def order_digest(dataset: Any,
                 records: int = 32) -> tuple[int | None, str]:
    """Length and digest of evenly spaced records of a dataset."""
    length = len(dataset) if hasattr(dataset, '__len__') else None
    digest = hashlib.blake2b(digest_size=16)
    if length and hasattr(dataset, 'get_data_info'):
        for i in np.unique(np.linspace(0, length - 1, records).astype(int)):
            for value in _plain(dataset.get_data_info(int(i))):
                digest.update(repr(value).encode())
    return length, digest.hexdigest()


def _plain(node: Any, depth: int = 3) -> Iterator[Any]:
    """Strings and numbers of nested dicts, in the order of their keys."""
    if isinstance(node, dict) and depth:
        for key in sorted(node, key=str):
            yield from _plain(node[key], depth - 1)
    elif isinstance(node, str):
        yield osp.basename(node)
    elif isinstance(node, (bool, int, float)):
        yield node
