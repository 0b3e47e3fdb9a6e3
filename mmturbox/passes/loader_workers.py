"""Pass: more data workers, and workers that live on between epochs."""

from typing import Any

from mmturbox.registry import PASSES

from .base import ConfigPass, Declined, Environment, Set
from .loader import LOADERS, PREFETCH, samples_fit

# What a worker of its own holds in RAM, annotations shared.
WORKER_BYTES = 2 << 30


def auto_workers(loader: dict, env: Environment) -> int:
    """The rank's share of the cores, bounded by RAM and /dev/shm.

    One core stays with the training process. Never below what the config
    says.
    """
    now = loader.get('num_workers', 0)
    share = env.cores // env.local_world_size - 1
    share = min(share, env.memory // 2 // WORKER_BYTES // env.local_world_size)
    in_flight = loader.get('prefetch_factor') or PREFETCH
    while share > now and not samples_fit(loader, share * in_flight, env):
        share -= 1
    return max(now, share)


@PASSES.register_module()
class LoaderWorkers(ConfigPass):
    """Raise ``num_workers``; add ``persistent_workers`` where it is absent.

    MMEngine seeds worker w of rank r with ``seed + r * num_workers + w``, and
    anew in each epoch unless workers persist. So either setting changes the
    draws of the augmentations (not their distribution, nor the order of the
    samples): asked for by name or by level 'max'.

    Options:
        num_workers: ``'auto'`` (the default) raises loaders that have
            workers to the rank's share of the cores, where an accelerator
            trains; a number is set for all loaders; 0 leaves them.
        persistent_workers: add it where there are workers.
    """
    name = 'loader_workers'
    side = 'data'
    parity = 'statistical'
    changes = tuple(f'{name}.{key}' for name in LOADERS
                    for key in ('num_workers', 'persistent_workers'))
    options = dict(num_workers=None, persistent_workers=True)

    def plan(self, cfg: Any, env: Environment, num_workers: int | str | None,
             persistent_workers: bool) -> list[Set] | Declined:
        if num_workers is None:
            num_workers = 'auto'
        if num_workers != 'auto' and (type(num_workers) is not int
                                      or num_workers < 0):
            raise ValueError("turbo.loader_workers.num_workers must be 'auto' "
                             f'or a number >= 0, got {num_workers!r}')
        edits = []
        for name in LOADERS:
            loader = cfg.get(name)
            if not isinstance(loader, dict):
                continue
            workers = now = loader.get('num_workers', 0)
            if num_workers == 'auto':
                # On a CPU the cores train; one more worker is one less.
                if now > 0 and env.device != 'cpu':
                    workers = auto_workers(loader, env)
            elif num_workers:
                workers = num_workers
            if workers != now:
                edits.append(Set((name, 'num_workers'), workers))
            if (persistent_workers and workers > 0
                    and 'persistent_workers' not in loader):
                edits.append(Set((name, 'persistent_workers'), True))
        return edits or Declined(
            'no data loader to give more workers or longer lives to')
