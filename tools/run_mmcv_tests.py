"""Run mmcv's own operator tests on mmturbox's ``mmcv._ext``.

    python tools/run_mmcv_tests.py MMCV [NAME ...] [--json FILE] [-v]

MMCV is a checkout of mmcv (2.1 fits best); only its tests/ are used, with the
mmcv that is installed. NAMEs pick test files (``roi_align``). Everything runs
on the CPU: a test that asks for CUDA gets CPU tensors. Each file runs in a
process of its own. Prints passed, skipped and failed tests per file, the
functions of ``mmcv._ext`` that are not provided, and why tests failed; exit
status 1 if one did.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import pytest

from mmturbox.testing.cpu_as_cuda import cpu_as_cuda

# Not about _ext (onnx), or for image generation only.
LEFT_OUT = ('onnx', 'upfirdn2d', 'bias_act', 'filtered_lrelu',
            'conv_gradfix')
OUTCOMES = ('passed', 'skipped', 'failed')


class Collector:
    """pytest plugin: one (test, outcome, reason) for every test."""

    def __init__(self) -> None:
        self.results = []

    def add(self, report) -> None:
        reason = ''
        if report.skipped:
            reason = str(report.longrepr[-1])
        elif report.failed:
            crash = getattr(report.longrepr, 'reprcrash', None)
            reason = crash.message if crash else report.longreprtext
        test = report.nodeid.rpartition('test_ops/')[2]
        self.results.append((test, report.outcome, reason))

    def pytest_runtest_logreport(self, report) -> None:
        if report.when == 'call' or not report.passed:
            self.add(report)

    def pytest_collectreport(self, report) -> None:
        if not report.passed:
            self.add(report)


def run_here(file: Path, verbose: bool, pipe) -> None:
    """The child process: run one file and send its results."""
    os.chdir(file.parents[2])
    sys.dont_write_bytecode = True  # the checkout stays clean
    if not verbose:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
    collector = Collector()
    pytest.main([
        str(file), '-c', os.devnull, '--rootdir', str(file.parents[2]), '-p',
        'no:cacheprovider', '-W', 'ignore'
    ], plugins=[collector])
    pipe.send(collector.results)


def run_file(file: Path, verbose: bool, timeout: float) -> list[tuple]:
    """Results of one test file; a crash is one failed entry."""
    fork = multiprocessing.get_context('fork')
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=run_here, args=(file, verbose, sender))
    process.start()
    sender.close()
    reason = f'no end after {timeout:.0f} s'
    if receiver.poll(timeout):
        try:
            return receiver.recv()
        except EOFError:
            process.join()
            reason = f'process ended with exit code {process.exitcode}'
        finally:
            process.join()
    process.kill()
    return [(file.name, 'failed', reason)]


def functions() -> tuple[list[str], list[str]]:
    """Names in ``mmcv._ext`` that are provided, and that are not."""
    from mmturbox.ops.mmcv_ext._names import NAMES
    from mmturbox.ops.mmcv_ext._provided import PROVIDED
    return sorted(PROVIDED), sorted(NAMES - set(PROVIDED))


def prepare() -> None:
    """Import once what every test file needs."""
    from mmturbox.ops import mmcv_ext
    mmcv_ext.install(force=True)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        import mmcv.ops  # noqa: F401


def row(name: str, counts: list) -> None:
    print(f'{name:26}' + ''.join(f'{c:>9}' for c in counts), flush=True)


def run_files(files: dict[str, Path], verbose: bool,
              timeout: float) -> dict[str, list[tuple]]:
    """Run all files, printing the table as they end."""
    results, total = {}, Counter()
    row('file', [*OUTCOMES, 'seconds'])
    with cpu_as_cuda():
        prepare()
        for name, file in files.items():
            start = time.perf_counter()
            results[name] = run_file(file, verbose, timeout)
            counts = Counter(outcome for _, outcome, _ in results[name])
            total += counts
            row(name, [*(counts[o] for o in OUTCOMES),
                       round(time.perf_counter() - start, 1)])
    row('all', [total[o] for o in OUTCOMES])
    return results


def explain(results: dict[str, list[tuple]]) -> None:
    """Print why tests failed or were skipped, and what is not provided."""
    tests = [test for found in results.values() for test in found]
    for test, outcome, reason in tests:
        if outcome == 'failed':
            print(f'failed {test}: {" ".join(reason.split())[:200]}')
    skipped = Counter(reason for _, outcome, reason in tests
                      if outcome == 'skipped')
    for reason, count in skipped.most_common():
        print(f'{count} {reason}')
    provided, lacking = functions()
    print(f'{len(provided)} functions of mmcv._ext are provided, '
          f'{len(lacking)} are not: {" ".join(lacking)}')


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('mmcv', type=Path, help='checkout of mmcv')
    parser.add_argument('names', nargs='*', help='test files, e.g. nms')
    parser.add_argument('--json', type=Path, help='write all results here')
    parser.add_argument('--timeout', type=float, default=600,
                        help='seconds for one file')
    parser.add_argument('-v', '--verbose', action='store_true',
                        help='show what pytest prints')
    args = parser.parse_args(argv)
    files = {
        name: file
        for file in sorted(args.mmcv.resolve().glob('tests/test_ops/*.py'))
        if (name := file.stem.removeprefix('test_')) not in LEFT_OUT
    }
    unknown = set(args.names) - set(files)
    if unknown or not files:
        parser.error(f'{args.mmcv} has no test file for '
                     f'{", ".join(sorted(unknown)) or "operators"}')
    if args.names:
        files = {name: files[name] for name in args.names}
    results = run_files(files, args.verbose, args.timeout)
    explain(results)
    if args.json:
        provided, lacking = functions()
        args.json.write_text(json.dumps(dict(
            results=results, provided=provided, not_provided=lacking),
            indent=1))
    return int(any(outcome == 'failed' for found in results.values()
                   for _, outcome, _ in found))


if __name__ == '__main__':
    sys.exit(main())
