"""Will the predictions of a loader fit the evaluator, before they are made?

The official evaluation of nuScenes looks at split and version only when all
predictions are there, hours later. What can be known at the start is the
version that the dataset will claim, the tables beside the data, and which
split the info file's first record is in.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from .info_check import DataError, info_head, is_local

# NuScenesDataset.METAINFO of mmdet3d.
_DEFAULT_VERSION = 'v1.0-trainval'
_EVAL_SPLITS = {'v1.0-mini': 'mini_val', 'v1.0-trainval': 'val'}


def check_evaluation(evaluators: list[tuple[str, dict]],
                     datasets: list[tuple[str, dict]]) -> None:
    """Raise if an evaluator reads other data than the loader predicts.

    Args:
        evaluators: config key and config of each metric.
        datasets: config key and config of each innermost dataset.

    Raises:
        DataError: names both config keys and what to set.
    """
    infos = dict(_info_files(datasets))
    for where, node in evaluators:
        path = node.get('ann_file')
        if not infos or not is_local(node, path) or not _is_info(path):
            continue
        at, same = next(
            ((k, p) for k, p in infos.items() if _same(p, path)),
            (None, None))
        if same is None:
            key, other = next(iter(infos.items()))
            raise DataError(
                f'{where}.ann_file is {path}, but {key}.ann_file is {other}: '
                'the predictions for one would be judged by the other. Set '
                'both to the file of one split')
        kind = getattr(node.get('type'), '__name__', node.get('type'))
        if str(kind).rpartition('.')[2] == 'NuScenesMetric':
            _check_nuscenes(where, node, at, dict(datasets)[at], path)


def _info_files(datasets: list[tuple[str, dict]]
                ) -> Iterator[tuple[str, str]]:
    for where, node in datasets:
        path = node.get('ann_file')
        if is_local(node, path) and _is_info(path):
            yield where, os.path.join(node.get('data_root') or '', path)


def _is_info(path: str) -> bool:
    return path.endswith(('.pkl', '.pickle'))


def _same(path: str, other: str) -> bool:
    """The same file, or a copy as far as the size tells."""
    return (os.path.isfile(path) and os.path.isfile(other)
            and os.path.getsize(path) == os.path.getsize(other))


def _check_nuscenes(where: str, node: dict, at: str, dataset: dict,
                    path: str) -> None:
    version, token = info_head(path)
    claimed = (dataset.get('metainfo') or {}).get('version')
    name = str(dataset.get('type')).rpartition('.')[2].rstrip("'>")
    if claimed is None and name == 'NuScenesDataset':
        claimed = _DEFAULT_VERSION
    if claimed is None:
        return
    if version is not None and version != claimed:
        raise DataError(
            f'{at}.metainfo has version {claimed!r} (the default is '
            f'{_DEFAULT_VERSION!r}), but {path} was made from {version!r}; '
            f"set metainfo=dict(version='{version}', ...) or another ann_file")
    if node.get('format_only'):
        return
    if dataset.get('indices') is not None:
        raise DataError(
            f'{at}.indices takes a part of the split, but the official '
            f'evaluation ({where}) needs every sample; remove indices, or '
            'set format_only=True and jsonfile_prefix')
    if claimed not in _EVAL_SPLITS:
        raise DataError(
            f'{where} cannot evaluate on {claimed!r}, whose annotations are '
            'not public; set format_only=True and jsonfile_prefix, and '
            'send the file to the evaluation server')
    if is_local(node, node.get('data_root')):
        _check_split(where, Path(node['data_root']), claimed, path, token)


def _check_split(where: str, root: Path, version: str, path: str,
                 token: str | None) -> None:
    from .nuscenes.tables import found_versions
    tables = root / version
    if not (tables / 'sample.json').is_file():
        found = ', '.join(found_versions(root)) or 'no version'
        raise DataError(
            f'{where}.data_root: the evaluation needs the tables in {tables}, '
            f'but {root} has {found}; set another data_root or version')
    split = _EVAL_SPLITS[version]
    left_out = _left_out(Path(path))
    if left_out:
        raise DataError(
            f'{path} leaves out {left_out} samples that lacked sensor files '
            'when it was made, but the official evaluation needs every sample '
            f'of {split}; put the files there and convert again, or set '
            f'format_only=True for {where}')
    if token is None:
        return
    scene = _scene_of(tables, token)
    if scene is None:
        raise DataError(f'{path} was not made from the tables in {tables}: '
                        f'they have no sample {token}; make it anew: python '
                        'tools/create_data.py nuscenes')
    from nuscenes.utils.splits import create_splits_scenes
    if scene not in create_splits_scenes()[split]:
        raise DataError(
            f'{path} holds {scene}, which is not in {split}, the split that '
            f'{where} evaluates; set ann_file of dataset and evaluator to the '
            'validation file')


def _left_out(path: Path) -> int:
    """How many samples the converter left out, by its marker."""
    stem, _, _ = path.name.rpartition('_infos_')
    try:
        marker = json.loads((path.parent / f'{stem}_infos.json').read_text())
        return len(marker.get('left_out', ()))
    except (OSError, ValueError, AttributeError):
        return 0


def _scene_of(tables: Path, token: str) -> str | None:
    samples = json.loads((tables / 'sample.json').read_text())
    scene = next((s['scene_token'] for s in samples if s['token'] == token),
                 None)
    scenes = json.loads((tables / 'scene.json').read_text())
    return next((s['name'] for s in scenes if s['token'] == scene), None)
