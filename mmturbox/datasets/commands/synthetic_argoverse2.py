"""``create_data.py synthetic-argoverse2``: make the synthetic scenarios."""

import argparse
import time

from mmturbox.datasets.commands import progress_bar
from mmturbox.datasets.shards import default_workers

HELP = ('motion-forecasting scenarios of the made-up city in the official '
        'Argoverse 2 format, with info files')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--out', required=True, help='data root to create')
    parser.add_argument(
        '--scenarios',
        type=int,
        default=20,
        help='at least 3, a fifth to validate, a tenth to test')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument(
        '--workers',
        type=int,
        default=default_workers(),
        help='processes')
    parser.add_argument(
        '--overwrite',
        action='store_true',
        help='replace a synthetic set that has other parameters, and all '
        'that was put into it')


def run(args: argparse.Namespace) -> None:
    from mmturbox.datasets.synthetic.argoverse2 import (
        create_synthetic_argoverse2,
    )
    begin = time.time()
    with progress_bar('scenarios') as progress:
        written = create_synthetic_argoverse2(
            args.out,
            num_scenarios=args.scenarios,
            seed=args.seed,
            workers=args.workers,
            overwrite=args.overwrite,
            progress=progress)
    if written:
        print(f'{args.out}: {args.scenarios} scenarios in '
              f'{time.time() - begin:.1f} s')
    else:
        print(f'{args.out}: already there, nothing to do')
