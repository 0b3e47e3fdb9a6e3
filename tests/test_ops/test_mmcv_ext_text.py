"""mmcv's region growing over our ``mmcv._ext``, against plain queues."""

from collections import deque

import numpy as np
import pytest

pytest.importorskip('mmcv')

from mmturbox.ops import mmcv_ext  # noqa: E402


@pytest.fixture(scope='module')
def mmcv_ops():
    mmcv_ext.install()
    return pytest.importorskip('mmcv.ops')


def blobs(seed, size=(17, 23), labels=4):
    """Random labels with several pixels each, and growing masks."""
    random = np.random.RandomState(seed)
    label = np.zeros(size, np.int32)
    for index in range(1, labels + 1):
        y, x = random.randint(0, size[0] - 2), random.randint(0, size[1] - 2)
        label[y:y + 2, x:x + random.randint(1, 4)] = index
    chance = random.rand(*size)
    masks = np.stack([chance < 0.8, chance < 0.6, chance < 0.4, label > 0])
    return label, masks.astype(np.uint8), random


def expand_by_hand(masks, label, least):
    label = label.copy()
    area = np.bincount(label.ravel())
    label[area[label] < least] = 0
    queue = deque(zip(*label.nonzero(), strict=True))
    for mask in masks[-2::-1]:
        rest = deque()
        while queue:
            y, x = queue.popleft()
            took = False
            for dy, dx in ((-1, 0), (1, 0), (0, -1), (0, 1)):
                at = y + dy, x + dx
                if (0 <= at[0] < mask.shape[0] and 0 <= at[1] < mask.shape[1]
                        and mask[at] and not label[at]):
                    label[at] = label[y, x]
                    queue.append(at)
                    took = True
            if not took:
                rest.append((y, x))
        queue = rest
    return label


@pytest.mark.parametrize('seed', range(5))
@pytest.mark.parametrize('least', [0, 3])
def test_contour_expand(mmcv_ops, seed, least):
    label, masks, _ = blobs(seed)
    got = mmcv_ops.contour_expand(masks, label, least, 5)
    assert np.array_equal(got, expand_by_hand(masks, label, least))


def test_no_kernels_stay_none(mmcv_ops):
    masks = np.ones((3, 4, 5), np.uint8)
    got = mmcv_ops.contour_expand(masks, np.zeros((4, 5), np.int32), 0, 3)
    assert not np.any(got) and np.shape(got) == (4, 5)


@pytest.mark.parametrize('seed', range(5))
def test_pixel_group(mmcv_ops, seed):
    label, masks, random = blobs(seed)
    score = random.rand(*label.shape).astype(np.float32)
    embedding = random.rand(*label.shape, 3).astype(np.float32)
    contour = (label > 0).astype(np.uint8) * (random.rand(*label.shape) < 0.8)
    contour = contour.astype(np.uint8)
    grown = label.copy()
    means = [embedding[label == i].mean(0) for i in range(5)]
    queue = deque(zip(*((label > 0) & (contour > 0)).nonzero(), strict=True))
    while queue:
        y, x = queue.popleft()
        for dy, dx in ((0, -1), (0, 1), (-1, 0), (1, 0)):
            at = y + dy, x + dx
            if (0 <= at[0] < label.shape[0] and 0 <= at[1] < label.shape[1]
                    and masks[0][at] and not grown[at]):
                gap = means[grown[y, x]] - embedding[at]
                if (gap**2).sum() < 0.25:
                    grown[at] = grown[y, x]
                    queue.append(at)
    assert (grown > 0).sum() > (label > 0).sum()
    got = mmcv_ops.pixel_group(score, masks[0] > 0, embedding, label, contour,
                               6, 0.5)
    assert got[0] == got[5] == [0, 0]
    for index in range(1, 5):
        y, x = (grown == index).nonzero()
        if not len(y):
            assert got[index] == [0, 0]
            continue
        np.testing.assert_allclose(got[index][0], score[y, x].mean(), 1e-5)
        assert got[index][1] == len(y)
        assert got[index][2:] == np.stack([x, y], 1).ravel().tolist()
