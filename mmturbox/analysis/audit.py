"""Where an iteration makes the host wait, stock against turbo."""

from collections.abc import Sequence
from dataclasses import dataclass

from .bench import count_iteration
from .counting import Counter
from .report import Row, print_rows, print_table, row
from .stepping import StepDriver

KINDS = (('host syncs', 'sync'), ('launches', 'launch'),
         ('uploads', 'upload'))


@dataclass
class Audit:
    """Counts of one iteration of each run.

    Attributes:
        boxes: labelled objects in the counted batch of stock and of turbo.
    """
    stock: Counter
    turbo: Counter
    boxes: tuple[int, int]

    @property
    def rows(self) -> list[Row]:
        return [
            row(name, float(self.stock.total(kind)),
                float(self.turbo.total(kind)), 'an iteration')
            for name, kind in KINDS
        ]

    def lines(self) -> dict[str, dict[str, list]]:
        """Per run and kind: [file:line, count, causes], worst first."""
        return {
            run: {kind: [list(e) for e in counter.lines(kind)]
                  for _, kind in KINDS}
            for run, counter in (('stock', self.stock), ('turbo', self.turbo))
        }


def audit(drivers: tuple[StepDriver, StepDriver], warmup: int = 2) -> Audit:
    """Count an iteration that does not log, after ``warmup`` others."""
    results = []
    for driver in drivers:
        for _ in range(warmup):
            driver.next()
        results.append(count_iteration(driver))
    (stock, boxes), (turbo, turbo_boxes) = results
    return Audit(stock, turbo, (boxes, turbo_boxes))


def print_audit(result: Audit, top: int = 12,
                kinds: Sequence[str] = ('sync', 'launch', 'upload')) -> None:
    """The totals, then the worst lines of each run and kind."""
    boxes = ' and '.join(str(b) for b in dict.fromkeys(result.boxes))
    print_rows(result.rows, f'one iteration, {boxes} boxes in its batch')
    for name, kind in KINDS:
        if kind not in kinds:
            continue
        for run in ('stock', 'turbo'):
            lines = getattr(result, run).lines(kind)
            if not lines:
                continue
            shown = lines[:top]
            title = f'{name} of {run}, worst lines first'
            if len(lines) > top:
                title += f' ({len(lines) - top} more lines not shown)'
            print_table(title, ('line', 'count', 'cause'), shown)
