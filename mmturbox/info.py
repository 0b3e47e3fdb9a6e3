"""What is installed, built and applicable: ``python -m mmturbox.info``."""

import importlib.metadata
import platform
import warnings

# Import name -> distributions that carry it, the usual one first.
_VERSIONS = {
    'torch': ('torch', ),
    'numpy': ('numpy', ),
    'mmengine': ('mmengine', 'onedl-mmengine'),
    'mmcv': ('mmcv', 'mmcv-lite', 'mmcv-full', 'onedl-mmcv'),
    'mmdet': ('mmdet', 'onedl-mmdetection'),
    'mmdet3d': ('mmdet3d', ),
}
# Distribution -> what is missing without it.
_OPTIONAL = {
    'nuscenes-devkit': 'converting and evaluating nuScenes',
    'matplotlib': 'plots of tools/benchmark.py and tools/compare_runs.py',
    'opencv-python': 'image transforms',
    'ninja': 'building the operators',
    'pytest': 'the tests',
}


def _version(*distributions: str) -> str | None:
    """``'2.1.0 (mmcv-lite)'``, or None when none is installed."""
    for name in distributions:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return version if name == distributions[0] else f'{version} ({name})'
    return None


def versions() -> list[tuple[str, str]]:
    """Rows of name and version."""
    from mmturbox import __version__
    rows = [('mmturbox', __version__),
            ('python', f'{platform.python_version()} {platform.machine()}')]
    rows += [(name, _version(*found) or 'not installed')
             for name, found in _VERSIONS.items()]
    return rows


def operators() -> list[tuple[str, str]]:
    """Rows of backend and what is loaded, or why not."""
    with warnings.catch_warnings():
        # The warning's content is in the rows.
        warnings.simplefilter('ignore')
        from mmturbox import ops
        from mmturbox.ops import mmcv_ext
    rows = []
    for device in ('cpu', 'cuda'):
        if ops.native(device):
            rows.append((device, f'native, {len(ops.OPERATORS)} operators'))
        else:
            rows.append((device, 'pure-torch references: '
                         f'{ops.MISSING[device]}'))
    return [*rows, ('mmcv._ext', mmcv_ext.status())]


def libraries() -> list[tuple[str, str]]:
    """Rows of optional library and its version, or what it is for."""
    rows = []
    for name, purpose in _OPTIONAL.items():
        found = _version(name, f'{name}-headless')
        rows.append((name, found or f'not installed; for {purpose}'))
    return rows


def passes() -> list[tuple[str, str, str, str, str]]:
    """Rows of side, name, parity, whether it can apply here, and summary."""
    from mmturbox.passes.base import Environment
    from mmturbox.passes.driver import all_passes, unmet_need
    env = Environment.detect({})
    rows = []
    for item in all_passes().values():
        paragraph = (type(item).__doc__ or '').split('\n\n')[0]
        summary = ' '.join(paragraph.split()).replace('``', '`')
        reason = unmet_need(item, env)
        can = f'no, {reason}' if reason else 'yes'
        rows.append((item.side, item.name, item.parity, can, summary))
    return rows


def report() -> str:
    """The whole text."""

    def table(rows):
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ('  '.join(c.ljust(w) for c, w in zip(r, widths, strict=True))
                 for r in rows)
        return [f'  {line.rstrip()}' for line in lines]

    head = ('side', 'pass', 'parity', 'can apply here', 'what it does')
    lines = [
        'Versions', *table(versions()), '', 'Operators', *table(operators()),
        '', 'Optional libraries', *table(libraries()), '',
        'Passes (tools/explain.py CONFIG shows what they do to a config)',
        *table([head, *passes()])
    ]
    return '\n'.join(lines)


if __name__ == '__main__':
    print(report())
