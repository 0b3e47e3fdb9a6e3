"""Bounded threads in data workers, with MMEngine's seeds.

A forked worker inherits OpenCV's thread count from MMEngine's set-up, a
spawned one does not; the BLAS of numpy takes all cores in either. With many
workers the threads then fight for the cores.
"""

import os
import sys
from typing import Any

from mmengine.dataset import worker_init_fn as seed_worker
from mmengine.logging import print_log

from mmturbox.registry import FUNCTIONS

NAME = 'mmturbox.worker_init'
# Where one of these is set, the user decides for the BLAS libraries.
USER_LIMITS = ('OMP_NUM_THREADS', 'MKL_NUM_THREADS', 'OPENBLAS_NUM_THREADS',
               'BLIS_NUM_THREADS', 'VECLIB_MAXIMUM_THREADS')


@FUNCTIONS.register_module()
def worker_init(worker_id: int,
                threads: int = 1,
                opencv_threads: int = 0,
                seeding: dict[str, Any] | None = None) -> None:
    """Limit the threads of this worker, then seed it as MMEngine does.

    Pixels do not depend on the number of OpenCV's threads, and neither do
    products of point clouds with small matrices on that of the BLAS.

    Args:
        worker_id: in [0, num_workers).
        threads: for BLAS and OpenMP libraries, unless an environment
            variable such as OMP_NUM_THREADS is set.
        opencv_threads: 0 is OpenCV without threads, as MMEngine's default.
        seeding: arguments of MMEngine's ``worker_init_fn``; None without a
            seed.
    """
    limit_threads(threads, opencv_threads)
    if seeding is not None:
        seed_worker(worker_id, **seeding)


def limit_threads(threads: int, opencv_threads: int) -> None:
    cv2 = sys.modules.get('cv2')
    if cv2 is not None:
        # 1 would wait for the threads of the parent's pool, which a forked
        # process does not have; 0 does without threads as well.
        cv2.setNumThreads(0 if opencv_threads == 1 else opencv_threads)
    if any(name in os.environ for name in USER_LIMITS):
        return
    # For libraries that this worker has yet to load.
    os.environ['OMP_NUM_THREADS'] = str(threads)
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return
    threadpool_limits(threads, user_api='blas')


def complete_worker_init(loader: Any, seed: int | None) -> Any:
    """Add what only the runner knows to a loader config.

    Args:
        loader: a ``*_dataloader`` config; returned as it is where its
            ``worker_init_fn`` is not :func:`worker_init`.
        seed: the run's seed.
    """
    if not isinstance(loader, dict):
        return loader
    init = loader.get('worker_init_fn')
    if not isinstance(init, dict) or init.get('type') != NAME:
        return loader
    from mmengine.dist import get_rank
    loader = dict(loader)
    # MMEngine takes this key only for its own function.
    quiet = loader.pop('disable_subprocess_warning', False)
    seeding = None
    if seed is not None:
        seeding = dict(
            num_workers=loader['num_workers'],
            rank=get_rank(),
            seed=seed,
            disable_subprocess_warning=quiet)
    loader['worker_init_fn'] = dict(init, seeding=seeding)
    _log_once(init)
    return loader


_logged = set()


def _log_once(init: dict) -> None:
    limits = init.get('threads', 1), init.get('opencv_threads', 0)
    if limits in _logged:
        return
    _logged.add(limits)
    named = [name for name in USER_LIMITS if name in os.environ]
    blas = f'as {named[0]} says' if named else limits[0]
    print_log(
        f'threads in each data worker: OpenCV {limits[1]}, BLAS {blas}',
        'current')
