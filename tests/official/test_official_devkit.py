"""The devkit opens the set, finds everything and draws it."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from nuscenes.nuscenes import NuScenes
from nuscenes.utils.data_classes import LidarPointCloud

from mmturbox.datasets.synthetic import create_synthetic_nuscenes
from mmturbox.datasets.synthetic.scene import Contents
from mmturbox.datasets.synthetic.tables import LOCATION

# What the names of references point to, where they do not tell.
TABLE_OF = dict(
    first_sample='sample',
    last_sample='sample',
    first_annotation='sample_annotation',
    last_annotation='sample_annotation')
CHANNELS = {
    'LIDAR_TOP', 'CAM_FRONT', 'CAM_FRONT_LEFT', 'CAM_FRONT_RIGHT',
    'CAM_BACK', 'CAM_BACK_LEFT', 'CAM_BACK_RIGHT'
}


def test_every_reference_resolves_and_tokens_are_unique(nusc):
    count = 0
    for table in nusc.table_names:
        rows = getattr(nusc, table)
        assert rows, table
        assert len({row['token'] for row in rows}) == len(rows), table
        for row in rows:
            for key, value in row.items():
                stem = key.removesuffix('s').removesuffix('_token')
                if key in ('prev', 'next'):
                    target, tokens = table, [value] if value else []
                elif key.endswith(('_token', '_tokens')):
                    target = TABLE_OF.get(stem, stem)
                    tokens = [value] if isinstance(value, str) else value
                else:
                    continue
                for token in tokens:
                    assert nusc.get(target, token)['token'] == token
                    count += 1
    assert count > 5 * len(nusc.sample_annotation)


def test_chains_are_closed_and_in_time_order(nusc):
    for table, time_of in (
        ('sample', lambda row: row['timestamp']),
        ('sample_data', lambda row: row['timestamp']),
        ('sample_annotation',
         lambda row: nusc.get('sample', row['sample_token'])['timestamp'])):
        for row in getattr(nusc, table):
            if row['next']:
                after = nusc.get(table, row['next'])
                assert after['prev'] == row['token']
                assert time_of(after) > time_of(row)
            if row['prev']:
                before = nusc.get(table, row['prev'])
                assert before['next'] == row['token']


def test_scenes_and_instances_count_what_hangs_on_them(nusc):
    for scene in nusc.scene:
        chain = follow(nusc, 'sample', scene['first_sample_token'])
        assert len(chain) == scene['nbr_samples']
        assert chain[-1]['token'] == scene['last_sample_token']
        assert {row['scene_token'] for row in chain} == {scene['token']}
    for instance in nusc.instance:
        chain = follow(nusc, 'sample_annotation',
                       instance['first_annotation_token'])
        assert len(chain) == instance['nbr_annotations']
        assert chain[-1]['token'] == instance['last_annotation_token']
        assert {row['instance_token'] for row in chain} == {
            instance['token']
        }
        # No key frame is left out in between.
        samples = [nusc.get('sample', row['sample_token']) for row in chain]
        for first, second in zip(samples, samples[1:], strict=False):
            assert first['next'] == second['token']
        sizes = {tuple(row['size']) for row in chain}
        assert len(sizes) == 1


def follow(nusc, table, token) -> list[dict]:
    rows = []
    while token:
        rows.append(nusc.get(table, token))
        token = rows[-1]['next']
    return rows


def test_each_key_frame_has_all_sensors_at_its_time(nusc, official_root):
    import cv2
    for sample in nusc.sample:
        assert set(sample['data']) == CHANNELS
        for channel, token in sample['data'].items():
            row = nusc.get('sample_data', token)
            assert row['is_key_frame']
            assert row['timestamp'] == sample['timestamp']
            assert row['filename'].startswith(f'samples/{channel}/')
            path, boxes, intrinsic = nusc.get_sample_data(token)
            assert row['channel'] == channel
            if channel == 'LIDAR_TOP':
                points = LidarPointCloud.from_file(path).points
                assert points.shape[1] > 20_000
                assert len(boxes) == len(sample['anns'])
            else:
                image = cv2.imread(path)
                assert image.shape == (row['height'], row['width'], 3)
                assert intrinsic.shape == (3, 3)
    for row in nusc.sample_data:
        assert (official_root / row['filename']).stat().st_size > 0


@contextmanager
def plain_pixels() -> Iterator[None]:
    """The devkit makes integers of arrays, which NumPy 2.4 refuses."""
    from nuscenes.utils.map_mask import MapMask
    convert = MapMask.to_pixel_coords

    def to_pixel_coords(*args):
        return [v.item() for v in convert(*args)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MapMask, 'to_pixel_coords', to_pixel_coords)
        yield


def test_everything_can_be_drawn(nusc, tmp_path):
    import matplotlib
    import matplotlib.pyplot as plt
    before = matplotlib.get_backend()
    plt.switch_backend('agg')
    try:
        with matplotlib.rc_context({'savefig.dpi': 50}):
            draw(nusc, tmp_path)
    finally:
        plt.close('all')
        plt.switch_backend(before)
    assert len(list(tmp_path.iterdir())) == 6
    for path in tmp_path.iterdir():
        picture = plt.imread(path)
        # Neither blank nor of one colour.
        assert np.std(picture[..., :3]) > .02, path.name


def draw(nusc: NuScenes, folder) -> None:
    from nuscenes.map_expansion import map_api
    sample = nusc.get('sample', nusc.scene[0]['last_sample_token'])
    scene = sample['scene_token']

    def out(name):
        return str(folder / f'{name}.png')

    lidar, camera = (sample['data'][c] for c in ('LIDAR_TOP', 'CAM_FRONT'))
    annotation = next(
        t for t in sample['anns']
        if nusc.get('sample_annotation', t)['visibility_token'] == '4')
    instance = nusc.get('sample_annotation', annotation)['instance_token']
    with plain_pixels():
        nusc.render_sample_data(lidar, out_path=out('lidar'), verbose=False)
        nusc.render_instance(instance, out_path=out('instance'))
    nusc.render_sample_data(camera, out_path=out('camera'), verbose=False)
    nusc.render_pointcloud_in_image(
        sample['token'], out_path=out('points'), verbose=False)
    nusc.render_egoposes_on_map(LOCATION, [scene], out_path=out('way'))
    with pytest.MonkeyPatch.context() as patch:
        # descartes reads polygons as Shapely 1 had them.
        patch.setattr(map_api.descartes, 'PolygonPatch', outline)
        map_api.NuScenesMap(nusc.dataroot, LOCATION).render_map_in_image(
            nusc, sample['token'], out_path=out('map'), verbose=False)


def outline(polygon, **kwargs):
    from matplotlib.patches import Polygon
    return Polygon(polygon.exterior.coords, **kwargs)


def test_same_seed_gives_same_bytes_for_any_number_of_processes(tmp_path):
    """Images, map, CAN bus and occupancy among them."""
    contents = Contents((96, 54), occupancy=True)
    files = []
    for workers in (1, 2):
        root = tmp_path / str(workers)
        create_synthetic_nuscenes(
            root, 2, 2, workers=workers, contents=contents)
        files.append({
            path.relative_to(root): path.read_bytes()
            for path in root.rglob('*') if path.is_file()
        })
    assert files[0].keys() == files[1].keys()
    names = [str(name) for name in files[0]]
    for folder, suffix, count in (('samples', '.jpg', 24),
                                  ('nuscenes_occ', '.npy', 4),
                                  ('can_bus', '.json', 16),
                                  ('maps/expansion', '.json', 1)):
        found = [n for n in names
                 if n.startswith(folder) and n.endswith(suffix)]
        assert len(found) == count, folder
    assert [n for n in files[0] if files[0][n] != files[1][n]] == []
