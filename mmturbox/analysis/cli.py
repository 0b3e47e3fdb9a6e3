"""What the measuring programs have in common on the command line."""

import argparse
import os
import signal
import sys
from typing import Any

from mmturbox.errors import ConfigError
from mmturbox.system.cli import add_common_arguments, load_config
from mmturbox.system.preflight import preflight


def parser(description: str) -> argparse.ArgumentParser:
    """CONFIG, ``--json``, and OpenMMLab's ``--cfg-options --work-dir``."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument('config', help='the config file')
    result.add_argument(
        '--json', metavar='FILE', help='write the rows into this file')
    add_common_arguments(result)
    return result


def load(args: argparse.Namespace,
         tool: str,
         mode: str = 'train') -> tuple[Any, str]:
    """The config, checked and with quiet logging, and the tool's folder.

    Raises:
        ConfigError: the config cannot be run, or turbo is switched off.
    """
    if os.environ.get('MMTURBOX') == '0':
        raise ConfigError('MMTURBOX=0 is set, which leaves nothing to compare '
                          'with stock; unset it')
    # As on Ctrl-C, held data workers must be let go.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    cfg = load_config(args)
    preflight(cfg, mode)
    cfg.log_level = 'ERROR'
    return cfg, os.path.join(cfg.work_dir, tool)
