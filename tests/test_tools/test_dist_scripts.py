"""KF-E1: old launchers, new launchers and schedulers start two ranks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOY = Path(__file__).parent / 'toy'
CONFIG = str(TOY / 'toy_config.py')
TRAIN = str(ROOT / 'tools' / 'train.py')
RANK_NAMES = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MMTURBOX')


def environment(port, **more):
    clean = {k: v for k, v in os.environ.items() if k not in RANK_NAMES}
    return dict(
        clean,
        PYTHONPATH=str(TOY),
        PYTHON=sys.executable,
        PORT=str(port),
        MASTER_PORT=str(port),
        MASTER_ADDR='127.0.0.1',
        CUDA_VISIBLE_DEVICES='',
        NCCL_P2P_DISABLE='1',
        **more)


def check_two_ranks(work_dir):
    for rank in range(2):
        report = json.loads((work_dir / f'rank{rank}.json').read_text())
        # KF-E2: NCCL_* variables reach the ranks.
        assert report == dict(
            rank=rank,
            world=2,
            backend='gloo',
            local_rank=str(rank),
            nccl='1',
            wrapped=True,
            runner='TurboRunner')


@pytest.mark.parametrize(('port', 'launcher'), [
    (29621, ['bash', str(ROOT / 'tools/dist_train.sh'), CONFIG, '2']),
    (29622, [
        sys.executable, '-m', 'torch.distributed.launch', '--nproc_per_node=2',
        '--master_port=29622', TRAIN, CONFIG, '--launcher=pytorch'
    ]),
])
def test_torch_launchers_start_two_ranks(tmp_path, port, launcher):
    done = subprocess.run([*launcher, '--work-dir', str(tmp_path / 'a b')],
                          env=environment(port),
                          capture_output=True,
                          text=True,
                          timeout=200)
    assert done.returncode == 0, done.stderr
    check_two_ranks(tmp_path / 'a b')


@pytest.mark.parametrize(('port', 'launcher', 'per_rank', 'common'), [
    (29623, 'pytorch', lambda r:
     (dict(RANK=r), [('--local-rank=', '--local_rank=')[int(r)] + r]),
     dict(WORLD_SIZE='2')),
    (29625, 'slurm', lambda r: (dict(SLURM_PROCID=r, SLURM_LOCALID=r), []),
     dict(SLURM_NTASKS='2', SLURM_NODELIST='here')),
    (29626, 'mpi', lambda r:
     (dict(OMPI_COMM_WORLD_RANK=r, OMPI_COMM_WORLD_LOCAL_RANK=r), []),
     dict(OMPI_COMM_WORLD_SIZE='2')),
])
def test_ranks_come_from_arguments_and_schedulers(tmp_path, port, launcher,
                                                  per_rank, common):
    ranks = []
    for rank in ('0', '1'):
        environ, args = per_rank(rank)
        ranks.append(
            subprocess.Popen([
                sys.executable, TRAIN, CONFIG, '--work-dir',
                str(tmp_path), '--launcher', launcher, *args
            ],
                             env=environment(port, **common, **environ),
                             stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE,
                             text=True))
    for process in ranks:
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors
    check_two_ranks(tmp_path)


def test_dist_test_tests_on_two_ranks(tmp_path):
    import torch
    checkpoint = tmp_path / 'model.pth'
    torch.save({
        'linear.weight': torch.zeros(1, 4),
        'linear.bias': torch.zeros(1)
    }, checkpoint)
    done = subprocess.run([
        'bash',
        str(ROOT / 'tools/dist_test.sh'), CONFIG,
        str(checkpoint), '2', '--work-dir',
        str(tmp_path)
    ],
                          env=environment(29627),
                          capture_output=True,
                          text=True,
                          timeout=200)
    assert done.returncode == 0, done.stderr
    assert 'seen: ' in done.stdout + done.stderr


def test_slurm_script_asks_srun_for_the_job(tmp_path):
    srun = tmp_path / 'srun'
    srun.write_text('#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done\n'
                    'echo "nccl=$NCCL_P2P_DISABLE path=$PYTHONPATH"\n')
    srun.chmod(0o755)
    environ = environment(0, GPUS='16', SRUN_ARGS='--qos=high --mem=1G')
    environ['PATH'] = f'{tmp_path}:{environ["PATH"]}'
    done = subprocess.run([
        'bash',
        str(ROOT / 'tools/slurm_train.sh'), 'part', 'name', 'cfg.py', 'a b',
        '--cfg-options', 'x="[1, 2]"'
    ],
                          env=environ,
                          capture_output=True,
                          text=True,
                          timeout=30)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for word in ('<-p>', '<part>', '<--job-name=name>', '<--ntasks=16>',
                 '<--ntasks-per-node=8>', '<--qos=high>', '<--mem=1G>',
                 '<--work-dir=a b>', '<--launcher=slurm>', '<x="[1, 2]">'):
        assert word in lines
    assert lines[-1].startswith(f'nccl=1 path={ROOT}/tools/..:')


@pytest.mark.parametrize('script', [
    'dist_train.sh', 'dist_test.sh', 'slurm_train.sh'
])
def test_missing_arguments_print_the_usage(script):
    done = subprocess.run(['bash', str(ROOT / 'tools' / script)],
                          capture_output=True,
                          text=True,
                          timeout=30)
    assert done.returncode == 2 and 'usage:' in done.stderr
