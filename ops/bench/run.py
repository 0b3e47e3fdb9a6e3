"""Time every operator against the stock way, interleaved in one process.

    python ops/bench/run.py --json FILE [--only attention] [--threads 2]

A row is one operator at the shape of a full-size model: medians of stock
and turbo in turn, their ratio, and the ratio to reach. Cases are in
``bench_<family>.py``. On a machine with a GPU, ``--device cuda`` times the
families that take a device.
"""

import argparse
import importlib
import inspect
import os
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
# The repository, for a checkout that is not installed; the harness, for cases.
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--json', type=Path, help='write the rows here')
    parser.add_argument('--only', nargs='+', default=[],
                        help='families or parts of row names')
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--seconds', type=float, default=2.0,
                        help='least time a row is measured for')
    parser.add_argument('--device', default='cpu', choices=['cpu', 'cuda'])
    return parser.parse_args()


def _cases(device: str, only: list[str]):
    """(family, case) of every case that is asked for."""
    for path in sorted(HERE.glob('bench_*.py')):
        family = path.stem.removeprefix('bench_')
        module = importlib.import_module(path.stem)
        takes_device = 'device' in inspect.signature(module.cases).parameters
        if device != 'cpu' and not takes_device:
            continue
        for case in module.cases(**({'device': device} if takes_device else
                                    {})):
            if not only or family in only or any(
                    part in case.name for part in only):
                yield family, case


def _show(row, target: float | None) -> None:
    missed = target is not None and row.ratio < target
    print(
        f'{row.name:<58} {row.stock:>10.3f} {row.turbo:>10.3f} '
        f'{row.unit:<3} {row.ratio:>7.2f}x'
        f"{f'  of {target:g}x' if target else ''}"
        f"{'  MISSED' if missed else ''}",
        flush=True)


def main() -> None:
    args = _arguments()
    os.environ.setdefault('OMP_NUM_THREADS', str(args.threads))
    import torch
    from harness import Skipped, measure

    from mmturbox.analysis.report import row, write_json
    from mmturbox.ops import native
    torch.set_num_threads(args.threads)
    if not native(args.device):
        sys.exit(f'bench: the native operators for {args.device} are not '
                 'loaded; references would be timed. See `python -m '
                 'mmturbox.info`.')
    wait = torch.cuda.synchronize if args.device == 'cuda' else lambda: None
    warnings.filterwarnings('ignore')
    rows, skipped, targets = [], [], {}
    for _, case in _cases(args.device, args.only):
        if isinstance(case, Skipped):
            print(f'{case.name:<58} not measured: {case.reason}')
            skipped.append(dict(name=case.name, reason=case.reason))
            continue
        stock, turbo = measure(case, wait, args.seconds)
        rows.append(row(case.name, stock, turbo, case.unit))
        if case.target is not None:
            targets[case.name] = case.target
        _show(rows[-1], case.target)
    if args.json:
        write_json(
            args.json, rows, targets=targets, skipped=skipped,
            threads=args.threads)


if __name__ == '__main__':
    main()
