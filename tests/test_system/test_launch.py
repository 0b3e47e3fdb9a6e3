"""KF-E1: every launcher's way of telling the rank."""

import argparse

import pytest

from mmturbox.system.launch import (
    add_launch_arguments,
    export_rank_variables,
    is_main_rank,
)

SLURM = dict(
    SLURM_PROCID='5',
    SLURM_LOCALID='1',
    SLURM_NTASKS='8',
    SLURM_TASKS_PER_NODE='4(x2)')
MPI = dict(
    OMPI_COMM_WORLD_RANK='3',
    OMPI_COMM_WORLD_LOCAL_RANK='2',
    OMPI_COMM_WORLD_SIZE='4',
    OMPI_COMM_WORLD_LOCAL_SIZE='4')


@pytest.mark.parametrize('option', ['--local-rank', '--local_rank'])
@pytest.mark.parametrize('joined', [True, False])
def test_both_spellings_of_local_rank_are_taken(option, joined):
    parser = argparse.ArgumentParser()
    add_launch_arguments(parser)
    argv = [f'{option}=3'] if joined else [option, '3']
    environ = {}
    export_rank_variables('none', parser.parse_args(argv).local_rank, environ)
    assert environ == {'LOCAL_RANK': '3'}


def test_local_rank_alone_is_kept_and_defaults_to_zero():
    environ = {'LOCAL_RANK': '7'}
    export_rank_variables('pytorch', None, environ)
    assert environ == {'LOCAL_RANK': '7'}
    environ = {}
    export_rank_variables('none', None, environ)
    assert environ == {'LOCAL_RANK': '0'}


@pytest.mark.parametrize(('source', 'launcher', 'expected'), [
    (SLURM, 'slurm', ('5', '1', '8', '4')),
    (SLURM, 'pytorch', ('5', '1', '8', '4')),
    (MPI, 'mpi', ('3', '2', '4', '4')),
])
def test_scheduler_variables_fill_what_is_missing(source, launcher, expected):
    environ = dict(source)
    export_rank_variables(launcher, None, environ)
    names = ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE')
    assert tuple(environ[n] for n in names) == expected


def test_variables_that_are_set_win_over_scheduler_and_argument():
    environ = {**SLURM, 'RANK': '0', 'LOCAL_RANK': '6', 'WORLD_SIZE': '2'}
    export_rank_variables('slurm', 4, environ)
    assert (environ['RANK'], environ['LOCAL_RANK'],
            environ['WORLD_SIZE']) == ('0', '6', '2')


def test_single_process_in_an_allocation_is_not_one_of_its_tasks():
    environ = dict(SLURM)
    export_rank_variables('none', None, environ)
    assert 'WORLD_SIZE' not in environ and 'RANK' not in environ
    assert environ['LOCAL_RANK'] == '1'


@pytest.mark.parametrize(('name', 'value', 'expected'), [
    ('RANK', '0', True),
    ('RANK', '1', False),
    ('SLURM_PROCID', '2', False),
    ('OMPI_COMM_WORLD_RANK', '0', True),
])
def test_main_rank_is_known_before_set_up(monkeypatch, name, value, expected):
    for other in ('RANK', 'OMPI_COMM_WORLD_RANK', 'SLURM_PROCID'):
        monkeypatch.delenv(other, raising=False)
    assert is_main_rank()
    monkeypatch.setenv(name, value)
    assert is_main_rank() is expected
