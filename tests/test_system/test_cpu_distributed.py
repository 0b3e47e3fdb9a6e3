"""mmengine's process groups without an accelerator (each in a process)."""

import os
import subprocess
import sys

import pytest

from mmturbox.system import cpu_distributed
from mmturbox.system.patches import Patches

SCRIPT = '''
import os, sys
from mmturbox.system import compat
compat.install()
from mmengine.dist import init_dist, get_backend, get_rank
import torch.distributed
for launcher in sys.argv[1:]:
    for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK'):
        os.environ.pop(name, None)
    init_dist(launcher, backend='nccl', timeout=30)
    print(launcher, get_backend(), get_rank(), os.environ['LOCAL_RANK'])
    torch.distributed.destroy_process_group()
'''
RANK_ZERO = dict(
    OMPI_COMM_WORLD_RANK='0',
    OMPI_COMM_WORLD_LOCAL_RANK='0',
    OMPI_COMM_WORLD_SIZE='1',
    SLURM_PROCID='0',
    SLURM_LOCALID='0',
    SLURM_NTASKS='1',
    SLURM_NODELIST='n[1-2]',
    MASTER_PORT='29617')


def run(*launchers, **environ):
    clean = {k: v for k, v in os.environ.items() if k not in environ}
    return subprocess.run([sys.executable, '-c', SCRIPT, *launchers],
                          env={**clean, **environ, 'CUDA_VISIBLE_DEVICES': ''},
                          capture_output=True,
                          text=True,
                          timeout=120)


def test_each_launcher_starts_gloo_where_there_is_no_accelerator():
    done = run(
        'pytorch', 'slurm', 'mpi', MASTER_ADDR='127.0.0.1', **RANK_ZERO)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == [
        'pytorch gloo 0 0', 'slurm gloo 0 0', 'mpi gloo 0 0'
    ]


def test_missing_variable_of_the_launcher_is_named():
    done = run('pytorch', MASTER_ADDR='127.0.0.1')
    assert done.returncode == 1
    assert 'needs RANK in the environment' in done.stderr


def test_missing_rank_ends_in_a_timeout_that_the_config_sets():
    # KF-E2
    code = SCRIPT.replace('timeout=30', 'timeout=2')
    environ = dict(
        os.environ,
        RANK='0',
        MASTER_ADDR='127.0.0.1',
        MASTER_PORT='29618',
        SLURM_PROCID='0',
        SLURM_NTASKS='2')
    done = subprocess.run([sys.executable, '-c', code, 'pytorch'],
                          env=environ,
                          capture_output=True,
                          text=True,
                          timeout=60)
    assert done.returncode == 1
    assert 'imed out' in done.stderr and '1/2' in done.stderr


def test_first_host_of_a_slurm_job_comes_from_scontrol(tmp_path, monkeypatch):
    fake = tmp_path / 'scontrol'
    fake.write_text('#!/bin/sh\n[ "$3" = "n[1-2]" ] && printf "n1\\nn2\\n"\n')
    fake.chmod(0o755)
    monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
    monkeypatch.setenv('SLURM_NODELIST', 'n[1-2]')
    assert cpu_distributed._first_slurm_host() == 'n1'


@pytest.mark.parametrize('wrapper', [
    None,
    dict(type='MMDistributedDataParallel', static_graph=True),
    dict(find_unused_parameters=True),
])
def test_wrap_model_gives_no_device_ids_on_the_cpu(monkeypatch, wrapper):
    from mmengine.runner import Runner
    seen = {}

    def stock(self, model_wrapper_cfg, model):
        seen.update(model_wrapper_cfg)

    class FakeRunner:
        distributed = True
        cfg = {}

    before = dict(wrapper) if wrapper else None
    patches = Patches()
    patches.replace(Runner, 'wrap_model', stock)
    monkeypatch.setattr('mmengine.device.get_device', lambda: 'cpu')
    try:
        cpu_distributed.install(patches)
        Runner.wrap_model(FakeRunner(), wrapper, object())
    finally:
        patches.undo()
    assert seen['device_ids'] is None
    assert seen.items() >= (before or dict(broadcast_buffers=False)).items()
    assert wrapper == before
