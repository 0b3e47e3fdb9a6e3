"""KF-C5: whole checkpoints load with torch 2.6 and later."""

import pickle

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner import checkpoint

from mmturbox.system import checkpoints
from mmturbox.system.patches import Patches


@pytest.fixture
def patched():
    patches = Patches()
    schemes = checkpoint.CheckpointLoader._schemes
    patches.replace(schemes, '', checkpoint.load_from_local)
    assert checkpoints.install(patches)
    yield
    patches.undo()


def save(path):
    buffer = HistoryBuffer()
    buffer.update(1.5)
    torch.save(
        dict(
            state_dict=dict(w=torch.ones(2)),
            message_hub=dict(loss=buffer),
            seen=np.arange(3)), path)


def test_checkpoint_with_history_and_numpy_loads(tmp_path, patched):
    path = str(tmp_path / 'epoch_1.pth')
    save(path)
    loaded = checkpoint.CheckpointLoader.load_checkpoint(path, 'cpu')
    assert loaded['message_hub']['loss'].current() == 1.5
    assert loaded['seen'].tolist() == [0, 1, 2]


def test_the_user_can_still_refuse_code_in_checkpoints(tmp_path, patched,
                                                       monkeypatch):
    path = str(tmp_path / 'epoch_1.pth')
    save(path)
    monkeypatch.setenv('TORCH_FORCE_WEIGHTS_ONLY_LOAD', '1')
    with pytest.raises(pickle.UnpicklingError):
        checkpoint.CheckpointLoader.load_checkpoint(path, 'cpu')


def test_missing_file_is_named(patched, tmp_path):
    with pytest.raises(FileNotFoundError, match='nothing.pth'):
        checkpoint.CheckpointLoader.load_checkpoint(
            str(tmp_path / 'nothing.pth'))


def test_a_loader_of_the_user_is_left_alone():
    patches = Patches()
    schemes = checkpoint.CheckpointLoader._schemes
    patches.replace(schemes, '', lambda filename, map_location: {})
    assert checkpoints.install(patches) is None
    patches.undo()


def test_files_from_the_network_keep_the_default(patched):
    schemes = checkpoint.CheckpointLoader._schemes
    assert schemes['https://'] is checkpoint.load_from_http
