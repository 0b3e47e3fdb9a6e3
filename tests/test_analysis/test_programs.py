"""The programs run from the command line, and their exit status counts."""

import json
import os
import subprocess
import sys

import pytest

from mmturbox.testing.toy import write_toy_config

ROOT = os.path.join(os.path.dirname(__file__), '..', '..')


def run(program, *args, cwd=None):
    return subprocess.run(
        [sys.executable, os.path.join(ROOT, 'tools', program), *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300)


@pytest.fixture
def config(tmp_path):
    return write_toy_config(
        str(tmp_path / 'toy_config.py'), str(tmp_path / 'work'))


def test_verify_writes_its_verdict(tmp_path, config):
    out = tmp_path / 'verify.json'
    done = run('verify.py', config, '--iters', '2', '--json', str(out))
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found['agree'] is True
    assert found['largest_gap'] < 1e-5
    assert {r['name'] for r in found['rows']} >= {'loss'}
    assert {c['name'] for c in found['checks']} >= {
        'batch', 'loss', 'gradient', 'parameter', 'free run'
    }


def test_verify_fails_and_names_the_broken_pass(tmp_path, config):
    # Registered by the config itself, as a user's own pass would be.
    (tmp_path / 'broken_pass.py').write_text('''
from mmturbox.passes.base import ConfigPass, Set
from mmturbox.registry import PASSES

@PASSES.register_module()
class Broken(ConfigPass):
    name, side, parity = 'broken', 'model', 'close'
    changes = ('model.loss_weight', )

    def plan(self, cfg, env):
        return [Set('model.loss_weight', 1.0001)]
''')
    text = open(config).read()
    with open(config, 'w') as file:
        file.write('import sys\n'
                   f'sys.path.insert(0, {str(tmp_path)!r})\n' +
                   text.replace("'mmturbox.enable'",
                                "'mmturbox.enable', 'broken_pass'"))
    out = tmp_path / 'verify.json'
    done = run('verify.py', config, '--iters', '2', '--bisect', '--json',
               str(out))
    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found['agree'] is False
    assert found['culprits'] == ['broken']


def test_audit_and_benchmark_write_their_rows(tmp_path, config):
    out, plot = tmp_path / 'rows.json', tmp_path / 'bars.png'
    done = run('audit.py', config, '--json', str(out), '--work-dir',
               str(tmp_path / 'other'))
    assert done.returncode == 0, done.stderr
    assert 'toy.py' in done.stdout, 'the worst line is named'
    found = json.loads(out.read_text())
    assert [r['name'] for r in found['rows']] == [
        'host syncs', 'launches', 'uploads'
    ]
    assert found['boxes'] == [6, 6]
    assert (tmp_path / 'other' / 'audit').is_dir()
    assert not (tmp_path / 'work').exists()

    done = run('benchmark.py', config, '--rounds', '1', '--json', str(out),
               '--plot', str(plot), '--cfg-options',
               'train_dataloader.dataset.num_boxes=2')
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found['boxes'] == 4, '--cfg-options hold'
    assert plot.read_bytes()[:4] == b'\x89PNG'


def test_bad_input_is_one_line(tmp_path, config, monkeypatch):
    done = run('audit.py', 'no_such_config.py', cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith('tools/audit.py:')
    monkeypatch.setenv('MMTURBOX', '0')
    done = run('verify.py', config)
    assert done.returncode == 1
    assert 'unset it' in done.stderr.strip().splitlines()[-1]


def test_compare_runs_reads_work_dirs(tmp_path):
    for name, seconds in (('stock', .2), ('turbo', .1)):
        folder = tmp_path / name / '20260101_000000' / 'vis_data'
        folder.mkdir(parents=True)
        (folder / 'scalars.json').write_text('\n'.join(
            json.dumps(dict(loss=1 + 9 * .9**s, time=seconds, step=s))
            for s in range(1, 201)))
    out, plot = tmp_path / 'runs.json', tmp_path / 'runs.png'
    done = run('compare_runs.py', str(tmp_path / 'stock'),
               str(tmp_path / 'turbo'), '--json', str(out), '--plot',
               str(plot))
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found['trends_agree'] is True
    ratios = {r['name']: r['ratio'] for r in found['rows']}
    assert ratios['throughput'] == pytest.approx(2)
    assert ratios['steps to convergence'] == 1
    assert plot.read_bytes()[:4] == b'\x89PNG'
    done = run('compare_runs.py', str(tmp_path / 'stock'), str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith('tools/compare_runs.py:')
