"""What launchers tell a process about its rank, in one spelling.

torchrun sets ``RANK``, ``LOCAL_RANK`` and ``WORLD_SIZE``; the older
``torch.distributed.launch`` also passes ``--local-rank`` or
``--local_rank``; Slurm and Open MPI have names of their own.
"""

import argparse
import os
import re
from collections.abc import MutableMapping

# name -> where schedulers keep it, the first that is set counts.
_SOURCES = {
    'RANK': ('OMPI_COMM_WORLD_RANK', 'SLURM_PROCID'),
    'LOCAL_RANK': ('OMPI_COMM_WORLD_LOCAL_RANK', 'SLURM_LOCALID'),
    'WORLD_SIZE': ('OMPI_COMM_WORLD_SIZE', 'SLURM_NTASKS'),
    'LOCAL_WORLD_SIZE': ('OMPI_COMM_WORLD_LOCAL_SIZE',
                         'SLURM_NTASKS_PER_NODE', 'SLURM_TASKS_PER_NODE'),
}


def add_launch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--launcher`` and both spellings of the local rank."""
    parser.add_argument(
        '--launcher',
        choices=['none', 'pytorch', 'slurm', 'mpi'],
        default='none',
        help='job launcher')
    parser.add_argument('--local_rank', '--local-rank', type=int)


def export_rank_variables(
        launcher: str = 'none',
        local_rank: int | None = None,
        environ: MutableMapping[str, str] | None = None) -> None:
    """Set the rank variables that are missing; never change one that is set.

    Args:
        launcher: ``'none'`` sets ``LOCAL_RANK`` only: a single process that
            was started inside an allocation is not one of its tasks.
        local_rank: value of ``--local-rank``, if it was given.
        environ: the environment to complete, ``os.environ`` by default.
    """
    environ = os.environ if environ is None else environ
    if local_rank is not None:
        environ.setdefault('LOCAL_RANK', str(local_rank))
    names = ['LOCAL_RANK'] if launcher == 'none' else list(_SOURCES)
    for name in names:
        for source in _SOURCES[name]:
            # Slurm writes '8(x2),4' for two nodes of eight and one of four.
            found = re.match(r'\d+', environ.get(source, ''))
            if found:
                environ.setdefault(name, found.group())
                break
    environ.setdefault('LOCAL_RANK', '0')


def is_main_rank() -> bool:
    """Whether this process is the first of its job, before any set-up."""
    for name in ('RANK', *_SOURCES['RANK']):
        if name in os.environ:
            return os.environ[name] == '0'
    return True
