"""Guards the layout and size rules that the tree keeps."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ('mmturbox', 'ops', 'projects', 'configs', 'tools', 'tests')
MAX_FILE, MAX_FUNCTION = 500, 80
# Path -> why it may be longer. Kept short; entries only leave.
LONG: dict[str, str] = {}


def files(*suffixes):
    found = [p for f in FOLDERS for p in (ROOT / f).rglob('*')]
    found += [p for p in ROOT.iterdir() if p.is_file()]
    skip = {'__pycache__', '.ipynb_checkpoints'}
    return sorted(p for p in found
                  if p.suffix in suffixes and not skip & set(p.parts))


SOURCES = files('.py', '.cpp', '.h', '.cu', '.cuh', '.sh')
PYTHON = files('.py')


def name(path):
    return str(path.relative_to(ROOT))


def test_files_are_short():
    long = {
        name(p): n
        for p in SOURCES
        if (n := len(p.read_text().splitlines())) > MAX_FILE
    }
    assert long.keys() <= LONG.keys(), long


def test_functions_are_short():
    long = {}
    for path in PYTHON:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = node.end_lineno - node.lineno + 1
                if length > MAX_FUNCTION:
                    long[f'{name(path)}:{node.name}'] = length
    assert not long


def test_namespace_folders_have_no_init():
    forbidden = [
        p for f in ('ops', 'configs', 'tools', 'tests')
        for p in (ROOT / f).rglob('__init__.py')
    ]
    forbidden += (ROOT / 'projects').glob('__init__.py')
    forbidden += (ROOT / 'projects').glob('*/__init__.py')
    assert not forbidden


def test_package_folders_have_an_init():
    folders = {p.parent for p in (ROOT / 'mmturbox').rglob('*.py')}
    assert not [f for f in folders if not (f / '__init__.py').is_file()]


def test_native_sources_python_and_tests_share_a_stem():
    for source in (ROOT / 'ops' / 'csrc').glob('c*/*.c*'):
        stem = source.stem.removesuffix('_binding')
        if source.suffix in ('.cpp', '.cu') and stem != 'module':
            for twin in (f'mmturbox/ops/{stem}.py',
                         f'tests/test_ops/test_{stem}.py'):
                assert (ROOT / twin).is_file(), f'{name(source)}: no {twin}'


def test_test_files_have_unique_names():
    counts = Counter(p.name for p in PYTHON if p.name.startswith('test_'))
    assert not [n for n, count in counts.items() if count > 1]


@pytest.mark.parametrize('path', SOURCES, ids=name)
def test_sources_are_ascii_without_paths_of_one_machine(path):
    text = path.read_text()
    assert text.isascii()
    # Written so that this line is not found itself.
    assert not re.search('/(work|root|hom[e])/', text)


def test_names_python_has_dropped_are_not_imported():
    # KF-E4
    dropped = {'pkg_resources', 'distutils', 'imp'}
    for path in PYTHON:
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            assert not dropped & {n.split('.')[0] for n in names}, path
