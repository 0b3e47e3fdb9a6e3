"""Make data sets and their info files.

    python tools/create_data.py synthetic-nuscenes --out DIR

writes a synthetic LiDAR set in the official nuScenes format together with
mmdet3d 1.x info files. Running it again does nothing.
"""

import argparse
import sys
import time


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = parser.add_subparsers(dest='kind', required=True)
    make = kinds.add_parser(
        'synthetic-nuscenes',
        help='LiDAR scenes with moving boxes of the ten detection classes',
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    make.add_argument('--out', required=True, help='data root to create')
    make.add_argument(
        '--scenes', type=int, default=4, help='2 to 10, a fifth to validate')
    make.add_argument(
        '--frames', type=int, default=10, help='key frames a scene, at 2 Hz')
    make.add_argument('--seed', type=int, default=0)
    make.add_argument('--workers', type=int, default=1, help='processes')
    make.add_argument(
        '--overwrite',
        action='store_true',
        help='replace a synthetic set that has other parameters')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    from rich.progress import Progress

    from mmturbox.datasets.synthetic import create_synthetic_nuscenes
    begin = time.time()
    try:
        with Progress(transient=True) as bar:
            task = bar.add_task('LiDAR frames', total=None)
            written = create_synthetic_nuscenes(
                args.out,
                num_scenes=args.scenes,
                num_frames=args.frames,
                seed=args.seed,
                workers=args.workers,
                overwrite=args.overwrite,
                progress=lambda done, total: bar.update(
                    task, completed=done, total=total))
    except (ValueError, OSError) as error:
        sys.exit(f'error: {error}')
    if written:
        print(f'{args.out}: {args.scenes} scenes of {args.frames} key frames '
              f'in {time.time() - begin:.1f} s')
    else:
        print(f'{args.out}: already there, nothing to do')


if __name__ == '__main__':
    main()
