"""Process groups and DDP where mmengine finds no accelerator.

Stock mmengine calls ``torch.cuda.set_device`` while it starts a process
group and gives DDP a device id, also for a model on the CPU; both raise
there. On any accelerator its own code runs unchanged.
"""

import os
import subprocess
from collections.abc import Callable

from .launch import export_rank_variables
from .patches import Patches


def install(patches: Patches) -> str | None:
    """Replace what fails; returns what was done, None on an accelerator."""
    from mmengine.device import get_device
    if get_device() != 'cpu':
        return None
    import mmengine.dist.utils as dist_utils
    from mmengine.runner import Runner
    for launcher in ('pytorch', 'mpi', 'slurm'):
        name = f'_init_dist_{launcher}'
        patches.replace(dist_utils, name,
                        _starter(launcher, getattr(dist_utils, name)))
    patches.replace(Runner, 'wrap_model', _wrap_model(Runner.wrap_model))
    return 'gloo process groups and DDP on the CPU'


def _starter(launcher: str, stock: Callable) -> Callable:

    def start(backend, init_backend='torch', port=None, **kwargs) -> None:
        if init_backend != 'torch':
            stock(backend, init_backend=init_backend, **kwargs)
            return
        from torch import distributed
        export_rank_variables(launcher)
        if port is not None:
            os.environ['MASTER_PORT'] = str(port)
        os.environ.setdefault('MASTER_PORT', '29500')
        if launcher == 'slurm' and 'MASTER_ADDR' not in os.environ:
            os.environ['MASTER_ADDR'] = _first_slurm_host()
        for name in ('RANK', 'WORLD_SIZE', 'MASTER_ADDR'):
            if name not in os.environ:
                raise RuntimeError(
                    f'launcher={launcher!r} needs {name} in the environment; '
                    'start the job with tools/dist_train.sh, '
                    'tools/slurm_train.sh or mpirun, or use --launcher none')
        distributed.init_process_group(
            backend='gloo' if backend == 'nccl' else backend, **kwargs)

    return start


def _first_slurm_host() -> str:
    nodes = os.environ.get('SLURM_NODELIST', '')
    listed = subprocess.run(['scontrol', 'show', 'hostname', nodes],
                            capture_output=True,
                            text=True,
                            check=True)
    return listed.stdout.split()[0]


def _wrap_model(stock: Callable) -> Callable:

    def wrap_model(self, model_wrapper_cfg, model):
        from mmengine.model import is_model_wrapper
        from mmengine.registry import MODEL_WRAPPERS
        from torch.nn.parallel import DistributedDataParallel
        if not self.distributed or is_model_wrapper(model):
            return stock(self, model_wrapper_cfg, model)
        wrapper = dict(model_wrapper_cfg or dict(
            broadcast_buffers=False,
            find_unused_parameters=self.cfg.get('find_unused_parameters',
                                                False)))
        wrapper.setdefault('type', 'MMDistributedDataParallel')
        kind = wrapper['type']
        if isinstance(kind, str):
            kind = MODEL_WRAPPERS.get(kind)
        if isinstance(kind, type) and issubclass(kind,
                                                 DistributedDataParallel):
            # Given here, the Runner's default of [LOCAL_RANK] is not used.
            wrapper.setdefault('device_ids', None)
        return stock(self, wrapper, model)

    return wrap_model
