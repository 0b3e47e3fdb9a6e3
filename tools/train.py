"""Train the model of a config; the arguments are OpenMMLab's.

    python tools/train.py CONFIG [--work-dir DIR] [--resume [CKPT]] [--amp] ...

A config with ``custom_imports = dict(imports=['mmturbox.enable'])`` trains
accelerated; ``MMTURBOX=0`` in the environment trains the same file stock.
"""

import argparse
from typing import Any

from mmturbox.errors import ConfigError
from mmturbox.system.cli import (
    add_common_arguments,
    build_runner,
    check_local_file,
    load_config,
    run_program,
)
from mmturbox.system.preflight import preflight


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description='Train a model')
    parser.add_argument('config', help='the config file')
    parser.add_argument(
        '--amp',
        action='store_true',
        help='mixed precision (needs an accelerator)')
    parser.add_argument(
        '--sync_bn',
        choices=['none', 'torch', 'mmcv'],
        default='none',
        help='convert BatchNorm layers to this SyncBatchNorm')
    parser.add_argument(
        '--auto-scale-lr',
        action='store_true',
        help='scale the learning rate to the real batch size')
    parser.add_argument(
        '--resume',
        nargs='?',
        const='auto',
        metavar='CKPT',
        help='resume from CKPT, or without a value from the newest '
        'checkpoint of the work dir')
    add_common_arguments(parser)
    return parser.parse_args()


def enable_amp(cfg: Any) -> None:
    """Make the plain optimizer wrapper of ``cfg`` the mixed-precision one."""
    wrapper = cfg.get('optim_wrapper') or {}
    scope, _, kind = str(wrapper.get('type', 'OptimWrapper')).rpartition('.')
    if kind == 'AmpOptimWrapper':
        return
    if kind != 'OptimWrapper':
        raise ConfigError(
            '--amp turns the optimizer wrapper OptimWrapper into '
            f'AmpOptimWrapper, but this config has {wrapper["type"]!r}')
    prefix = f'{scope}.' if scope else ''
    cfg.optim_wrapper.type = f'{prefix}AmpOptimWrapper'
    cfg.optim_wrapper.loss_scale = 'dynamic'


def merge_args(cfg: Any, args: argparse.Namespace) -> None:
    """Write what the command line asks for into ``cfg``."""
    if args.amp:
        enable_amp(cfg)
    if args.sync_bn != 'none':
        cfg.sync_bn = args.sync_bn
    if args.auto_scale_lr:
        scale = cfg.get('auto_scale_lr') or {}
        if 'base_batch_size' not in scale:
            raise ConfigError(
                '--auto-scale-lr needs auto_scale_lr = dict(enable=False, '
                'base_batch_size=N) in the config')
        cfg.auto_scale_lr.enable = True
    if args.resume == 'auto':
        cfg.resume, cfg.load_from = True, None
    elif args.resume is not None:
        check_local_file(args.resume, 'checkpoint to resume from')
        cfg.resume, cfg.load_from = True, args.resume


def main() -> None:
    args = parse_args()
    cfg = load_config(args)
    merge_args(cfg, args)
    preflight(cfg, 'train')
    build_runner(cfg).train()


if __name__ == '__main__':
    run_program(main, 'tools/train.py')
