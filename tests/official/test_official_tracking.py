"""The devkit's tracking benchmark gives the annotations full marks."""

import json

import pytest
from nuscenes.eval.common.config import config_factory
from nuscenes.eval.tracking.evaluate import TrackingEval
from nuscenes.eval.tracking.utils import category_to_tracking_name

from mmturbox.datasets.synthetic.tables import VERSION

CLASSES = {
    'bicycle', 'bus', 'car', 'motorcycle', 'pedestrian', 'trailer', 'truck'
}


def tracks(nusc, tokens, exchange=False) -> dict:
    """The annotations as a submission, but those without points, which the
    benchmark leaves out.

    Args:
        exchange: whether every track gets a new identity half-way.
    """
    results = {}
    for place, token in enumerate(tokens):
        results[token] = []
        for key in nusc.get('sample', token)['anns']:
            ann = nusc.get('sample_annotation', key)
            name = category_to_tracking_name(ann['category_name'])
            if name is None or ann['num_lidar_pts'] == 0:
                continue
            identity = ann['instance_token']
            if exchange and place >= len(tokens) // 2:
                identity += 'b'
            results[token].append(
                dict(
                    sample_token=token,
                    translation=ann['translation'],
                    size=ann['size'],
                    rotation=ann['rotation'],
                    velocity=nusc.box_velocity(key)[:2].tolist(),
                    tracking_id=identity,
                    tracking_name=name,
                    tracking_score=.5))
    modality = dict.fromkeys(
        ('use_camera', 'use_lidar', 'use_radar', 'use_map', 'use_external'),
        False)
    return dict(meta=modality, results=results)


@pytest.fixture(scope='module')
def score(nusc, split_tokens, official_root, tmp_path_factory):

    def run(split, **kwargs):
        folder = tmp_path_factory.mktemp('tracking')
        path = folder / 'results.json'
        path.write_text(
            json.dumps(tracks(nusc, split_tokens(split), **kwargs)))
        evaluation = TrackingEval(
            config_factory('tracking_nips_2019'),
            str(path),
            split,
            str(folder),
            VERSION,
            str(official_root),
            verbose=False)
        return evaluation.evaluate()[0]

    return run


@pytest.mark.parametrize('split', ['mini_train', 'mini_val'])
def test_the_annotations_themselves_score_everything(score, split):
    metrics = score(split)
    assert set(metrics.label_metrics['amota']) == CLASSES
    for name in CLASSES:
        values = {k: v[name] for k, v in metrics.label_metrics.items()}
        assert values['gt'] > 0, name
        assert values['amota'] == pytest.approx(1., abs=1e-9), (name, values)
        assert values['amotp'] == pytest.approx(0., abs=1e-5), (name, values)
        assert values['recall'] == pytest.approx(1.), (name, values)
        for kind in ('ids', 'frag', 'fp', 'fn', 'ml'):
            assert values[kind] == 0, (name, values)


def test_tracks_that_change_identity_are_counted(score):
    metrics = score('mini_val', exchange=True)
    switches = metrics.label_metrics['ids']
    assert sum(switches.values()) > 10
    assert metrics.compute_metric('amota') < .95
