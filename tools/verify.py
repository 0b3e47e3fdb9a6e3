"""Check that turbo trains as stock does; exit status 1 where it does not.

    python tools/verify.py CONFIG [--iters N] [--bisect] [--json FILE]

Both run in lockstep from one state: batch, losses, gradients and the step
must agree as the plan's parity class says. A free run is judged beside it.
"""

import sys
import traceback
from dataclasses import asdict

from mmturbox.analysis import cli
from mmturbox.system.cli import run_program


def progress(text: str) -> None:
    print(f'[verify] {text}', flush=True)


def show(verdict, config: str) -> None:
    from mmturbox.analysis.report import print_table
    print_table(
        f'{config}: parity {verdict.parity}, passes '
        f'{", ".join(verdict.passes) or "none"}',
        ('what', 'gap', 'limit', 'agrees', 'worst at'),
        [(c.name, f'{c.gap:.1e}', f'{c.limit:.1e}',
          ('yes' if c.agrees else 'NO') if c.judged else 'not judged',
          c.where) for c in verdict.checks])


def find_culprits(cfg, work_dir: str, iters: int, free_runs: bool) -> list:
    from mmturbox.analysis.verify import bisect
    culprits = bisect(cfg, work_dir, iters, free_runs, progress)
    progress(f'broken by {", ".join(culprits)}'
             if culprits else 'broken without any pass')
    return culprits


def write(path: str, verdict, extra: dict) -> None:
    from mmturbox.analysis.report import Row, write_json
    rows = [
        Row(name, stock, turbo, stock / max(turbo, 1e-12), 'loss')
        for name, (stock, turbo) in verdict.terms.items()
    ]
    # JSON has no infinity.
    checks = [
        dict(asdict(c), gap=min(c.gap, 1e30), agree=c.agrees)
        for c in verdict.checks
    ]
    write_json(
        path,
        rows,
        agree=verdict.agrees,
        largest_gap=min(verdict.largest_gap, 1e30),
        parity=verdict.parity,
        passes=verdict.passes,
        checks=checks,
        curves=verdict.curves,
        **extra)


def main() -> None:
    parser = cli.parser(__doc__.splitlines()[0])
    parser.add_argument(
        '--iters', type=int, default=8, help='iterations to compare')
    parser.add_argument(
        '--bisect',
        action='store_true',
        help='where it fails, find the pass that breaks the run')
    args = parser.parse_args()
    cfg, work_dir = cli.load(args, 'verify')
    from mmturbox.analysis.verify import verify
    try:
        verdict = verify(cfg, work_dir, args.iters, progress)
    except Exception:
        if args.bisect:
            traceback.print_exc()
            find_culprits(cfg, work_dir, args.iters, False)
            sys.exit(1)
        raise
    show(verdict, args.config)
    extra = {}
    if args.bisect and not verdict.agrees:
        extra['culprits'] = find_culprits(cfg, work_dir, args.iters,
                                          verdict.lockstep_agrees)
    print(f'[verify] {"agrees" if verdict.agrees else "DOES NOT AGREE"}, '
          f'largest gap {verdict.largest_gap:.1e}')
    if args.json:
        write(args.json, verdict, extra)
    sys.exit(0 if verdict.agrees else 1)


if __name__ == '__main__':
    run_program(main, 'tools/verify.py')
