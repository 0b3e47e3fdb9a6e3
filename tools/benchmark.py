"""Time stock and turbo in one interleaved run, and count what a GPU feels.

    python tools/benchmark.py CONFIG [--json FILE] [--plot FILE]
    python tools/benchmark.py CONFIG --mode test [--checkpoint FILE]
"""

import argparse

from mmturbox.analysis import cli
from mmturbox.system.cli import check_local_file, run_program


def parse_args() -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0])
    parser.add_argument('--mode', choices=['train', 'test'], default='train')
    parser.add_argument(
        '--checkpoint', help='weights for --mode test (initial ones else)')
    parser.add_argument(
        '--rounds', type=int, default=3, help='stock-turbo-turbo-stock rounds')
    parser.add_argument(
        '--iters',
        type=int,
        default=4,
        help='timed iterations of a block; in --mode test, batches in all')
    parser.add_argument(
        '--warmup', type=int, default=3, help='iterations before the first')
    parser.add_argument(
        '--plot', metavar='FILE', help='draw the rows as a bar chart (PNG)')
    return parser.parse_args()


def train(cfg, work_dir: str, args: argparse.Namespace) -> tuple[list, dict]:
    from mmturbox.analysis import bench
    from mmturbox.analysis.stepping import pair
    with pair(cfg, work_dir) as drivers:
        timings = bench.time_runs(
            drivers, args.rounds, args.iters, args.warmup,
            lambda text: print(f'[benchmark] {text}', flush=True))
        rows, boxes = bench.training_rows(drivers, timings)
    shares = bench.shares(timings['stock'])
    print(f'[benchmark] stock waits for data in {shares["data"]:.0%} of the '
          f'time and steps in {shares["network"]:.0%}; counts are of an '
          f'iteration with {boxes} boxes')
    return rows, dict(stock_shares=shares, boxes=boxes)


def test(cfg, work_dir: str, args: argparse.Namespace) -> tuple[list, dict]:
    from mmturbox.analysis.inference import benchmark_test
    if args.checkpoint:
        check_local_file(args.checkpoint, 'checkpoint')
        cfg.load_from = args.checkpoint
    rows, extra = benchmark_test(cfg, work_dir, args.iters, args.warmup)
    answer = 'yes' if extra['same_detections'] else 'NO'
    print(f'[benchmark] same detections: {answer} (largest relative gap '
          f'{extra["detection_gap"]:.1e})')
    return rows, extra


def main() -> None:
    args = parse_args()
    cfg, work_dir = cli.load(args, 'benchmark', args.mode)
    rows, extra = (train if args.mode == 'train' else test)(cfg, work_dir,
                                                            args)
    from mmturbox.analysis.plots import bar_chart
    from mmturbox.analysis.report import print_rows, write_json
    print_rows(rows, f'{args.config}, {args.mode}')
    if args.json:
        write_json(args.json, rows, mode=args.mode, **extra)
    if args.plot:
        bar_chart(rows, args.plot, f'{args.config} ({args.mode})')


if __name__ == '__main__':
    run_program(main, 'tools/benchmark.py')
