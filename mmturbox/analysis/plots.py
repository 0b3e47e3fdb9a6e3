"""Pictures of what the tools measured; no display is needed."""

import os
from collections.abc import Sequence
from typing import Any

from .report import Row, number


def _axes(width: float, height: float) -> tuple[Any, Any]:
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
    return plt.subplots(figsize=(width, height), layout='constrained')


def _save(figure: Any, path: str) -> None:
    import matplotlib.pyplot as plt
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def bar_chart(rows: Sequence[Row], path: str, title: str) -> None:
    """Stock and turbo beside each other, each row relative to its stock."""
    figure, axes = _axes(8, .6 * len(rows) + 1.2)
    for index, entry in enumerate(rows):
        largest = max(entry.stock, entry.turbo, 1e-9)
        for offset, value, color in ((-.2, entry.stock, '0.6'),
                                     (.2, entry.turbo, 'tab:green')):
            axes.barh(index + offset, value / largest, .36, color=color)
            axes.text(
                value / largest + .01,
                index + offset,
                number(value),
                va='center',
                fontsize=8)
    axes.set_yticks(
        range(len(rows)),
        [f'{r.name} ({r.unit})\n{r.ratio:.2f}x' for r in rows],
        fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15)
    axes.set_xticks([])
    handles = [axes.barh(0, 0, color=c) for c in ('0.6', 'tab:green')]
    axes.legend(handles, ('stock', 'turbo'), loc='lower right', fontsize=8)
    axes.set_title(title, fontsize=10)
    _save(figure, path)


def curves(runs: Sequence[Any], path: str) -> None:
    """Raw and smoothed loss of runs (see ``convergence.Run``) by step."""
    figure, axes = _axes(8, 4.5)
    for run in runs:
        (line, ) = axes.plot(run.steps, run.smoothed, label=run.name)
        axes.plot(
            run.steps, run.losses, color=line.get_color(), alpha=.2, lw=.8)
        if run.knee is not None:
            index = list(run.steps).index(run.knee)
            axes.plot(
                run.knee, run.smoothed[index], 'o', color=line.get_color())
    axes.set_xlabel('iteration')
    axes.set_ylabel('loss')
    if all(min(run.losses) > 0 for run in runs):
        axes.set_yscale('log')
    axes.legend(fontsize=8)
    axes.set_title('loss, smoothed; dots: converged', fontsize=10)
    _save(figure, path)
