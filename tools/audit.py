"""Count host syncs, launches and uploads of an iteration, stock and turbo.

    python tools/audit.py CONFIG [--top N] [--json FILE] [--cfg-options ...]
"""

from mmturbox.analysis import cli
from mmturbox.system.cli import run_program


def main() -> None:
    parser = cli.parser(__doc__.splitlines()[0])
    parser.add_argument(
        '--top', type=int, default=12, help='lines to show of each kind')
    parser.add_argument(
        '--warmup', type=int, default=2, help='iterations before the count')
    args = parser.parse_args()
    cfg, work_dir = cli.load(args, 'audit')
    from mmturbox.analysis.audit import audit, print_audit
    from mmturbox.analysis.report import write_json
    from mmturbox.analysis.stepping import pair
    with pair(cfg, work_dir, in_process=True) as drivers:
        result = audit(drivers, args.warmup)
    print_audit(result, args.top)
    if args.json:
        write_json(
            args.json,
            result.rows,
            boxes=list(result.boxes),
            lines=result.lines())


if __name__ == '__main__':
    run_program(main, 'tools/audit.py')
