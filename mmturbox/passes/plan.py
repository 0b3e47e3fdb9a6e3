"""The plan: what was changed, what was declined, and why."""

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .base import PARITIES, SIDES
from .edits import Edit, Set, Splice, Wrap, apply_edits, lookup, show_path
from .options import APPLIED


def _brief(value: Any, width: int = 60) -> str:
    if value is None:
        return '(absent)'
    if isinstance(value, dict) and 'type' in value:
        value = value['type']
    if isinstance(value, type):
        value = f'{value.__module__.split(".")[0]}.{value.__name__}'
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= width else f'{text[:width - 3]}...'


def describe(edit: Edit, cfg: Any) -> tuple[str, str, str]:
    """(path, old, new) in words, of an edit of ``cfg``."""
    path, old = show_path(edit.path), lookup(cfg, edit.path)
    if isinstance(edit, Set):
        return path, _brief(old), _brief(edit.value)
    if isinstance(edit, Wrap):
        return path, _brief(old), f'{edit.type}({_brief(old)})'
    assert isinstance(edit, Splice)
    gone = list(old or [])[edit.start:edit.stop]
    where = f'{path}[{edit.start}:{edit.stop}]'
    return (where, ', '.join(map(_brief, gone)) or '(nothing)',
            ', '.join(map(_brief, edit.new)) or '(removed)')


@dataclass
class Step:
    """One pass of the plan.

    Attributes:
        status: ``'applied'``, ``'declined'`` (it looked and said why not) or
            ``'off'`` (it was not asked).
        edits: (path, old, new) in words.
    """
    name: str
    side: str
    parity: str
    status: str
    reason: str = ''
    edits: list[tuple[str, str, str]] = field(default_factory=list)
    raw: Sequence[Edit] = ()


@dataclass
class Plan:
    """All passes in the order of the sides, with their edits."""
    steps: list[Step]
    level: str = 'same'

    @property
    def applied(self) -> list[Step]:
        return [s for s in self.steps if s.status == 'applied']

    @property
    def parity(self) -> str:
        """The weakest parity class among the applied passes."""
        used = [PARITIES.index(s.parity) for s in self.applied]
        return PARITIES[max(used, default=0)]

    def apply(self, cfg: Any) -> None:
        """Edit ``cfg`` in place; ``turbo.applied`` records the edits as
        ``{pass: ['path: old -> new', ...]}``."""
        if not self.applied:
            return
        apply_edits(cfg, [e for s in self.applied for e in s.raw])
        turbo = dict(cfg.get('turbo') or {})
        record = dict(turbo.get(APPLIED, {}))
        for step in self.applied:
            edits = [f'{path}: {a} -> {b}' for path, a, b in step.edits]
            record[step.name] = [*record.get(step.name, []), *edits]
        turbo[APPLIED] = record
        cfg['turbo'] = turbo

    def digest(self) -> str:
        """Equal for equal plans; what ranks compare."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_dict(self) -> dict:
        return dict(
            level=self.level,
            parity=self.parity,
            steps=[
                dict(
                    name=s.name,
                    side=s.side,
                    parity=s.parity,
                    status=s.status,
                    reason=s.reason,
                    edits=[list(e) for e in s.edits]) for s in self.steps
            ])

    def table(self, width: int = 118) -> str:
        """The plan as text, grouped by side."""
        from rich.console import Console
        from rich.table import Table
        table = Table(
            title=f'mmturbox plan (level {self.level}, parity {self.parity})',
            title_justify='left')
        for column in ('side', 'pass', 'parity', 'what'):
            table.add_column(column, overflow='fold')
        for side in SIDES:
            for step in (s for s in self.steps if s.side == side):
                if step.status == 'applied':
                    what = '\n'.join(f'{p}: {o} -> {n}'
                                     for p, o, n in step.edits)
                else:
                    what = f'{step.status}: {step.reason}'
                # Square brackets would be read as markup.
                table.add_row(step.side, step.name, step.parity,
                              what.replace('[', r'\['))
            table.add_section()
        out = io.StringIO()
        Console(file=out, width=width, color_system=None).print(table)
        return out.getvalue().rstrip()
