"""What moves and stands in the synthetic world, with nuScenes' names."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One class of actors.

    Attributes:
        name: detection class of the nuScenes benchmark.
        category: name in the nuScenes table ``category``.
        size: mean length, width, height in metres; length lies along the
            heading, so a barrier is short and wide.
        attributes: while it moves, while somebody in it waits, and while it
            stands for good; none for classes without attributes.
        reflectivity: mean LiDAR intensity, 0 to 255.
    """
    name: str
    category: str
    size: tuple[float, float, float]
    attributes: tuple[str, ...]
    reflectivity: float


MOVES, WAITS, STANDS = 0, 1, 2

_VEHICLE = ('vehicle.moving', 'vehicle.stopped', 'vehicle.parked')
_CYCLE = ('cycle.with_rider', 'cycle.with_rider', 'cycle.without_rider')
_PERSON = ('pedestrian.moving', 'pedestrian.standing', 'pedestrian.standing')

KINDS = (
    Kind('car', 'vehicle.car', (4.6, 1.95, 1.7), _VEHICLE, 30.),
    Kind('truck', 'vehicle.truck', (6.9, 2.5, 2.8), _VEHICLE, 24.),
    Kind('construction_vehicle', 'vehicle.construction', (6.4, 2.8, 3.2),
         _VEHICLE, 40.),
    Kind('bus', 'vehicle.bus.rigid', (11., 2.9, 3.4), _VEHICLE, 28.),
    Kind('trailer', 'vehicle.trailer', (12., 2.9, 3.8), _VEHICLE, 20.),
    Kind('barrier', 'movable_object.barrier', (0.5, 2.5, 1.0), (), 60.),
    Kind('motorcycle', 'vehicle.motorcycle', (2.1, 0.8, 1.5), _CYCLE, 22.),
    Kind('bicycle', 'vehicle.bicycle', (1.7, 0.6, 1.3), _CYCLE, 16.),
    Kind('pedestrian', 'human.pedestrian.adult', (0.75, 0.7, 1.8), _PERSON,
         12.),
    Kind('traffic_cone', 'movable_object.trafficcone', (0.4, 0.4, 1.05), (),
         90.),
)
KIND_INDEX = {kind.name: i for i, kind in enumerate(KINDS)}
