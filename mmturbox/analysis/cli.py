"""What the measuring programs have in common on the command line."""

import argparse
import os
from typing import Any

from mmturbox.system.cli import add_common_arguments, load_config


def parser(description: str) -> argparse.ArgumentParser:
    """CONFIG, ``--json``, and OpenMMLab's ``--cfg-options --work-dir``."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument('config', help='the config file')
    result.add_argument(
        '--json', metavar='FILE', help='write the rows into this file')
    add_common_arguments(result)
    return result


def load(args: argparse.Namespace, tool: str) -> tuple[Any, str]:
    """The config, with quiet logging, and the folder of this tool's logs."""
    cfg = load_config(args)
    cfg.log_level = 'ERROR'
    return cfg, os.path.join(cfg.work_dir, tool)
