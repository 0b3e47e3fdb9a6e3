"""The synthetic ground as a raster and as nuScenes' map mask."""

import numpy as np

from mmturbox.datasets.synthetic.ground_classes import (
    DRIVEABLE,
    SIDEWALK,
    TERRAIN,
    write_map_mask,
)


class TestMapMask:

    def test_the_devkits_mask_has_roads_and_walkways(self, city, ground,
                                                     tmp_path):
        from nuscenes.utils.map_mask import MapMask
        write_map_mask(tmp_path / 'mask.png', ground)
        mask = MapMask(str(tmp_path / 'mask.png'))
        for street in city.streets[::5]:
            along = street.centre.offset(0.).polyline()
            walk = street.centre.offset(-street.half_width - 2.).polyline()
            beyond = street.centre.offset(street.half_width + 6.).at(
                street.centre.length / 2)[0]
            assert mask.is_on_mask(*along.T).all()
            assert mask.is_on_mask(*walk.T).all()
            assert not mask.is_on_mask(*beyond[:, None]).any()
        picture = mask.mask()
        assert picture.ndim == 2 and picture.dtype == np.uint8
        assert set(np.unique(picture[::50, ::50])) == {0, 255}

    def test_edges_are_where_the_streets_edges_are(self, city, ground):
        street = city.streets[3]
        # Within a pixel and a half.
        for out, value in ((-.15, DRIVEABLE), (.15, SIDEWALK),
                           (3.85, SIDEWALK), (4.15, TERRAIN)):
            for side in (1., -1.):
                line = street.centre.offset(side * (street.half_width + out))
                assert (ground.at(line.polyline()[1:-1]) == value).all()

    def test_everything_beyond_is_terrain(self, ground):
        far = np.array([[0., 0.], [5000., 900.], [1100., -10.]])
        assert (ground.at(far) == TERRAIN).all()
