"""The devkit's detection benchmark gives the annotations full marks."""

import json

import numpy as np
import pytest
from nuscenes.eval.common.config import config_factory
from nuscenes.eval.detection.evaluate import DetectionEval
from nuscenes.eval.detection.utils import category_to_detection_name

TRUE_POSITIVE_ERRORS = ('trans_err', 'scale_err', 'orient_err', 'vel_err',
                        'attr_err')


def predictions(nusc, tokens, shift=0.) -> dict:
    """The annotations as a submission, but those without points, which the
    benchmark leaves out.

    Args:
        shift: metres that every box is moved to the east.
    """
    results = {}
    for token in tokens:
        results[token] = []
        for key in nusc.get('sample', token)['anns']:
            ann = nusc.get('sample_annotation', key)
            if ann['num_lidar_pts'] == 0:
                continue
            attributes = [
                nusc.get('attribute', t)['name']
                for t in ann['attribute_tokens']
            ]
            x, y, z = ann['translation']
            results[token].append(
                dict(
                    sample_token=token,
                    translation=[x + shift, y, z],
                    size=ann['size'],
                    rotation=ann['rotation'],
                    velocity=nusc.box_velocity(key)[:2].tolist(),
                    detection_name=category_to_detection_name(
                        ann['category_name']),
                    detection_score=.5,
                    attribute_name=attributes[0] if attributes else ''))
    modality = dict.fromkeys(
        ('use_camera', 'use_lidar', 'use_radar', 'use_map', 'use_external'),
        False)
    return dict(meta=modality, results=results)


@pytest.fixture(scope='module')
def score(nusc, split_tokens, tmp_path_factory):

    def run(split, **kwargs):
        folder = tmp_path_factory.mktemp('detection')
        path = folder / 'results.json'
        path.write_text(
            json.dumps(predictions(nusc, split_tokens(split), **kwargs)))
        evaluation = DetectionEval(
            nusc,
            config_factory('detection_cvpr_2019'),
            str(path),
            split,
            str(folder),
            verbose=False)
        return evaluation.evaluate()[0]

    return run


@pytest.mark.parametrize('split', ['mini_train', 'mini_val'])
def test_the_annotations_themselves_score_everything(score, split):
    metrics = score(split)
    assert metrics.mean_ap == pytest.approx(1., abs=1e-9)
    assert metrics.nd_score == pytest.approx(1., abs=1e-9)
    # Each class is there, else its errors would count as 1.
    for name in TRUE_POSITIVE_ERRORS:
        assert metrics.tp_errors[name] == pytest.approx(0., abs=1e-9), name


def test_boxes_out_of_place_score_less(score):
    near, far = score('mini_val', shift=.75), score('mini_val', shift=8.)
    # Three of the four distances, 0.5 m being missed.
    assert near.mean_ap == pytest.approx(.75, abs=.05)
    assert near.tp_errors['trans_err'] == pytest.approx(.75, abs=.05)
    assert far.mean_ap < .2
    assert np.isfinite(far.nd_score)
