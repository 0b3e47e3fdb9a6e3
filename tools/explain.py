"""Show what mmturbox would change in a config, and train nothing.

    python tools/explain.py CONFIG [--cfg-options k=v ...] [--json FILE]
"""

import argparse
import json
import sys

from mmturbox.system.cli import (
    add_common_arguments,
    load_config,
    run_program,
)
from mmturbox.system.preflight import check_generation, check_loaders


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config file')
    parser.add_argument('--json', metavar='FILE', help='write the plan here')
    add_common_arguments(parser)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    cfg = load_config(args)
    check_generation(cfg)
    check_loaders(cfg, None)
    from mmturbox.passes.driver import make_plan
    # One process plans for one; ranks are not started to look at a config.
    cfg.launcher = 'none'
    plan = make_plan(cfg)
    print(plan.table())
    if args.json:
        with open(args.json, 'w') as file:
            json.dump(
                dict(command=' '.join(sys.argv), **plan.to_dict()),
                file,
                indent=1)


if __name__ == '__main__':
    run_program(main, 'tools/explain.py')
