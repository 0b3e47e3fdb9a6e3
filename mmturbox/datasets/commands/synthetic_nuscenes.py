"""``create_data.py synthetic-nuscenes``: make the synthetic set."""

import argparse
import time

from mmturbox.datasets.commands import progress_bar
from mmturbox.datasets.shards import default_workers

HELP = 'a made-up city in the official nuScenes format, with info files'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--out', required=True, help='data root to create')
    parser.add_argument(
        '--scenes', type=int, default=4, help='2 to 10, a fifth to validate')
    parser.add_argument(
        '--frames', type=int, default=10, help='key frames a scene, at 2 Hz')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument(
        '--workers',
        type=int,
        default=default_workers(),
        help='processes, one a scene at most')
    parser.add_argument(
        '--image-size',
        type=int,
        nargs=2,
        default=(1600, 900),
        metavar=('W', 'H'),
        help='of the six cameras; the calibration follows')
    parser.add_argument(
        '--no-cameras', action='store_true', help='LiDAR, map, CAN bus only')
    parser.add_argument(
        '--camera-sweeps',
        action='store_true',
        help='images between key frames too, 12 a second')
    parser.add_argument(
        '--occupancy',
        action='store_true',
        help="voxel labels of key frames in SurroundOcc's format")
    parser.add_argument(
        '--overwrite',
        action='store_true',
        help='replace a synthetic set that has other parameters, and all '
        'that was put into it')


def run(args: argparse.Namespace) -> None:
    from mmturbox.datasets.synthetic import create_synthetic_nuscenes
    from mmturbox.datasets.synthetic.scene import Contents
    contents = Contents(
        image_size=None if args.no_cameras else tuple(args.image_size),
        camera_sweeps=args.camera_sweeps,
        occupancy=args.occupancy)
    begin = time.time()
    with progress_bar('LiDAR frames') as progress:
        written = create_synthetic_nuscenes(
            args.out,
            num_scenes=args.scenes,
            num_frames=args.frames,
            seed=args.seed,
            workers=args.workers,
            overwrite=args.overwrite,
            contents=contents,
            progress=progress)
    if written:
        print(f'{args.out}: {args.scenes} scenes of {args.frames} key frames '
              f'in {time.time() - begin:.1f} s')
    else:
        print(f'{args.out}: already there, nothing to do')
