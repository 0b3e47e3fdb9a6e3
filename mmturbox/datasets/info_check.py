"""Is the data of a config there, and in the layout its datasets read?

Only the head of an info file is looked at (opcodes of the pickle, nothing is
executed or loaded), so that a check costs milliseconds for any size.
"""

import itertools
import os
import pickletools
from collections.abc import Iterator
from typing import Any

from mmturbox.errors import ConfigError

NEEDED = ('the layout of mmdet3d 1.1 and later (a dict with "metainfo" and '
          '"data_list")')
_NEW_KEYS = ('metainfo', 'data_list')
# Far more than a metainfo and a first record have.
_HEAD_OPCODES = 50_000
_OLD_KEYS = ('infos', 'metadata')
# Loaders and evaluators that each kind of run reads.
_PARTS = {
    'train': ('train_dataloader', 'val_dataloader', 'val_evaluator'),
    'val': ('val_dataloader', 'val_evaluator'),
    'test': ('test_dataloader', 'test_evaluator'),
}


class DataError(ConfigError):
    """Data that is missing or cannot be read, and what to do."""


def info_layout(path: str | os.PathLike) -> str:
    """Which layout a pickled info file has.

    Returns:
        ``'new'`` (metainfo, data_list), ``'old'`` (infos, metadata),
        ``'list'`` (a bare list of records) or ``'other'``.

    Raises:
        DataError: if it is no pickle or was cut short.
    """
    path = os.fspath(path)
    with open(path, 'rb') as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 1))
        complete = file.read(1) == b'.'
        file.seek(0)
        try:
            layout = _first_key(file)
        except (ValueError, KeyError, EOFError, UnicodeError):
            layout = None
    if layout is None or not complete:
        raise DataError(
            f'the info file {path} is broken: it is no pickle or was cut '
            f'short (size {os.path.getsize(path)} bytes). Copy or make it '
            'anew')
    return layout


def _first_key(file) -> str | None:
    """Layout by the outermost container and its first key."""
    kind = None
    for opcode, value, _ in pickletools.genops(file):
        name = opcode.name
        if kind is None and name in ('EMPTY_DICT', 'DICT'):
            kind = 'dict'
        elif kind is None and name in ('EMPTY_LIST', 'LIST'):
            return 'list'
        elif kind == 'dict' and isinstance(value, str):
            if value in _NEW_KEYS:
                return 'new'
            return 'old' if value in _OLD_KEYS else 'other'
        elif name == 'STOP':
            return 'other'
    return None


def info_head(
        path: str | os.PathLike) -> tuple[str | None, str | None]:
    """Version and first sample token of an info file of the new layout.

    Returns:
        ``metainfo.version`` and ``data_list[0].token``, None for what is not
        near the beginning of the file.
    """
    found: dict[str, str] = {}
    key, wanted = None, {'version': 'metainfo', 'token': 'data_list'}
    outer = ''
    with open(path, 'rb') as file:
        for opcode, value, _ in itertools.islice(
                pickletools.genops(file), _HEAD_OPCODES):
            if 'PUT' in opcode.name or opcode.name == 'MEMOIZE':
                continue
            if key is not None and isinstance(value, str):
                found[key] = value
            key = None
            if value in _NEW_KEYS:
                outer = value
            elif value not in found and wanted.get(value) == outer:
                key = value
            if len(found) == len(wanted):
                break
    return found.get('version'), found.get('token')


def check_info_file(path: str | os.PathLike) -> None:
    """Raise unless ``path`` is an info file that mmdet3d 1.x reads.

    Raises:
        DataError: if it is missing, broken or of another version; names the
            version found, the one needed and the conversion.
    """
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise DataError(f'the info file {path} does not exist')
    layout = info_layout(path)
    if layout == 'new':
        return
    found, remedy = {
        'old': ('the old layout of mmdet3d before 1.1 (a dict with "infos" '
                'and "metadata")', 'Convert it: python tools/create_data.py '
                f'update-infos --infos {path} --out DIR (nuScenes)'),
        'list': ('the old layout of mmdet3d before 1.1 (a list of records)',
                 'Convert it with mmdet3d: python tools/dataset_converters/'
                 f'update_infos_to_v2.py --dataset NAME --pkl-path {path} '
                 '--out-dir DIR'),
        'other': ('neither layout of mmdet3d',
                  'Make it anew, for nuScenes: python tools/create_data.py '
                  'nuscenes'),
    }[layout]
    raise DataError(f'the info file {path} has {found}; the dataset needs '
                    f'{NEEDED}. {remedy}')


def check_data_configs(cfg: Any, mode: str = 'train') -> None:
    """Raise if data that a run reads is missing or of the wrong version.

    Looks through dataset wrappers; evaluators must read the split and version
    that their loader predicts. Only local paths are checked, and the
    layout only where the dataset reads its annotations as
    ``mmengine.dataset.BaseDataset`` does.

    Args:
        cfg: the whole config.
        mode: ``'train'`` checks the loaders and evaluators of training and
            validation, ``'val'`` and ``'test'`` only their own.

    Raises:
        DataError: the first thing found wrong.
    """
    from .evaluation_check import check_evaluation
    scope = cfg.get('default_scope') or 'mmengine'
    for part in _PARTS[mode]:
        node = cfg.get(part)
        if node is None:
            continue
        if part.endswith('_dataloader'):
            for where, dataset in _loader_datasets(cfg, part):
                _check_node(dataset, where, scope)
        else:
            metrics = list(_metrics(node, part))
            for where, metric in metrics:
                _check_evaluator(metric, where)
            loader = part.replace('_evaluator', '_dataloader')
            check_evaluation(metrics, _loader_datasets(cfg, loader))


def _loader_datasets(cfg: Any, part: str) -> list[tuple[str, dict]]:
    loader = cfg.get(part) or {}
    return list(_datasets(loader.get('dataset'), f'{part}.dataset'))


def _metrics(node: Any, part: str) -> Iterator[tuple[str, dict]]:
    """Config key and config of each metric of an evaluator."""
    evaluators = node if isinstance(node, (list, tuple)) else [node]
    for i, evaluator in enumerate(evaluators):
        if isinstance(evaluator, dict):
            yield part if evaluator is node else f'{part}.{i}', evaluator


def _datasets(node: Any, where: str) -> Iterator[tuple[str, dict]]:
    """The innermost dataset configs, through any wrappers."""
    if not isinstance(node, dict):
        return
    if isinstance(node.get('dataset'), dict):
        yield from _datasets(node['dataset'], f'{where}.dataset')
    elif isinstance(node.get('datasets'), (list, tuple)):
        for i, child in enumerate(node['datasets']):
            yield from _datasets(child, f'{where}.datasets.{i}')
    else:
        yield where, node


def is_local(node: dict, path: Any) -> bool:
    """Whether a config's node reads ``path`` from the local file system."""
    backend = (node.get('backend_args') or {}).get('backend', 'local')
    return (isinstance(path, str) and path != '' and '://' not in path
            and backend == 'local')


def _missing(kind: str, path: str, where: str) -> DataError:
    remedy = 'put or link the data there, or set another path'
    if 'synthetic' in path:
        root = path.rpartition('/')[0] if path.endswith('.pkl') else path
        name = 'argoverse2' if 'argoverse' in path else 'nuscenes'
        remedy = (f'make it: python tools/create_data.py synthetic-{name} '
                  f'--out {root}')
    full = '' if os.path.isabs(path) else f' (in {os.getcwd()})'
    return DataError(
        f'{where}: the {kind} {path}{full} does not exist; {remedy}')


def _check_root(node: dict, where: str) -> None:
    root = node.get('data_root')
    if is_local(node, root) and not os.path.isdir(root):
        raise _missing('data root', root, f'{where}.data_root')


def _check_node(node: dict, where: str, scope: str) -> None:
    ann_file = node.get('ann_file')
    root = node.get('data_root') or ''
    # Sets without an annotation file may fetch their data themselves.
    if not is_local(node, ann_file) or '://' in root:
        return
    _check_root(node, where)
    path = os.path.join(root, ann_file)
    if not os.path.exists(path):
        raise _missing('annotation file', path, f'{where}.ann_file')
    if not path.endswith(('.pkl', '.pickle')):
        return
    try:
        check_info_file(path)
    except DataError as error:
        # Most runs end above, without the dataset's class being imported.
        if _reads_new_layout(node.get('type'), scope):
            raise DataError(f'{where}.ann_file: {error}') from None


def _check_evaluator(node: dict, where: str) -> None:
    _check_root(node, where)
    path = node.get('ann_file')
    if is_local(node, path) and not os.path.exists(path):
        raise _missing('annotation file', path, f'{where}.ann_file')


def _reads_new_layout(kind: Any, scope: str) -> bool:
    """Whether the dataset class leaves reading to MMEngine."""
    from mmengine.dataset import BaseDataset
    from mmengine.registry import DATASETS
    if isinstance(kind, str):
        with DATASETS.switch_scope_and_registry(scope) as registry:
            kind = registry.get(kind)
    return (isinstance(kind, type) and issubclass(kind, BaseDataset)
            and kind.load_data_list is BaseDataset.load_data_list)
