import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope='module')
def tool():
    path = ROOT / 'tools' / 'update_readme.py'
    spec = importlib.util.spec_from_file_location('update_readme', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize('name', ['README.md', 'README_zh-CN.md'])
def test_table_of_passes_is_fresh(tool, name):
    text = (ROOT / name).read_text(encoding='utf-8')
    assert text == tool.updated(name), 'run python tools/update_readme.py'


def test_report_fills_the_measured_table_under_its_head(tool):
    report = dict(
        command='tools/benchmark.py c.py',
        commit='abc',
        machine='two cores',
        rows=[
            dict(
                name='host syncs', stock=1000, turbo=4, ratio=250., unit='1'),
            dict(
                name='iteration time',
                stock=.51234,
                turbo=.25,
                ratio=2.04936,
                unit='s'),
        ])
    text = ('a\n<!-- measured:begin -->\n| x | y |\n| --- | --- |\nold\n'
            '<!-- measured:end -->\nb\n')
    text = tool.replace_body(text, 'measured', tool.measured_body(report))
    assert text == ('a\n<!-- measured:begin -->\n| x | y |\n| --- | --- |\n'
                    '| host syncs | 1,000 | 4 | 1 | 250x |\n'
                    '| iteration time | 0.512 | 0.25 | s | 2.05x |\n\n'
                    '`tools/benchmark.py c.py` @ `abc`; two cores\n'
                    '<!-- measured:end -->\nb\n')


def test_missing_marks_are_named(tool):
    with pytest.raises(ValueError, match='measured:begin'):
        tool.replace_body('nothing', 'measured', 'x')


def test_both_readmes_name_the_same_commands():
    import re
    found = [
        set(
            re.findall(r'(?:tools/\w+\.\w+|mmturbox\.\w+|MMTURBOX\w*|NCCL_\w+)',
                       (ROOT / name).read_text(encoding='utf-8')))
        for name in ('README.md', 'README_zh-CN.md')
    ]
    assert found[0] == found[1]
    for name in found[0]:
        if name.startswith('tools/'):
            assert (ROOT / name).is_file(), name


def test_both_readmes_show_what_was_measured(tool):
    for name in tool.READMES:
        text = (tool.ROOT / name).read_text(encoding='utf-8')
        table = text.partition('<!-- measured:begin -->')[2]
        table = table.partition('<!-- measured:end -->')[0]
        for row in ('iteration time', 'host syncs', 'launches'):
            assert f'| {row} |' in table
