"""Rows, their ratios, their JSON and their picture."""

import json
import math

import pytest

from mmturbox.analysis import plots, report
from mmturbox.analysis.batches import compare_nested, relative_gap, to_array


@pytest.mark.parametrize('stock, turbo, unit, ratio', [
    (10., 5., 'ms', 2.),
    (10., 0., 'ms', 1000.),
    (1200., 0., 'an iteration', 1200.),
    (1200., 4., 'an iteration', 300.),
    (0., 0., 'an iteration', 0.),
    (2., 4., 'samples/s', 2.),
    (0., 4., 'samples/s', 4e6),
])
def test_ratios_are_gains_and_never_infinite(stock, turbo, unit, ratio):
    row = report.row('x', stock, turbo, unit)
    assert row.ratio == pytest.approx(ratio)
    assert math.isfinite(row.ratio)


def test_json_has_the_common_form(tmp_path):
    path = tmp_path / 'new' / 'report.json'
    report.write_json(
        str(path), [report.row('launches', 9., 3., 'an iteration')],
        agree=True)
    found = json.loads(path.read_text())
    assert set(found) == {'command', 'commit', 'machine', 'rows', 'agree'}
    assert found['rows'] == [
        dict(name='launches', stock=9., turbo=3., ratio=3., unit='an iteration'
             )
    ]


def test_table_shows_markup_as_it_is(capsys):
    report.print_table('t', ('line', 'count'), [('a[0]:3', 5)])
    assert 'a[0]:3' in capsys.readouterr().out


def test_bar_chart_is_a_png(tmp_path):
    path = tmp_path / 'bars.png'
    plots.bar_chart([report.row('time', 2., 1., 'ms')], str(path), 'toy')
    assert path.read_bytes()[:4] == b'\x89PNG'


def test_gaps_of_nested_values():
    want = dict(a=[1, 2.], b=dict(name='x'), c=float('nan'))
    assert {g for _, g in compare_nested(want, dict(want, extra=1))} == {0.}
    gaps = dict(compare_nested(want, dict(a=[1, 2.2], b=dict(name='y'))))
    assert gaps['a.1'] == pytest.approx(.1)
    assert gaps['b.name'] == gaps['c'] == math.inf
    assert relative_gap(to_array(math.inf), to_array(math.inf)) == 0
    assert relative_gap(to_array(math.inf), to_array(1.)) == math.inf
    assert relative_gap(to_array(1e-9), to_array(2e-9), 1.) < 1e-8
