"""``create_data.py update-infos``: old nuScenes info files to new ones."""

import argparse

HELP = 'nuScenes info files of mmdet3d before 1.1 to the layout it has now'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from mmturbox.datasets.nuscenes.old_infos import BOXES
    parser.add_argument(
        '--infos',
        required=True,
        nargs='+',
        help='files with "infos" and "metadata"; they stay as they are')
    parser.add_argument(
        '--out', required=True, help='folder for files of the same names')
    parser.add_argument(
        '--boxes',
        choices=BOXES,
        help='order of the sizes, where the file does not show it: wlh was '
        'made before mmdet3d 1.0')


def run(args: argparse.Namespace) -> None:
    from mmturbox.datasets.nuscenes.old_infos import update_infos
    for path in args.infos:
        made = update_infos(path, args.out, args.boxes)
        print(f'{made}: made of {path}, without cam_instances (2D boxes for '
              'monocular detectors; those take the tables: create_data.py '
              'nuscenes)')
