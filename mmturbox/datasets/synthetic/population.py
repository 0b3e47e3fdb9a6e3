"""Who is on the streets of a scene: the ego vehicle, traffic, what stands."""

from dataclasses import dataclass

import numpy as np

from .city import (
    CYCLE_WIDTH,
    LANE_WIDTH,
    PARKING_WIDTH,
    STOP_LINE,
    City,
    Lane,
    Street,
)
from .kinds import KIND_INDEX, KINDS
from .routes import along_lanes, make_lights, on_walkway, over_crossing
from .traffic import (
    CYCLE,
    CYCLIST,
    DRIVER,
    WALKER,
    Gate,
    Lights,
    Manners,
    Mover,
    speed_limit,
)

EGO_SIZE = np.array([4.08, 1.73, 1.56])
# From the ego origin, its rear axle, to its box centre.
EGO_AHEAD = 1.35
# Streets farther from the ego vehicle's way stay empty, metres.
REACH = 75.
_TRAFFIC = {
    'car': .76, 'motorcycle': .08, 'truck': .07, 'bus': .05, 'trailer': .04
}
_LONG = ('truck', 'bus', 'trailer')
# What stands on the two sides of each street, beside cars.
_WORKS = ('trailer', 'barrier', *6 * ('traffic_cone', ),
          'construction_vehicle', *3 * ('traffic_cone', ), 'barrier',
          'bicycle', 'motorcycle')
_PARKED = ('truck', 'bus', 'motorcycle', 'bicycle', 'bicycle')


@dataclass(frozen=True)
class Population:
    """Everybody at time 0.

    Attributes:
        ego: the ego vehicle.
        movers: who goes.
        kind, size, pose: (P,), (P, 3), (P, 3) kinds, sizes and x, y, yaw of
            what stands.
    """
    ego: Mover
    movers: list[Mover]
    lights: Lights
    kind: np.ndarray
    size: np.ndarray
    pose: np.ndarray


def populate(city: City, duration: float,
             rng: np.random.Generator) -> Population:
    """Fill the streets around a random way of the ego vehicle."""
    lights = make_lights(city, rng)
    ego, first = _ego(city, duration, lights, rng)
    way = ego.path.at(np.arange(
        0., ego.start + ego.desired * duration, 10.))[0]
    streets = [
        street for street in city.streets if np.linalg.norm(
            street.centre.polyline(step=10.)[:, None] - way,
            axis=-1).min() < REACH
    ]
    movers = _vehicles(city, streets, duration, ego, first, rng)
    movers += _cyclists(city, streets, rng)
    movers += _clear_of(movers, _walkers(streets, lights, rng))
    standing = [row for street in streets for row in _standing(street, rng)]
    kind = np.array([KIND_INDEX[name] for name, _ in standing])
    pose = np.array([pose for _, pose in standing])
    return Population(ego, movers, lights, kind, _sizes(kind, rng), pose)


def _sizes(kind: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    size = np.array([k.size for k in KINDS])[kind]
    return size * rng.uniform(.93, 1.07, size.shape)


def _mover(name: str, rng: np.random.Generator, *args,
           manners: Manners = DRIVER,
           gates: tuple[Gate, ...] = ()) -> Mover:
    kind = KIND_INDEX[name]
    return Mover(kind, _sizes(np.array([kind]), rng)[0], *args,
                 manners=manners, gates=gates)


def _ego(city: City, duration: float, lights: Lights,
         rng: np.random.Generator) -> tuple[Mover, Lane]:
    """The ego vehicle, shortly before a turn, and the lane it starts on."""
    turn = str(rng.choice(['left', 'right']))
    starts = [
        lane for lane in city.lanes if not lane.is_connector
        and len(city.junctions[lane.junction].arms) > 2
        and any(city.lanes[e].turn == turn for e in lane.exits)
    ]
    first = starts[int(rng.integers(len(starts)))]
    desired = rng.uniform(7.5, 9.)
    start = first.path.length - rng.uniform(19., 29.)
    route = along_lanes(
        city, first, start + desired * duration + 40., rng,
        turns=(turn, *rng.permutation(['left', 'right', 'straight'])))
    ego = Mover(KIND_INDEX['car'], EGO_SIZE, route.path, start, desired,
                DRIVER, route.gates, EGO_AHEAD)
    limit = speed_limit(route.path, desired, route.path.length)
    passed = np.cumsum(.5 / limit)
    for gate, lane in zip(
            route.gates, [n for n in route.lanes if n.is_connector],
            strict=False):
        key = gate.junction, gate.street
        if key not in lights.group:
            continue
        time = passed[int(gate.s / .5)] - passed[int(start / .5)]
        # Mostly green for some seconds already, sometimes still red.
        green = (rng.uniform(.5, 5.) if rng.random() < .7 else
                 -rng.uniform(1.5, 4.))
        lights.offset[gate.junction] = float(
            green - time + lights.group[key] * CYCLE / 2) % CYCLE
        if lane.turn == 'left':
            lights.held.update((gate.junction, s) for s in _opposite(
                city, gate))
    return ego, first


def _opposite(city: City, gate: Gate) -> list[int]:
    """Streets that enter the junction against the gate's street."""
    arms = city.junctions[gate.junction].arms
    heading = next(a.heading for a in arms if a.street == gate.street)
    return [a.street for a in arms if np.cos(a.heading - heading) < -.5]


def _vehicles(city: City, streets: list[Street], duration: float, ego: Mover,
              ego_lane: Lane, rng: np.random.Generator) -> list[Mover]:
    movers = []
    names, shares = list(_TRAFFIC), list(_TRAFFIC.values())
    for street in streets:
        for index in (*street.forward, *street.backward):
            lane = city.lanes[index]
            s = rng.uniform(2., 22.)
            while s < lane.path.length - 8.:
                desired = rng.uniform(7., 10.)
                route = along_lanes(city, lane,
                                    s + desired * duration + 40., rng)
                name = str(rng.choice(names, p=shares))
                if name in _LONG and (s < 9. or route.turns_within(
                        s + desired * duration)):
                    name = 'car'
                clear = lane is not ego_lane or (
                    abs(s - ego.start - EGO_AHEAD) > 16.)
                if clear:
                    movers.append(
                        _mover(name, rng, route.path, s, desired,
                               gates=route.gates))
                s += rng.uniform(14., 28.)
    return movers


def _cyclists(city: City, streets: list[Street],
              rng: np.random.Generator) -> list[Mover]:
    """Along the cycle lanes; they turn right, which crosses nobody."""
    movers = []
    for street in streets:
        for lanes in (street.forward, street.backward):
            lane = city.lanes[lanes[-1]]
            junction = city.junctions[lane.junction]
            exits = [
                city.lanes[e] for e in lane.exits
                if city.lanes[e].turn == 'right' or len(junction.arms) == 2
            ]
            if not exits or rng.random() < .3:
                continue
            path = (lane.path + exits[0].path +
                    city.lanes[exits[0].exits[0]].path)
            name = 'bicycle' if rng.random() < .7 else 'motorcycle'
            # A little inside the cycle lane's middle: wide vehicles park.
            path = path.offset(.15 - (LANE_WIDTH + CYCLE_WIDTH) / 2)
            gates = (Gate(lane.path.length - STOP_LINE[1] - .4,
                          junction.index, street.index), )
            movers.append(
                _mover(name, rng, path, rng.uniform(3., 40.),
                       rng.uniform(3.5, 5.), manners=CYCLIST, gates=gates))
    return movers


def _walkers(streets: list[Street], lights: Lights,
             rng: np.random.Generator) -> list[Mover]:
    movers = []
    for street in streets:
        for side in (1., -1.):
            for backward, out in ((False, .6), (True, 2.4)):
                path = on_walkway(street, side, out, backward)
                s = rng.uniform(0., 16.)
                while s < path.length - 25.:
                    movers.append(
                        _mover('pedestrian', rng, path, s,
                               rng.uniform(1., 1.5), manners=WALKER))
                    s += rng.uniform(5., 11.)
            for at_start in (True, False):
                if rng.random() < .4:
                    continue
                speed = rng.uniform(1.5, 1.8)
                path, gates = over_crossing(street, side, 1.5, at_start,
                                            speed)
                s = gates[0].s - rng.uniform(.8, 9.)
                red = lights.red_for(gates[0].junction, street.index)
                if 1. < red < 2 * street.half_width / speed:
                    # On its way already.
                    s = gates[0].s + (red - .5) * speed
                movers.append(
                    _mover('pedestrian', rng, path, s, speed,
                           manners=WALKER, gates=gates))
    return movers


def _clear_of(vehicles: list[Mover], walkers: list[Mover]) -> list[Mover]:
    """The walkers at whose start nobody drives."""
    driven, walked = (np.array([m.path.at(m.start)[0] for m in group])
                      for group in (vehicles, walkers))
    reach = np.array([m.size[0] / 2 + 2. for m in vehicles])
    apart = np.linalg.norm(walked[:, None] - driven, axis=-1)
    return [w for w, clear in zip(walkers, (apart > reach).all(1),
                                  strict=True) if clear]


def _standing(street: Street,
              rng: np.random.Generator) -> list[tuple[str, tuple]]:
    """Names and poses along the kerbs and on the walkways."""
    rows = []
    works = 1. if rng.random() < .5 else -1.
    low = STOP_LINE[1] + 2.5
    # On the inside of a bend there is less room than along the middle.
    bend = max(abs(c) for _, c in street.centre.pieces)
    stretch = 1 / (1 - bend * street.half_width)
    for side in (1., -1.):
        names = list(_WORKS) if side == works else list(
            rng.permutation(_PARKED))
        widest = 2. if side == works else 5.
        room = street.centre.length - 2 * low - 2. - stretch * sum(
            1.07 * KINDS[KIND_INDEX[n]].size[0] + .4 + widest / 2
            for n in names)
        # Gaps, so that people on the walkway can be seen.
        for _ in range(int(room / 11. / stretch)):
            # The works stay together.
            names.insert(
                int(rng.choice([0, len(names)])) if side == works else int(
                    rng.integers(len(names) + 1)), 'car')
        s = low + rng.uniform(0., 2.)
        for name in names:
            length, width, _ = KINDS[KIND_INDEX[name]].size
            length, width = 1.07 * length, 1.07 * width
            length *= stretch
            if s + length > street.centre.length - low:
                continue
            out = -max(width / 2 + .1, PARKING_WIDTH / 2)
            if name in ('motorcycle', 'bicycle'):
                out = -.6
            elif name == 'traffic_cone':
                out = .4 - PARKING_WIDTH
            rows.append((name, _beside(street, side, s + length / 2, out)))
            s += length + rng.uniform(.8, widest)
        s = rng.uniform(0., 12.)
        while s < street.centre.length:
            x, y, yaw = _beside(street, side, s, 3.4)
            rows.append(('pedestrian', (x, y, yaw + rng.uniform(-3, 3))))
            s += rng.uniform(2.5, 5.)
    return rows


def _beside(street: Street, side: float, s: float,
            out: float) -> tuple[float, float, float]:
    """x, y, yaw ``out`` metres outside the kerb, facing with the traffic."""
    xy, heading = street.centre.at(s)
    left = np.array([-np.sin(heading), np.cos(heading)])
    xy = xy + side * (street.half_width + out) * left
    return (*xy.tolist(), float(heading + (np.pi if side > 0 else 0.)))
