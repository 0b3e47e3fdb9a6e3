"""Rows of stock against turbo, as a table and as JSON."""

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

FLOORS = {'ms': .01, 's': 1e-5}
HIGHER_IS_BETTER = ('samples/s', 'steps/s')


def ratio(stock: float, turbo: float, unit: str) -> float:
    """How many times better turbo is; never infinite (floors: 1 for counts,
    0.01 ms for times)."""
    floor = FLOORS.get(unit, 1.)
    if unit in HIGHER_IS_BETTER:
        return turbo / max(stock, 1e-6)
    return stock / max(turbo, floor)


@dataclass(frozen=True)
class Row:
    """One measured thing; ``ratio`` above 1 is a gain."""
    name: str
    stock: float
    turbo: float
    ratio: float
    unit: str


def row(name: str, stock: float, turbo: float, unit: str) -> Row:
    return Row(name, stock, turbo, ratio(stock, turbo, unit), unit)


def _commit() -> str:
    folder = os.path.dirname(os.path.abspath(__file__))
    try:
        out = subprocess.run(
            ['git', 'rev-parse', '--short', 'HEAD'],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return 'unknown'
    return out.stdout.strip() or 'unknown'


def _machine() -> str:
    import torch
    device = 'cpu'
    if torch.cuda.is_available():
        device = torch.cuda.get_device_name(0)
    return (f'{platform.machine()}, {len(os.sched_getaffinity(0))} cores, '
            f'{torch.get_num_threads()} thread(s), {device}, '
            f'torch {torch.__version__}, Python {platform.python_version()}')


def to_dict(rows: Sequence[Row], **extra: Any) -> dict[str, Any]:
    """The one object that every measuring tool writes."""
    command = ' '.join(shlex.quote(a) for a in sys.argv)
    return dict(
        command=f'python {command}',
        commit=_commit(),
        machine=_machine(),
        rows=[asdict(r) for r in rows],
        **extra)


def write_json(path: str, rows: Sequence[Row], **extra: Any) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    with open(path, 'w') as file:
        json.dump(to_dict(rows, **extra), file, indent=1)
        file.write('\n')


def number(value: float) -> str:
    if value == int(value) and abs(value) < 1e9:
        return f'{int(value):,}'
    if abs(value) >= 100:
        return f'{value:,.0f}'
    if abs(value) >= .01:
        return f'{value:.3g}'
    return f'{value:.1e}'


def print_rows(rows: Sequence[Row], title: str) -> None:
    """Print the rows as a table."""
    print_table(title, ('', 'stock', 'turbo', 'ratio', 'unit'), [
        (r.name, number(r.stock), number(r.turbo),
         '-' if r.stock == r.turbo == 0 else f'{r.ratio:.2f}x', r.unit)
        for r in rows
    ])


def print_table(title: str, columns: Sequence[str],
                lines: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    table = Table(title=title, title_justify='left')
    for index, column in enumerate(columns):
        numeric = index and column in ('stock', 'turbo', 'ratio', 'count',
                                       'gap', 'limit', 'nudged')
        table.add_column(
            column,
            justify='right' if numeric else 'left',
            overflow='fold')
    for line in lines:
        table.add_row(*(escape(str(c)) for c in line))
    console = Console()
    if not console.is_terminal:
        # A log file has no width; do not fold file names in it.
        console = Console(width=118)
    console.print(table)
