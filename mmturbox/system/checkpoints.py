"""Loading checkpoint files with torch 2.6 and later (KF-C5)."""

import os

from .patches import Patches


def install(patches: Patches) -> str | None:
    """Let mmengine load whole checkpoints from local files.

    Returns what was done; None where the user has registered a loader of
    his own for local files.
    """
    from mmengine.runner import checkpoint
    schemes = checkpoint.CheckpointLoader._schemes
    if schemes.get('') is not checkpoint.load_from_local:
        return None
    patches.replace(schemes, '', load_from_local)
    return 'local checkpoints load whole (weights_only=False)'


def load_from_local(filename: str, map_location=None) -> dict:
    """Load a checkpoint from a local file that the user named.

    A checkpoint of mmengine holds more than tensors (message hub, config),
    which torch >= 2.6 refuses unless ``weights_only=False`` is asked for;
    mmengine 0.10.7 does not ask. Files from the network keep torch's default.

    Warning:
        Loading a checkpoint this way can run code that the file contains.
        Load only files whose origin you trust.
        ``TORCH_FORCE_WEIGHTS_ONLY_LOAD=1`` in the environment refuses them.

    Args:
        filename: path of the file; ``~`` is expanded.
        map_location: as of ``torch.load``.

    Raises:
        FileNotFoundError: there is no such file.
    """
    import torch
    filename = os.path.expanduser(filename)
    if not os.path.isfile(filename):
        raise FileNotFoundError(f'{filename} can not be found.')
    return torch.load(filename, map_location=map_location, weights_only=False)
