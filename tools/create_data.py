"""Make data sets and their info files.

    python tools/create_data.py synthetic-nuscenes --out DIR
    python tools/create_data.py COMMAND --help

Running a command again does nothing that is done already.
"""

import argparse
import importlib
import sys

COMMANDS = ('argoverse2', 'nuscenes', 'synthetic-argoverse2',
            'synthetic-nuscenes', 'update-infos')


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest='command', required=True)
    for name in COMMANDS:
        module = importlib.import_module(
            f'mmturbox.datasets.commands.{name.replace("-", "_")}')
        command = commands.add_parser(
            name,
            help=module.HELP,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    try:
        args.run(args)
    except (ValueError, OSError) as error:
        sys.exit(f'error: {error}')
    except KeyboardInterrupt:
        print('stopped; run the same command again to go on', file=sys.stderr)
        sys.exit(130)


if __name__ == '__main__':
    main()
