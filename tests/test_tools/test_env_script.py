"""tools/_env.sh chooses, and never hides or replaces, a torch that serves.

The interpreters are stand-ins that record what they are asked for.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A python that has torch where the file "torch" lies beside its bin folder,
# and counts as an active environment where "active" does.
FAKE = '''#!/bin/sh
home=$(dirname "$0")/..
echo "$(basename "$(dirname "$(dirname "$0")")") $*" | head -n 1 >>"$LOG"
case "$1 $2" in
'-m venv')
    for last; do :; done
    mkdir -p "$last/bin" && cp "$0" "$last/bin/python"
    echo "include-system-site-packages = false" >"$last/pyvenv.cfg"
    case "$*" in *--system-site-packages*)
        cp "$home/torch" "$last/torch"
        echo "include-system-site-packages = true" >"$last/pyvenv.cfg";;
    esac;;
'-m pip')
    case "$*" in
    *' torch=='*) echo 2.13.0 >"$home/torch";;
    *'-c '*) for w; do [ "$p" = -c ] && cat "$w" >>"$LOG"; p=$w; done;;
    *' -e '*) touch "$CHECKOUT/mmturbox/_C.abi3.so";;
    esac;;
'-c import re, torch'*) cat "$home/torch" 2>/dev/null;;
'-c import sys; sys.exit(sys.prefix =='*) test -e "$home/active";;
'-c import sys; print(sys.prefix)') cd "$home" && pwd;;
esac
'''


@pytest.fixture
def checkout(tmp_path):
    """A tree with only what _env.sh reads, and a python called base."""
    root = tmp_path / 'checkout'
    (root / 'ops' / 'csrc').mkdir(parents=True)
    (root / 'ops' / 'csrc' / 'a.cpp').write_text('1')
    (root / 'mmturbox').mkdir()
    (root / 'setup.py').write_text('1')
    shutil.copytree(ROOT / 'requirements', root / 'requirements')
    (root / 'tools').mkdir()
    shutil.copy(ROOT / 'tools' / '_env.sh', root / 'tools')
    (tmp_path / 'base' / 'bin').mkdir(parents=True)
    python = tmp_path / 'base' / 'bin' / 'python'
    python.write_text(FAKE)
    python.chmod(0o755)
    return root


def setup(checkout):
    """What the script chose and what it asked the interpreters for."""
    log = checkout.parent / 'log'
    log.write_text('')
    path = f'{checkout.parent}/base/bin:/usr/bin:/bin'
    script = checkout / 'tools' / '_env.sh'
    done = subprocess.run(
        ['bash', '-euo', 'pipefail', '-c', f'. {script}; echo "is $PYTHON"'],
        env=dict(PATH=path, LOG=str(log), CHECKOUT=str(checkout)),
        cwd='/',
        capture_output=True,
        text=True,
        timeout=60)
    chosen = done.stdout.splitlines()[-1:]
    return chosen, log.read_text(), done


def has_torch(checkout, version='2.11.0+cu128'):
    (checkout.parent / 'base' / 'torch').write_text(version)


def test_active_environment_with_torch_is_used_directly(checkout):
    has_torch(checkout)
    (checkout.parent / 'base' / 'active').touch()
    chosen, log, _ = setup(checkout)
    assert chosen == [f'is {checkout.parent}/base/bin/python']
    assert '-m venv' not in log
    # The torch that serves cannot be exchanged, other versions stay free.
    assert 'torch==2.11.0+cu128\n' in log
    assert 'numpy==' not in log


def test_torch_of_the_system_is_seen_through_a_venv(checkout):
    has_torch(checkout)
    chosen, log, _ = setup(checkout)
    assert chosen == [f'is {checkout}/.venv/bin/python']
    assert '-m venv --system-site-packages' in log
    assert 'install --disable-pip-version-check torch==' not in log
    assert 'numpy==' not in log


def test_without_torch_a_venv_gets_the_pinned_one_and_the_known_set(checkout):
    chosen, log, _ = setup(checkout)
    assert chosen == [f'is {checkout}/.venv/bin/python']
    assert '--system-site-packages' not in log
    assert 'install --disable-pip-version-check torch==2.13.0' in log
    assert 'numpy==' in log
    assert '--no-deps -r' in log and '--no-build-isolation -e' in log


def test_second_run_calls_no_package_manager(checkout):
    setup(checkout)
    chosen, log, _ = setup(checkout)
    assert chosen == [f'is {checkout}/.venv/bin/python']
    assert '-m pip' not in log and '-m venv' not in log


@pytest.mark.parametrize(('changed', 'calls'), [
    ('ops/csrc/a.cpp', ['-e']),
    ('setup.py', ['-e']),
    ('requirements/dev.txt', ['-r', '-r']),
])
def test_only_what_has_changed_is_done_again(checkout, changed, calls):
    setup(checkout)
    with open(checkout / changed, 'a') as file:
        file.write('# changed\n')
    _, log, _ = setup(checkout)
    pip = [line.split() for line in log.splitlines() if '-m pip' in line]
    assert [next(w for w in words if w in ('-e', '-r'))
            for words in pip] == calls


def test_venv_without_torch_is_completed(checkout):
    setup(checkout)
    os.remove(checkout / '.venv' / 'torch')
    _, log, _ = setup(checkout)
    assert 'torch==2.13.0' in log and '-m venv' not in log


def test_broken_interpreter_set_up_is_named(checkout):
    python = checkout.parent / 'base' / 'bin' / 'python'
    python.write_text(FAKE.replace("'-m venv')", "'-m venv')\n    exit 1;;\n"
                                   "'-m never')"))
    _, _, done = setup(checkout)
    assert done.returncode == 1
    assert 'python3-venv' in done.stderr
