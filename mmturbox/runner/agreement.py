"""All ranks plan from the same facts and end with the same plan."""

from dataclasses import replace

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
