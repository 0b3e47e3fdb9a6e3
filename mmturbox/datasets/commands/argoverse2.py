"""``create_data.py argoverse2``: info files of a real or synthetic set."""

import argparse
import time

HELP = 'info files of an Argoverse 2 motion-forecasting set'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from mmturbox.datasets.shards import default_workers
    parser.add_argument(
        '--root', required=True, help='data root with train, val, test')
    parser.add_argument(
        '--splits',
        nargs='+',
        metavar='SPLIT',
        help='train, val, test; all that are there if not given')
    parser.add_argument(
        '--workers', type=int, default=default_workers(), help='processes')
    parser.add_argument(
        '--out', help='folder for the info files, the data root if not given')
    parser.add_argument(
        '--prefix', default='argoverse2', help='of the files\' names')
    parser.add_argument(
        '--overwrite',
        action='store_true',
        help='replace files that were made from other scenarios')


def run(args: argparse.Namespace) -> None:
    from mmturbox.datasets.argoverse2 import write_infos
    from mmturbox.datasets.commands import progress_bar
    begin = time.time()
    with progress_bar('scenarios') as progress:
        paths = write_infos(
            args.root,
            splits=args.splits,
            out=args.out,
            prefix=args.prefix,
            workers=args.workers,
            overwrite=args.overwrite,
            progress=progress)
    for path in paths:
        print(path)
    print(f'{len(paths)} files in {time.time() - begin:.1f} s')
