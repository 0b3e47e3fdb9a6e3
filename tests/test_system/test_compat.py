"""Stock mmengine runs on this machine, and gets its functions back."""

import subprocess
import sys

import pytest

from mmturbox.system import compat
from mmturbox.system.patches import Patches


@pytest.fixture
def fresh():
    """compat not installed before, and as it was afterwards."""
    was_installed = compat._done is not None
    compat.undo()
    yield
    compat.undo()
    if was_installed:
        compat.install()


def seams():
    import mmengine.config.config as config
    import mmengine.dist.utils as dist_utils
    from mmengine import utils
    from mmengine.runner import Runner, checkpoint
    return [
        dist_utils._init_dist_pytorch, dist_utils._init_dist_mpi,
        dist_utils._init_dist_slurm, Runner.wrap_model,
        checkpoint.CheckpointLoader._schemes[''], config.is_installed,
        config.get_installed_path, utils.is_installed
    ]


def test_install_is_idempotent_logs_once_and_can_be_undone(fresh, capsys):
    stock = seams()
    done = compat.install()
    installed = seams()
    assert compat.install() == done
    assert seams() == installed
    assert capsys.readouterr().out.count('[mmturbox] compat:') == 1
    assert installed[4] is not stock[4]
    compat.undo()
    assert seams() == stock


def test_an_accelerator_keeps_stock_distributed_code(fresh, monkeypatch):
    monkeypatch.setattr('mmengine.device.get_device', lambda: 'cuda')
    stock = seams()
    compat.install()
    assert seams()[:4] == stock[:4]


def test_patches_of_dicts_and_attributes_are_undone_in_reverse():

    class Owner:
        value = 1

    table = {'': 'a'}
    patches = Patches()
    patches.replace(Owner, 'value', 2)
    patches.replace(Owner, 'value', 3)
    patches.replace(table, '', 'b')
    assert (Owner.value, table['']) == (3, 'b')
    patches.undo()
    assert (Owner.value, table['']) == (1, 'a')


def test_import_of_the_package_folder_is_light():
    code = ('import sys, mmturbox.system.compat, mmturbox.system.launch, '
            'mmturbox.system.preflight\n'
            'assert not {"torch", "mmengine", "mmcv"} & set(sys.modules)')
    subprocess.run([sys.executable, '-c', code], check=True, timeout=60)
