"""One clear error before training starts.

Each check looks at the finished config (command line merged) and raises
:class:`~mmturbox.errors.ConfigError`, whose text names the thing and the
remedy.
"""

import importlib.util
import os
import tempfile
from typing import Any

from mmturbox.errors import ConfigError

# Keys that only configs for mmcv 1.x have.
_OLD_KEYS = ('plugin_dir', 'total_epochs', 'optimizer_config',
             'checkpoint_config')
_OLD_DATA_KEYS = ('samples_per_gpu', 'workers_per_gpu', 'train')


def preflight(cfg: Any, mode: str | None = None) -> None:
    """Check ``cfg`` before anything is built from it.

    Args:
        cfg: the whole config, after command-line options.
        mode: ``'train'`` or ``'test'`` where it is known; only then is the
            data looked for, since a test needs no training data.

    Raises:
        ConfigError: the first thing found wrong.
    """
    check_generation(cfg)
    check_loaders(cfg, mode)
    check_device(cfg)
    check_work_dir(cfg)
    if mode is not None:
        from mmturbox.datasets import check_data_configs
        check_data_configs(cfg, mode)


def check_generation(cfg: Any) -> None:
    """Refuse configs written for mmcv 1.x, by the keys that give them away."""
    old = [key for key in _OLD_KEYS if key in cfg]
    data = cfg.get('data')
    if isinstance(data, dict):
        old += [f'data.{key}' for key in _OLD_DATA_KEYS if key in data]
    if old and 'train_dataloader' not in cfg:
        raise ConfigError(
            f'this config was written for mmcv 1.x (it has {", ".join(old)}), '
            'which mmengine cannot run. Port it: data -> '
            'train_dataloader/val_dataloader/test_dataloader, plugin_dir -> '
            'custom_imports, runner/total_epochs -> train_cfg, '
            'optimizer/optimizer_config -> optim_wrapper. The guide is '
            'https://mmengine.readthedocs.io/en/latest/migration/runner.html')


def check_loaders(cfg: Any, mode: str | None) -> None:
    """The loaders that ``mode`` runs on must be there."""
    for name in ('train_dataloader', 'val_dataloader', 'test_dataloader'):
        loader = cfg.get(name)
        if isinstance(loader, (bool, int, float, str)):
            raise ConfigError(f'{name} must be a dict such as '
                              f'dict(batch_size=..., dataset=...), got '
                              f'{loader!r}')
    wanted = mode == 'train' or cfg.get('train_cfg') is not None
    if wanted and cfg.get('train_dataloader') is None:
        raise ConfigError(
            'the config has no train_dataloader, so there is nothing to '
            'train on. Add train_dataloader = dict(batch_size=..., '
            'dataset=dict(...)), or inherit one through _base_')
    if mode == 'test' and cfg.get('test_dataloader') is None:
        raise ConfigError(
            'the config has no test_dataloader, so there is nothing to test '
            'on. Add test_dataloader, test_cfg and test_evaluator')


def check_device(cfg: Any) -> None:
    """Settings that need an accelerator, where there is none."""
    from mmengine.device import get_device

    from mmturbox.passes.base import type_is
    if get_device() != 'cpu':
        return
    if type_is(cfg.get('optim_wrapper'), 'AmpOptimWrapper'):
        raise ConfigError(
            'mixed precision (--amp, AmpOptimWrapper) needs an accelerator '
            'and mmengine finds none here. Leave --amp out: training on the '
            'CPU is done in float32')
    if cfg.get('sync_bn') and cfg.get('launcher', 'none') != 'none':
        raise ConfigError(
            f'sync_bn={cfg.get("sync_bn")!r} needs an accelerator: the '
            'SyncBatchNorm of torch and mmcv refuse CPU tensors. Leave '
            '--sync_bn out')


def check_work_dir(cfg: Any) -> None:
    """Logs and checkpoints must be writable before hours are spent."""
    folder = cfg.get('work_dir')
    if folder is None:
        return
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f'the work dir {folder!r} cannot be written: {error}. Give '
            'another with --work-dir') from error


def foreign_projects() -> str | None:
    """The folder of a regular package ``projects`` that hides ours.

    ``projects`` is a namespace package here and in MMDetection3D, so that
    several checkouts merge. A checkout with a ``projects/__init__.py`` (some
    model repositories have one) hides all others, whatever the order of
    ``sys.path``.
    """
    spec = importlib.util.find_spec('projects')
    if spec is None or spec.origin is None:
        return None
    return os.path.dirname(spec.origin)
