"""Compare finished runs: loss curves, convergence, throughput.

    python tools/compare_runs.py RUN_A RUN_B ... [--json FILE] [--plot FILE]

RUN_* are work dirs; the first one is what the others are compared with. How
convergence and agreement are defined: mmturbox/analysis/convergence.py.
"""

import argparse
import sys


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('runs', nargs='+', help='work dirs, two or more')
    parser.add_argument('--key', default='loss', help='the logged value')
    parser.add_argument('--json', metavar='FILE', help='write the rows here')
    parser.add_argument(
        '--plot', metavar='FILE', help='draw the curves here (PNG)')
    args = parser.parse_args()
    if len(args.runs) < 2:
        parser.error('give two runs or more')
    return args


def main() -> None:
    args = parse_args()
    from mmturbox.analysis import convergence, plots, report
    try:
        runs = [convergence.read_run(path, args.key) for path in args.runs]
    except (FileNotFoundError, ValueError) as error:
        sys.exit(f'tools/compare_runs.py: {error}')
    convergence.unique_names(runs, args.runs)
    agree = [convergence.trends_agree(runs[0], run) for run in runs[1:]]
    report.print_table(
        f'{args.key} of {len(runs)} runs',
        ('run', 'first', 'plateau', 'converged at', 'after', 'trend'),
        [(run.name, f'{run.smoothed[0]:.4g}', f'{run.plateau:.4g}',
          '-' if run.knee is None else f'step {run.knee}',
          '-' if not run.knee_seconds else f'{run.knee_seconds:.1f} s',
          ('reference', *('agrees' if a else 'PARTS' for a in agree))[index])
         for index, run in enumerate(runs)])
    rows = convergence.compare(runs)
    report.print_rows(rows, f'stock: {runs[0].name}, turbo: the other run(s)')
    if args.json:
        report.write_json(
            args.json,
            rows,
            trends_agree=all(agree),
            runs=[
                dict(
                    name=run.name,
                    converged_at=run.knee,
                    seconds=run.knee_seconds,
                    plateau=run.plateau,
                    throughput=run.throughput) for run in runs
            ])
    if args.plot:
        plots.curves(runs, args.plot)


if __name__ == '__main__':
    main()
