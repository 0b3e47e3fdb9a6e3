"""What the command-line programs that take a config have in common."""

import argparse
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from mmturbox.errors import ConfigError

from . import SEAM, compat
from .launch import add_launch_arguments, export_rank_variables, is_main_rank
from .preflight import foreign_projects


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Work dir, config options and launching, as OpenMMLab spells them."""
    from mmengine.config import DictAction
    parser.add_argument(
        '--work-dir', help='the folder for logs, results and checkpoints')
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=DictAction,
        help='settings to change in the config, as key=value pairs: a.b=1, '
        'k="[a,b]" or k=a,b, k="[(a,b),(c,d)]" (quoted, without spaces), '
        'k.0.type=X for an item of a list, k=None')
    add_launch_arguments(parser)


def load_config(args: argparse.Namespace) -> Any:
    """The config of ``args.config`` with the command line merged in.

    Installs the compatibility layer first, completes the launcher's
    variables, and settles the work dir: command line, then config, then
    ``./work_dirs/<config name>``.

    Raises:
        ConfigError: there is no such file, it cannot be read, one of its
            imports fails, or an option cannot be merged.
    """
    compat.install()
    export_rank_variables(args.launcher, args.local_rank)
    cfg = _read(args.config)
    cfg.launcher = args.launcher
    options = args.cfg_options or {}
    for key in options:
        if key.split('.')[0] == 'custom_imports':
            raise ConfigError(
                f'--cfg-options {key} has no effect: imports are done while '
                'the file is read, before options are merged. Write '
                "custom_imports into the config; for acceleration alone use "
                '--cfg-options runner_type=mmturbox.TurboRunner')
    try:
        cfg.merge_from_dict(options)
    except (KeyError, IndexError, TypeError, AssertionError) as error:
        raise ConfigError(f'--cfg-options {options} does not fit the config: '
                          f'{error}') from error
    if args.work_dir is not None:
        cfg.work_dir = args.work_dir
    elif cfg.get('work_dir') is None:
        stem = os.path.splitext(os.path.basename(args.config))[0]
        cfg.work_dir = os.path.join('./work_dirs', stem)
    return cfg


def _read(path: str) -> Any:
    from mmengine.config import Config
    if not os.path.isfile(path):
        raise ConfigError(f'there is no config file {path!r} (working folder '
                          f'{os.getcwd()})')
    hiding = foreign_projects()
    if hiding and is_main_rank():
        logging.getLogger('mmturbox').warning(
            'the package %s hides other folders named "projects", such as '
            'that of mmturbox, because it has an __init__.py; delete that '
            'file to use both', hiding)
    try:
        return Config.fromfile(path)
    except ImportError as error:
        raise ConfigError(_import_failure(path, error, hiding)) from error
    except Exception as error:  # a config is a program: anything may fail
        raise ConfigError(f'the config {path} cannot be read: '
                          f'{type(error).__name__}: {error}') from error


def _import_failure(path: str, error: ImportError, hiding: str | None) -> str:
    """Name what a custom import really failed for (KF-F1)."""
    texts, cause = [], error
    while cause is not None:
        texts.append(f'{type(cause).__name__}: {cause}')
        cause = cause.__cause__ or cause.__context__
    text = f'an import of the config {path} failed. ' + '; because of '.join(
        texts)
    missing = [t for t in texts if "'projects" in t]
    if missing and hiding:
        text += (f'. The package {hiding} hides all other folders named '
                 '"projects", because it has an __init__.py; delete that '
                 'file or take its folder off PYTHONPATH')
    elif missing:
        text += ('. Put the folder that holds "projects" on PYTHONPATH, or '
                 'install it')
    return text


def check_local_file(path: str | None, what: str) -> None:
    """Raise ConfigError when ``path`` is a local file that is not there."""
    if path and '://' not in path and not os.path.isfile(
            os.path.expanduser(path)):
        raise ConfigError(f'there is no {what} {path!r}')


def stock_reason(cfg: Any) -> str | None:
    """Why a runner built from ``cfg`` is not accelerated, or None."""
    from mmengine.config import Config
    from mmengine.runner import Runner
    if os.environ.get('MMTURBOX') == '0':
        return 'MMTURBOX=0'
    kind = cfg.get('runner_type')
    if kind is not None:
        name = kind if isinstance(kind, str) else (
            f'{kind.__module__}.{kind.__name__}')
        if name.startswith('mmturbox.'):
            return None
        return (f'runner_type {name} is not a TurboRunner; only '
                'runner_type="mmturbox.TurboRunner" is accelerated')
    if hasattr(Runner.from_cfg.__func__, SEAM):
        return None
    if cfg.filename and Config._is_lazy_import(cfg.filename):
        return ('a pure-Python config does not run custom_imports; add '
                "runner_type = 'mmturbox.TurboRunner'")
    return ("its custom_imports do not hold 'mmturbox.enable' (a child's "
            "list replaces its base's)")


def build_runner(cfg: Any) -> Any:
    """The Runner that ``cfg`` asks for; says so where it stays stock."""
    from mmengine.registry import RUNNERS
    from mmengine.runner import Runner

    reason = stock_reason(cfg)
    if reason and is_main_rank():
        print(f'[mmturbox] this run is stock: {reason}')
    if cfg.get('runner_type') is None:
        return Runner.from_cfg(cfg)
    return RUNNERS.build(cfg)


def run_program(main: Callable[[], None], program: str) -> None:
    """Run ``main``; a ConfigError becomes one line and exit status 1."""
    try:
        main()
    except ConfigError as error:
        sys.exit(f'{program}: {error}')
