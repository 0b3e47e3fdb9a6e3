"""Draw samples of a data set, to see that sensors, labels and map agree.

    python tools/browse_dataset.py INFOS.pkl [--root DIR] [--out DIR]
    python tools/browse_dataset.py CONFIG.py [--split val]
    python tools/browse_dataset.py SCENARIO_DIR

One PNG a sample: the cameras with 3D boxes and map, bird's eye views with
points, boxes, ways and futures. What is drawn how: mmturbox/datasets/browse.
"""

import argparse

from mmturbox.datasets.browse import command
from mmturbox.system.cli import run_program


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    command.add_arguments(parser)
    command.run(parser.parse_args())


if __name__ == '__main__':
    run_program(main, 'tools/browse_dataset.py')
