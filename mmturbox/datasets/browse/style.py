"""Colours of all pictures: blue, green, red, 0 to 255."""

from ..nuscenes.annotations import CLASSES

Colour = tuple[int, int, int]

PAPER, INK, FAINT = (255, 255, 255), (40, 40, 40), (150, 150, 150)
MISSING = (205, 205, 205)

BOXES: dict[str, Colour] = dict(
    car=(235, 110, 25),
    truck=(150, 150, 0),
    trailer=(170, 70, 70),
    bus=(200, 50, 130),
    construction_vehicle=(30, 95, 150),
    bicycle=(220, 0, 220),
    motorcycle=(120, 0, 170),
    pedestrian=(40, 40, 225),
    traffic_cone=(0, 130, 250),
    barrier=(110, 120, 0))
assert tuple(BOXES) == CLASSES
OTHER = (120, 120, 120)
EGO = (20, 20, 20)
# Where the vehicle itself was and will be.
EGO_WAY = (60, 160, 0)

# What the map's surfaces are filled with, in drawing order.
AREAS: dict[str, Colour] = dict(
    drivable_area=(232, 228, 225),
    carpark_area=(238, 224, 230),
    walkway=(222, 236, 240),
    ped_crossing=(245, 228, 200),
    stop_line=(210, 200, 245))
LINES: dict[str, Colour] = dict(
    boundary=(60, 190, 40),
    stop_line=(160, 90, 250),
    ped_crossing=(250, 190, 40),
    lane_divider=(0, 190, 255),
    road_divider=(0, 90, 255))
CENTRE_LINE = (190, 185, 180)

OCCUPANCY: dict[str, Colour] = dict(
    noise=PAPER,
    **{
        name: BOXES[name]
        for name in ('barrier', 'bicycle', 'bus', 'car',
                     'construction_vehicle', 'motorcycle', 'pedestrian',
                     'traffic_cone', 'trailer', 'truck')
    },
    driveable_surface=(205, 200, 195),
    other_flat=(190, 170, 205),
    sidewalk=(170, 205, 220),
    terrain=(150, 215, 185),
    manmade=(110, 115, 125),
    vegetation=(80, 160, 90))
