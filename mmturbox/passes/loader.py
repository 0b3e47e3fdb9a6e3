"""Pass: data loader settings that leave every batch as it is."""

from collections.abc import Iterator
from typing import Any

from mmturbox.registry import PASSES

from .base import ConfigPass, Declined, Environment, Set, lookup

LOADERS = ('train_dataloader', 'val_dataloader', 'test_dataloader')
WORKER_INIT = 'mmturbox.worker_init'
PREFETCH = 4
# A guess at a large sample: six camera images in float32.
SAMPLE_BYTES = 128 << 20


def loaders_with_workers(cfg: Any) -> Iterator[tuple[str, dict]]:
    for name in LOADERS:
        loader = cfg.get(name)
        if isinstance(loader, dict) and loader.get('num_workers', 0) > 0:
            yield name, loader


def samples_fit(loader: dict, samples: int, env: Environment) -> bool:
    """Whether so many batches of each rank here fit in RAM and /dev/shm."""
    batch = loader.get('batch_size', 1)
    need = samples * batch * env.local_world_size * SAMPLE_BYTES
    return need <= min(env.shm, env.memory // 2)


@PASSES.register_module()
class LoaderSettings(ConfigPass):
    """Pinned memory, more batches in flight, bounded threads in workers.

    Only absent keys are added, and none to a loader without workers. Batches
    and their random draws do not change; see ``loader_workers`` for what
    changes the draws.

    Options:
        pin_memory: on CUDA.
        prefetch_factor: batches in flight a worker, where there is an
            accelerator to keep busy, and RAM and /dev/shm for them; 0 leaves
            torch's 2.
        worker_threads: of BLAS libraries in a worker, where no environment
            variable such as OMP_NUM_THREADS says; 0 leaves threads alone.
            OpenCV's are what ``env_cfg.mp_cfg.opencv_num_threads`` says.
    """
    name = 'loader'
    side = 'data'
    parity = 'bitwise'
    changes = tuple(f'{name}.{key}' for name in LOADERS
                    for key in ('pin_memory', 'prefetch_factor',
                                'worker_init_fn'))
    options = dict(pin_memory=True, prefetch_factor=PREFETCH, worker_threads=1)

    def plan(self, cfg: Any, env: Environment, pin_memory: bool,
             prefetch_factor: int, worker_threads: int
             ) -> list[Set] | Declined:
        if prefetch_factor < 0 or worker_threads < 0:
            raise ValueError('turbo.loader.prefetch_factor and '
                             'worker_threads must be 0 or more, got '
                             f'{prefetch_factor} and {worker_threads}')
        edits = []
        for name, loader in loaders_with_workers(cfg):
            wanted = {}
            if pin_memory and env.device == 'cuda':
                wanted['pin_memory'] = True
            in_flight = prefetch_factor * loader['num_workers']
            if (prefetch_factor and env.device != 'cpu'
                    and samples_fit(loader, in_flight, env)):
                wanted['prefetch_factor'] = prefetch_factor
            if worker_threads:
                wanted['worker_init_fn'] = dict(
                    type=WORKER_INIT,
                    threads=worker_threads,
                    opencv_threads=lookup(
                        cfg, ('env_cfg', 'mp_cfg', 'opencv_num_threads'), 0))
            edits += [
                Set((name, key), value) for key, value in wanted.items()
                if key not in loader
            ]
        if not any(True for _ in loaders_with_workers(cfg)):
            return Declined('no data loader has workers')
        return edits
