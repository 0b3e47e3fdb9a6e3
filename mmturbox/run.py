"""Run a script with the compatibility layer: ``python -m mmturbox.run``.

``python -m mmturbox.run SCRIPT ARGS...`` is ``python SCRIPT ARGS...`` with
``mmcv._ext`` provided, stock mmengine able to run here, and the launcher's
rank variables complete, before the first line of SCRIPT. It is for launchers
that import ``mmcv.ops`` before they read a config, such as mmdet3d's own
``tools/train.py``. It accelerates nothing: that is the config's
``custom_imports``.
"""

import os
import runpy
import sys


def main(argv: list[str]) -> None:
    """Run ``argv[0]`` as ``__main__`` with ``argv`` as ``sys.argv``."""
    if not argv or argv[0] in ('-h', '--help'):
        sys.exit(f'{__doc__}\nusage: python -m mmturbox.run SCRIPT ARGS...')
    script = argv[0]
    if not os.path.isfile(script):
        sys.exit(f'mmturbox.run: there is no script {script!r}')
    from mmturbox.system import compat, launch
    compat.install()
    launch.export_rank_variables(_launcher(argv))
    sys.argv[:] = argv
    # `python SCRIPT` puts the script's folder first, `python -m` the working
    # folder, and `python -P` none.
    if not getattr(sys.flags, 'safe_path', False):
        sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name='__main__')


def _launcher(argv: list[str]) -> str:
    """The value of the script's ``--launcher``, if it takes OpenMMLab's."""
    for i, arg in enumerate(argv):
        if arg == '--launcher' and i + 1 < len(argv):
            return argv[i + 1]
        if arg.startswith('--launcher='):
            return arg.partition('=')[2]
    return 'none'


if __name__ == '__main__':
    main(sys.argv[1:])
