"""tools/quickstart.ipynb runs from its first cell to its last."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / 'tools'
NOTEBOOK = TOOLS / 'quickstart.ipynb'

# Executes the code cells in order, in one namespace, as a kernel does.
RUNNER = '''
import json, sys
namespace = {'__name__': '__main__'}
for cell in json.load(open(sys.argv[1]))['cells']:
    if cell['cell_type'] == 'code':
        exec(compile(''.join(cell['source']), cell['id'], 'exec'), namespace)
'''


def test_notebook_is_stored_without_outputs():
    notebook = json.loads(NOTEBOOK.read_text())
    assert (notebook['nbformat'], notebook['nbformat_minor']) == (4, 5)
    code = [c for c in notebook['cells'] if c['cell_type'] == 'code']
    assert code and not any(c['outputs'] or c['execution_count'] for c in code)
    ids = [c['id'] for c in notebook['cells']]
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_every_cell_runs(tmp_path):
    pytest.importorskip('mmdet3d')
    done = subprocess.run([sys.executable, '-c', RUNNER,
                           str(NOTEBOOK)],
                          cwd=TOOLS,
                          env={
                              **os.environ, 'NOTEBOOK_QUICK': '1',
                              'NOTEBOOK_WORK': str(tmp_path)
                          },
                          capture_output=True,
                          text=True,
                          timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    out = tmp_path / 'work_dirs' / 'quickstart'
    report = json.loads((out / 'report.json').read_text())
    assert {r['name'] for r in report['rows']} >= {
        'iteration time', 'data wait', 'samples per second', 'host syncs',
        'launches', 'uploads'
    }
    assert (out / 'report.png').stat().st_size > 1000
    assert (out / 'stock').is_dir()
    assert (out / 'turbo' / 'turbo_plan.json').is_file()
    assert done.stdout.count('Epoch(train)') >= 4
