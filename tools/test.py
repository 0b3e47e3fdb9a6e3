"""Test a checkpoint with the model of a config, as OpenMMLab's script does.

    python tools/test.py CONFIG CKPT [--work-dir DIR] [--show-dir DIR] ...
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

TASKS = ('mono_det', 'multi-view_det', 'lidar_det', 'lidar_seg',
         'multi-modality_det')


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description='Test a model')
    parser.add_argument('config', help='the config file')
    parser.add_argument('checkpoint', help='the checkpoint file')
    parser.add_argument(
        '--show', action='store_true', help='show the predictions')
    parser.add_argument(
        '--show-dir', help='save painted predictions in this folder')
    parser.add_argument(
        '--score-thr',
        type=float,
        default=0.1,
        help='boxes below this score are not painted')
    parser.add_argument(
        '--task',
        choices=TASKS,
        help='what to paint; needed with --show and --show-dir by the '
        'visualization hook of mmdet3d')
    parser.add_argument(
        '--wait-time',
        type=float,
        default=2,
        help='seconds between two pictures of --show')
    parser.add_argument(
        '--tta', action='store_true', help='test-time augmentation')
    add_common_arguments(parser)
    return parser.parse_args()


def enable_painting(cfg: Any, args: argparse.Namespace) -> None:
    """Switch the visualization hook of ``cfg`` on."""
    hook = (cfg.get('default_hooks') or {}).get('visualization')
    if hook is None:
        raise ConfigError(
            '--show and --show-dir need a visualization hook: default_hooks '
            "= dict(visualization=dict(type='Det3DVisualizationHook'))")
    hook.draw = True
    if args.show:
        hook.show, hook.wait_time = True, args.wait_time
    if args.show_dir:
        hook.test_out_dir = args.show_dir
    if str(hook.type).rpartition('.')[2] == 'Det3DVisualizationHook':
        if args.task is None:
            raise ConfigError('--show and --show-dir need --task, one of '
                              f'{", ".join(TASKS)}')
        hook.vis_task, hook.score_thr = args.task, args.score_thr


def enable_tta(cfg: Any) -> None:
    """Wrap the model and exchange the pipeline for test-time augmentation."""
    from mmengine.config import ConfigDict
    for key in ('tta_model', 'tta_pipeline'):
        if key not in cfg:
            raise ConfigError(f'--tta needs {key} in the config')
    cfg.test_dataloader.dataset.pipeline = cfg.tta_pipeline
    cfg.model = ConfigDict(**cfg.tta_model, module=cfg.model)


def main() -> None:
    args = parse_args()
    cfg = load_config(args)
    check_local_file(args.checkpoint, 'checkpoint')
    cfg.load_from = args.checkpoint
    if args.show or args.show_dir:
        enable_painting(cfg, args)
    preflight(cfg, 'test')
    if args.tta:
        enable_tta(cfg)
    build_runner(cfg).test()


if __name__ == '__main__':
    run_program(main, 'tools/test.py')
