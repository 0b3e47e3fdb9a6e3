"""What ``tools/browse_dataset.py`` does: which pictures, and where to."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..files import complete_file
from ..info_check import DataError, check_info_file

# Drawn if nothing else is asked for, spread over the file.
_FEW = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from mmengine.config import DictAction
    parser.add_argument(
        'source',
        help='info file (.pkl) of a nuScenes-like or Argoverse 2 set, config '
        '(.py) of which the info file and data root of a data loader are '
        'taken (records are drawn as they are, no pipeline runs), or folder '
        'of an Argoverse 2 scenario')
    parser.add_argument(
        '--root', help="data root, the info file's folder if not given")
    parser.add_argument(
        '--out',
        '--output-dir',
        help='folder for the pictures, work_dirs/browse/NAME if not given')
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        '--samples',
        nargs='+',
        metavar='S',
        help='numbers in the file, or tokens')
    which.add_argument(
        '--every',
        type=int,
        metavar='N',
        help=f'each Nth sample; {_FEW} over the whole file if not given')
    parser.add_argument(
        '--split',
        choices=('train', 'val', 'test'),
        default='train',
        help="which of a config's data loaders")
    parser.add_argument(
        '--range',
        type=float,
        default=50.,
        metavar='M',
        help="metres from the middle of the bird's eye view to its edge")
    parser.add_argument(
        '--sweeps', type=int, default=0, help='past scans to draw, too')
    parser.add_argument(
        '--camera-points',
        action='store_true',
        help='LiDAR points in the images, coloured by depth')
    parser.add_argument('--no-map', action='store_true')
    parser.add_argument('--no-occupancy', action='store_true')
    parser.add_argument(
        '--camera-width',
        type=int,
        default=800,
        metavar='PIXELS',
        help="of a camera's panel; a picture is three wide")
    parser.add_argument(
        '--allow-missing',
        action='store_true',
        help='draw without image and LiDAR files that do not exist')
    parser.add_argument('--cfg-options', nargs='+', action=DictAction)
    parser.add_argument(
        '--not-show',
        action='store_true',
        help="taken as mmdet3d's program takes it; no window is ever opened")


def run(args: argparse.Namespace) -> list[Path]:
    """Draw and write.

    Returns:
        The pictures.

    Raises:
        DataError: says what cannot be drawn and why.
    """
    if args.every is not None and args.every < 1:
        raise DataError(f'--every must be at least 1, got {args.every}')
    if args.range <= 0 or args.camera_width < 32 or args.sweeps < 0:
        raise DataError(
            '--range must be above 0, --camera-width at least 32 and '
            f'--sweeps at least 0, got {args.range}, {args.camera_width}, '
            f'{args.sweeps}')
    source = Path(args.source)
    if source.is_dir() or source.suffix == '.parquet':
        return _scenarios([_scenario_of(source)], _out(args, source.name))
    root, prefix, info = args.root, {}, source
    if source.suffix == '.py':
        info, config_root, prefix = info_of_config(args)
        root = root or config_root
    check_info_file(info)
    root = Path(root) if root else info.parent
    out = _out(args, info.stem)
    infos, draw = _drawer(info, root, prefix, args)
    chosen = choose(infos, args.samples, args.every)
    return _write_all(out, [(_name(infos[i], i), i) for i in chosen], draw)


def info_of_config(
        args: argparse.Namespace) -> tuple[Path, Path, dict[str, str]]:
    """Info file, data root and folders of the channels in a config."""
    from mmturbox.system.cli import load_config
    cfg = load_config(
        argparse.Namespace(
            config=args.source,
            cfg_options=args.cfg_options,
            work_dir=None,
            launcher='none',
            local_rank=None))
    where = f'{args.split}_dataloader.dataset'
    node: Any = (cfg.get(f'{args.split}_dataloader') or {}).get('dataset')
    # Wrappers hold one data set or several, of which the first is drawn.
    while isinstance(node, dict) and 'ann_file' not in node:
        node = node.get('dataset') or (node.get('datasets') or [None])[0]
    if node is None or not node['ann_file']:
        raise DataError(f'{args.source}: {where} names no ann_file')
    root = Path(node.get('data_root') or '')
    folders = dict(node.get('data_prefix') or {})
    if 'pts' in folders:
        folders['LIDAR_TOP'] = folders['pts']
    return root / node['ann_file'], root, folders


def choose(infos: list[dict], samples: list[str] | None,
           every: int | None) -> list[int]:
    """Numbers of the records to draw.

    Args:
        infos: the records.
        samples: numbers or tokens.
        every: step.

    Raises:
        DataError: for a number or token that is not in the file.
    """
    if samples is None:
        if every is None:
            few = min(_FEW, len(infos))
            return np.linspace(0, len(infos) - 1, few).astype(int).tolist()
        return list(range(0, len(infos), every))
    tokens = {_token(record): i for i, record in enumerate(infos)}
    chosen = []
    for name in samples:
        index = tokens.get(name)
        if index is None and name.isdigit() and int(name) < len(infos):
            index = int(name)
        if index is None:
            raise DataError(f'there is no sample {name!r}: the file has '
                            f'{len(infos)}, give numbers from 0 or tokens')
        chosen.append(index)
    return chosen


def _drawer(info: Path, root: Path, prefix: dict[str, str],
            args: argparse.Namespace) -> tuple[list[dict], Callable]:
    """Records of an info file and what draws the one of a number."""
    from .samples import InfoFile
    from .sheet import Options, SampleSheets
    infos = InfoFile(info, root, prefix)
    if infos.metainfo.get('task') == 'motion_forecasting':
        from .scenario_sheet import draw_scenario
        return infos.records, lambda i: draw_scenario(
            root / infos.records[i]['scenario_path'])
    sheets = SampleSheets(
        infos,
        Options(
            camera_width=args.camera_width,
            radius=args.range,
            sweeps=args.sweeps,
            with_map=not args.no_map,
            with_occupancy=not args.no_occupancy,
            camera_points=args.camera_points,
            allow_missing=args.allow_missing,
            note=print))
    return infos.records, sheets.draw


def _scenarios(paths: list[Path], out: Path) -> list[Path]:
    from .scenario_sheet import draw_scenario
    return _write_all(out, [(p.name, p) for p in paths], draw_scenario)


def _scenario_of(path: Path) -> Path:
    """The folder or parquet file of one scenario.

    Raises:
        DataError: for a folder that is none; names the info files in it.
    """
    if path.is_file() or list(path.glob('scenario_*.parquet')):
        return path
    infos = sorted(p.name for p in path.glob('*.pkl')) if path.is_dir() else []
    if infos:
        raise DataError(f'{path} is a folder; give one of the info files in '
                        f'it: {", ".join(infos)}')
    if not path.exists():
        raise DataError(f'{path} does not exist')
    raise DataError(
        f'{path} has no info file (*.pkl) and is no Argoverse 2 scenario '
        '(scenario_<id>.parquet); make info files with '
        'tools/create_data.py nuscenes or argoverse2')


def _out(args: argparse.Namespace, name: str) -> Path:
    return Path(args.out) if args.out else Path('work_dirs', 'browse', name)


def _token(record: dict) -> str:
    names = ('token', 'scenario_id', 'sample_idx')
    return str(next((record[n] for n in names if n in record), ''))


def _name(record: dict, index: int) -> str:
    return f'{index:06d}-{_token(record)[:8]}'


def _write_all(out: Path, jobs: list[tuple[str, Any]],
               draw: Callable[[Any], np.ndarray]) -> list[Path]:
    """Write ``{name}.png`` of each job."""
    import cv2
    from rich.progress import track
    paths = []
    for name, what in track(jobs, 'drawing', transient=True):
        # A little compression; the default takes as long as all drawing.
        data = cv2.imencode('.png', draw(what),
                            [cv2.IMWRITE_PNG_COMPRESSION, 2])[1]
        path = out / f'{name}.png'
        with complete_file(path, needed=len(data)) as file:
            file.write(data)
        paths.append(path)
    print(f'{len(paths)} pictures in {out}')
    return paths
