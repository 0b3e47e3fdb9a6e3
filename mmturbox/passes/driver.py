"""From a config to its plan: ask every pass, check the claims, apply.

The passes see the config as the user (and the command line) left it. Nothing
is edited before all have been asked and their claims have been checked.
"""

import importlib.util
import os
from copy import deepcopy
from typing import Any

from mmturbox.errors import ConfigError
from mmturbox.registry import PASSES

from .base import SIDES, ConfigPass, Declined, Environment
from .edits import Edit, Set, Wrap, check_conflicts, lookup, show_path
from .options import APPLIED, Request, read_turbo
from .plan import Plan, Step, describe


def switched_off() -> bool:
    """Whether ``MMTURBOX=0`` asks for the stock run."""
    return os.environ.get('MMTURBOX') == '0'


def all_passes() -> dict[str, ConfigPass]:
    """Every registered pass by its name, in the order of the sides."""
    PASSES.import_from_location()
    found = [cls() for cls in PASSES.module_dict.values()]
    found.sort(key=lambda p: (SIDES.index(p.side), p.name))
    return {p.name: p for p in found}


def unmet_need(item: ConfigPass, env: Environment) -> str | None:
    """Why the environment does not carry ``item``, or None."""
    for need in item.needs:
        kind, _, what = need.partition(':')
        if kind == 'cuda':
            if env.device != 'cuda':
                return f'needs CUDA, the device is {env.device}'
        elif kind == 'distributed':
            if env.world_size < 2:
                return 'needs more than one process'
        elif kind == 'module':
            if importlib.util.find_spec(what.split('.')[0]) is None:
                return f'needs {what}, which is not installed'
        else:
            raise ValueError(f'pass {item.name!r} states an unknown need '
                             f'{need!r}')
    return None


def _is_done(edit: Edit, cfg: Any) -> bool:
    """Whether ``cfg`` already holds what ``edit`` would make."""
    old = lookup(cfg, edit.path)
    if isinstance(edit, Set):
        # None stands for both "absent" and an explicit None.
        return old == edit.value and not (old is None
                                          and edit.path[-1] not in (lookup(
                                              cfg, edit.path[:-1]) or ()))
    if isinstance(edit, Wrap):
        return isinstance(old, dict) and old.get('type') == edit.type
    return list(old or [])[edit.start:edit.stop] == list(edit.new)


def _run_pass(item: ConfigPass, request: Request, cfg: Any,
              env: Environment) -> list[Edit] | Declined:
    try:
        return item.plan(cfg, env, **{**item.options, **request.options})
    except ValueError as error:
        # What a pass says of the user's options; anything else is a bug.
        if request.options:
            raise ConfigError(str(error)) from error
        raise


def _ask(item: ConfigPass, request: Request, cfg: Any, env: Environment,
         was_applied: bool) -> Step:
    step = Step(item.name, item.side, item.parity, 'off')
    if request.on is False:
        step.reason = 'turned off in turbo'
        return step
    if (item.parity == 'statistical' and env.level != 'max'
            and request.on is None):
        step.reason = (f'statistical: ask for it by turbo = dict({item.name}='
                       "True) or level='max'")
        return step
    reason = unmet_need(item, env)
    if reason is None:
        result = _run_pass(item, request, cfg, env)
        if isinstance(result, Declined):
            reason = result.reason
        else:
            step.raw = [e for e in result if not _is_done(e, cfg)]
            reason = None if step.raw else 'already so'
    if reason is None:
        for edit in step.raw:
            if not item.allows(edit):
                raise RuntimeError(
                    f'pass {item.name!r} wants to change '
                    f'{show_path(edit.path)}, which is outside of its '
                    f'declared changes {item.changes}')
        step.status = 'applied'
        step.edits = [describe(e, cfg) for e in step.raw]
        return step
    step.status, step.reason = 'declined', reason
    if request.on and not was_applied and reason != 'already so':
        raise ConfigError(f'turbo.{item.name} was asked for by name but '
                          f'cannot apply: {reason}')
    return step


def make_plan(cfg: Any, env: Environment | None = None) -> Plan:
    """Collect the edits of all passes for ``cfg``; change nothing.

    Args:
        cfg: the whole config, after command-line options.
        env: what the plan may depend on; detected when not given.

    Returns:
        The checked plan; ``plan.apply(cfg)`` makes the edits. Under
        ``MMTURBOX=0`` it is empty.

    Raises:
        ConfigError: a bad ``turbo`` option, or a pass asked for by name that
            cannot apply.
        EditConflict: two passes claim one place.
    """
    passes = all_passes()
    level, requests = read_turbo(cfg.get('turbo'), passes)
    if switched_off():
        return Plan([
            Step(p.name, p.side, p.parity, 'off', 'MMTURBOX=0')
            for p in passes.values()
        ], level)
    env = env or Environment.detect(cfg)
    done = set((cfg.get('turbo') or {}).get(APPLIED, {}))
    # A copy, so that a pass cannot edit by accident.
    view = deepcopy(cfg)
    plan = Plan([
        _ask(p, requests[name], view, env, name in done)
        for name, p in passes.items()
    ], level)
    check_conflicts([(s.name, e) for s in plan.applied for e in s.raw])
    return plan
