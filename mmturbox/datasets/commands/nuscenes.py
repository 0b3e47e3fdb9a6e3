"""``create_data.py nuscenes``: files that training on nuScenes reads."""

import argparse
import time

HELP = 'info files and ground-truth database of real nuScenes'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from mmturbox.datasets.shards import default_workers
    parser.add_argument(
        '--root',
        required=True,
        help='data root with maps, samples, sweeps, v1.0-*; CAN bus messages '
        'are read from its can_bus folder where there is one')
    parser.add_argument(
        '--version',
        required=True,
        help='v1.0-mini, v1.0-trainval or v1.0-test')
    parser.add_argument(
        '--out', help='where the files go, the root if not given')
    parser.add_argument(
        '--prefix', default='nuscenes', help="of the files' names")
    parser.add_argument(
        '--max-sweeps', type=int, default=10, help='past LiDAR frames listed')
    parser.add_argument(
        '--workers', type=int, default=default_workers(), help='processes')
    parser.add_argument(
        '--no-cam-instances',
        action='store_true',
        help='no 2D boxes of the cameras (for monocular detectors)')
    parser.add_argument(
        '--no-gt-database',
        action='store_true',
        help='no database of objects (for ObjectSample)')
    parser.add_argument(
        '--allow-missing',
        action='store_true',
        help='leave out samples that lack sensor files')
    parser.add_argument(
        '--overwrite',
        action='store_true',
        help='replace files that were made from something else')


def run(args: argparse.Namespace) -> None:
    from rich.progress import Progress

    from mmturbox.datasets.nuscenes import convert_nuscenes
    if args.max_sweeps < 0:
        raise ValueError(f'--max-sweeps is negative: {args.max_sweeps}')
    begin = time.time()
    with Progress() as bar:

        def stage(name: str):
            tasks = []

            def update(done: int, total: int) -> None:
                # A stage that is done already shows no bar.
                if not tasks:
                    tasks.append(bar.add_task(name, total=total))
                bar.update(tasks[0], completed=done)

            return update

        paths = convert_nuscenes(
            args.root,
            args.version,
            args.out,
            args.prefix,
            max_sweeps=args.max_sweeps,
            cam_instances=not args.no_cam_instances,
            gt_database=not args.no_gt_database,
            workers=args.workers,
            overwrite=args.overwrite,
            allow_missing=args.allow_missing,
            announce=lambda text: bar.console.print(
                text, markup=False, highlight=False, soft_wrap=True),
            progress=stage)
    print(f'{", ".join(map(str, paths))}: done in {time.time() - begin:.1f} s')
