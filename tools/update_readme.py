"""Bring the generated tables of both READMEs up to date.

    python tools/update_readme.py [--report work_dirs/quickstart/report.json]

The rows of the passes come from the registry; the measured rows, only with
``--report``, from a report that tools/benchmark.py or tools/quickstart.sh has
written. The heads of the tables stay as they are, in each README's language.
"""

import argparse
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
READMES = ('README.md', 'README_zh-CN.md')


def table_rows(rows: list[tuple]) -> str:
    return '\n'.join('| ' + ' | '.join(map(str, r)) + ' |' for r in rows)


def passes_body(words: dict[str, str] | None = None) -> str:
    """One row a pass, grouped by the side it works on.

    Args:
        words: what a pass does, by its name, where not in its own words.
    """
    from mmturbox.info import passes
    words = words or {}
    return table_rows([(side, f'`{name}`', parity, words.get(name, summary))
                       for side, name, parity, _, summary in passes()])


def short(value: float) -> str:
    """Three digits, or all of a whole number."""
    return f'{value:,.0f}' if value >= 1000 else f'{value:.3g}'


def translations(text: str) -> dict[str, str]:
    """What the table of passes in ``text`` says of each, to be kept.

    A new pass appears in its own (English) words, to be translated in place.
    """
    return dict(re.findall(r'^\| \w+ \| `(\w+)` \| \w+ \| (.+) \|$', text,
                           re.MULTILINE))


def measured_body(report: dict) -> str:
    """The rows of a report, and what they were measured with."""
    rows = [(row['name'], short(row['stock']), short(row['turbo']),
             row['unit'], f'{short(row["ratio"])}x') for row in report['rows']]
    return (f'{table_rows(rows)}\n\n`{report["command"]}` @ '
            f'`{report["commit"]}`; {report["machine"]}')


def replace_body(text: str, name: str, body: str) -> str:
    """Exchange what follows the table head between the marks of ``name``.

    Raises:
        ValueError: the marks, or the two lines of the head, are not there.
    """
    pattern = re.compile(
        rf'(<!-- {name}:begin -->\n\|.*\n\|.*\n)[^\0]*?(<!-- {name}:end -->)')
    if not pattern.search(text):
        raise ValueError(f'there is no table between <!-- {name}:begin --> '
                         f'and <!-- {name}:end -->')
    return pattern.sub(lambda m: f'{m[1]}{body}\n{m[2]}', text)


def updated(name: str, report: dict | None = None) -> str:
    """The text that the README ``name`` should have."""
    text = (ROOT / name).read_text(encoding='utf-8')
    words = translations(text) if 'zh' in name else None
    text = replace_body(text, 'passes', passes_body(words))
    if report is not None:
        text = replace_body(text, 'measured', measured_body(report))
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--report', help='a report.json to show')
    args = parser.parse_args()
    report = None
    if args.report:
        report = json.loads(Path(args.report).read_text())
    for name in READMES:
        text = updated(name, report)
        (ROOT / name).write_text(text, encoding='utf-8')


if __name__ == '__main__':
    main()
