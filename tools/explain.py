"""Show what mmturbox would change in a config, and train nothing.

    python tools/explain.py CONFIG [--cfg-options k=v ...] [--json FILE]
"""

import argparse
import json
import sys

from mmengine.config import Config, DictAction

from mmturbox.passes.driver import make_plan
from mmturbox.system import compat


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config file')
    parser.add_argument('--cfg-options', nargs='+', action=DictAction)
    parser.add_argument('--json', metavar='FILE', help='write the plan here')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    compat.install()
    cfg = Config.fromfile(args.config)
    if args.cfg_options:
        cfg.merge_from_dict(args.cfg_options)
    plan = make_plan(cfg)
    print(plan.table())
    if args.json:
        with open(args.json, 'w') as file:
            json.dump(
                dict(command=' '.join(sys.argv), **plan.to_dict()),
                file,
                indent=1)


if __name__ == '__main__':
    main()
