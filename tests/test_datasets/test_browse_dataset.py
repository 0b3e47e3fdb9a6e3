"""The program on a tiny set, on scenarios, and on what it cannot draw."""

import pickle
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import cv2
import numpy as np
import pytest

from mmturbox.datasets.browse import command
from mmturbox.datasets.info_check import DataError

ROOT = Path(__file__).parents[2]
WIDTH = 160


@pytest.fixture
def tiny(occupancy_root):
    """Two key frames each of train and val."""
    return occupancy_root


def run(*arguments):
    parser = ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(a) for a in arguments]))


def draw(source, out, *arguments):
    paths = run(source, '--out', out, '--camera-width', WIDTH, *arguments)
    return [cv2.imread(str(p)) for p in paths]


def changed(path, to, change):
    content = pickle.loads(path.read_bytes())
    for record in content['data_list']:
        change(record)
    to.write_bytes(pickle.dumps(content))
    return to


def test_the_program_draws_one_picture_a_sample(tiny, tmp_path):
    done = subprocess.run([
        sys.executable, 'tools/browse_dataset.py',
        str(tiny / 'nuscenes_infos_train.pkl'), '--out',
        str(tmp_path), '--camera-width',
        str(WIDTH)
    ], cwd=ROOT, capture_output=True, text=True, check=True)
    pictures = sorted(tmp_path.iterdir())
    assert len(pictures) == 2
    assert f'2 pictures in {tmp_path}' in done.stdout
    image = cv2.imread(str(pictures[0]))
    assert image.shape[1] == 3 * WIDTH
    # Six photographs above, drawings on white below.
    assert (image[:180] == 255).all(-1).mean() < .2
    assert (image[180:] == 255).all(-1).mean() > .2


def test_parts_can_be_left_out(tiny, tmp_path):
    infos = tiny / 'nuscenes_infos_val.pkl'
    whole, = draw(infos, tmp_path, '--samples', 1)
    for option in (['--no-map'], ['--no-occupancy'], ['--camera-points'],
                   ['--sweeps', '3'], ['--range', '30']):
        part, = draw(infos, tmp_path, '--samples', 1, *option)
        assert (part != whole).any(), option
    again, = draw(infos, tmp_path, '--samples', 1)
    assert (again == whole).all()


def test_what_the_records_lack_is_said_once(tiny, tmp_path, capsys):
    """Info files of mmdet3d's own converter."""

    def strip(record):
        for key in ('scene_token', 'map_location', 'ego_status', 'can_bus',
                    'lidar_sweeps', 'gt_ego_fut_trajs', 'gt_ego_fut_masks',
                    'gt_ego_fut_cmd'):
            record.pop(key, None)
        for instance in record['instances']:
            for key in ('instance_token', 'instance_inds',
                        'gt_agent_fut_trajs', 'gt_agent_fut_masks'):
                del instance[key]

    infos = changed(tiny / 'nuscenes_infos_train.pkl', tmp_path / 'a.pkl',
                    strip)
    assert len(draw(infos, tmp_path, '--root', tiny, '--sweeps', 2)) == 2
    said = capsys.readouterr().out
    assert said.count('without the map') == 1
    assert said.count('without ways') == 1


def test_sets_without_cameras_or_boxes_are_drawn(tiny, tmp_path, capsys):

    def strip(record):
        del record['images']
        record['instances'] = []

    infos = changed(tiny / 'nuscenes_infos_train.pkl', tmp_path / 'a.pkl',
                    strip)
    image, _ = draw(infos, tmp_path, '--root', tiny)
    assert image.shape[0] < 2 * WIDTH
    assert 'without cameras' in capsys.readouterr().out


def test_missing_files_are_named(tiny, tmp_path):
    root = tmp_path / 'copy'
    shutil.copytree(tiny, root)
    infos = root / 'nuscenes_infos_train.pkl'
    for pattern in ('samples/CAM_BACK/*.jpg', 'samples/LIDAR_TOP/*.bin'):
        for path in root.glob(pattern):
            path.unlink()
        with pytest.raises(DataError, match='does not exist.*--root'):
            run(infos, '--out', tmp_path / 'out')
        assert not list((tmp_path / 'out').glob('*'))
        assert len(draw(infos, tmp_path / pattern[8:12],
                        '--allow-missing')) == 2


def test_a_map_that_is_cut_short_is_named(tiny, tmp_path):
    root = tmp_path / 'copy'
    shutil.copytree(tiny, root)
    path = root / 'maps' / 'expansion' / 'boston-seaport.json'
    path.write_text(path.read_text()[:1000])
    infos = root / 'nuscenes_infos_train.pkl'
    with pytest.raises(DataError, match='boston-seaport.*--no-map'):
        draw(infos, tmp_path / 'out')
    assert draw(infos, tmp_path / 'out', '--no-map')


def test_what_cannot_be_drawn_is_refused(tiny, tmp_path):
    old = tmp_path / 'old.pkl'
    old.write_bytes(pickle.dumps(dict(infos=[], metadata={})))
    (tmp_path / 'empty').mkdir()
    train = tiny / 'nuscenes_infos_train.pkl'
    other = changed(train, tmp_path / 'other.pkl',
                    lambda record: record.pop('ego2global'))
    for source, words in (
        (old, 'update-infos'),
        (tmp_path / 'gone.pkl', 'does not exist'),
        (tmp_path / 'gone', 'does not exist'),
        (tmp_path / 'empty', 'no Argoverse 2 scenario'),
        (tiny, r'nuscenes_infos_train\.pkl, nuscenes_infos_val\.pkl'),
        (other, 'ego2global'),
    ):
        with pytest.raises(DataError, match=words):
            run(source, '--out', tmp_path / 'out')
    for options, words in ((['--samples', '99'], 'has 2'),
                           (['--samples', 'nobody'], 'nobody'),
                           (['--every', '0'], 'at least 1'),
                           (['--range', '0'], 'above 0'),
                           (['--root', tmp_path / 'gone'], 'no folder')):
        with pytest.raises(DataError, match=words):
            run(train, '--out', tmp_path / 'out', *options)


def test_samples_are_chosen_by_number_token_or_step():
    records = [dict(token=f'token-{i}') for i in range(101)]
    assert command.choose(records, ['7', 'token-3'], None) == [7, 3]
    assert command.choose(records, None, 40) == [0, 40, 80]
    few = command.choose(records, None, None)
    assert len(few) == 10 and few[0] == 0 and few[-1] == 100
    assert command.choose(records[:3], None, None) == [0, 1, 2]


def test_a_config_names_info_file_and_root(tiny, tmp_path):
    config = tmp_path / 'config.py'
    config.write_text(f'''
train_dataloader = dict(dataset=dict(
    type='CBGSDataset',
    dataset=dict(
        type='NuScenesDataset',
        data_root={str(tiny)!r},
        ann_file='nuscenes_infos_val.pkl',
        data_prefix=dict(pts='samples/LIDAR_TOP', img='',
                         CAM_FRONT='samples/CAM_FRONT'))))
val_dataloader = dict(dataset=dict(type='NuScenesDataset', ann_file=''))
''')
    images = draw(config, tmp_path / 'out', '--samples', 0, '--not-show')
    direct = draw(tiny / 'nuscenes_infos_val.pkl', tmp_path, '--samples', 0)
    assert np.array_equal(images[0], direct[0])
    with pytest.raises(DataError, match='val_dataloader'):
        run(config, '--split', 'val')


def test_scenarios_are_drawn_from_folder_and_info_file(
        argoverse2_root, tmp_path):
    infos = argoverse2_root / 'argoverse2_infos_train.pkl'
    first, = draw(infos, tmp_path)
    record = pickle.loads(infos.read_bytes())['data_list'][0]
    folder = (argoverse2_root / record['scenario_path']).parent
    from_folder, = draw(folder, tmp_path)
    assert np.array_equal(first, from_folder)
    (folder / 'none').mkdir(exist_ok=True)
    with pytest.raises(DataError, match='no info file'):
        run(folder / 'none', '--out', tmp_path)


def test_the_focal_track_is_drawn_where_it_is(argoverse2_root):
    from mmturbox.datasets.argoverse2 import read_scenario
    from mmturbox.datasets.browse import scenario_sheet
    path = min((argoverse2_root / 'train').iterdir())
    image = scenario_sheet.draw_scenario(path, size=1000)
    tracks = read_scenario(path).tracks
    centre, radius = scenario_sheet._window(tracks)
    steps = tracks.valid[tracks.focal_index].nonzero()[0]
    places = tracks.position[tracks.focal_index, steps[steps > 60]]
    u, v = (499.5 + (places - centre) * (1, -1) * 500 / radius).T.round()
    drawn = image[v.astype(int), u.astype(int)].astype(int)
    away = np.abs(drawn - scenario_sheet.FOCAL_COLOUR).max(1)
    assert np.median(away) < 30
