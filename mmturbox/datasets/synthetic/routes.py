"""Ways through the city: of vehicles along lanes, of people on walkways."""

from dataclasses import dataclass

import numpy as np

from .city import CROSSING, STOP_LINE, City, Lane, Street
from .paths import ArcPath, Pose, connect
from .traffic import Gate, Lights

# Fronts stop this far before the stop line's far edge.
_BEFORE_LINE = .4
# Radius at which people turn onto a crossing.
_TURN = .8


@dataclass(frozen=True)
class Route:
    """A way along lanes.

    Attributes:
        path: from the start of the first lane.
        gates: at each junction.
        lanes: passed one after another.
    """
    path: ArcPath
    gates: tuple[Gate, ...]
    lanes: tuple[Lane, ...]

    def turns_within(self, length: float) -> bool:
        """Whether a turn begins in the first ``length`` metres."""
        begin = 0.
        for lane in self.lanes:
            if begin < length and lane.turn != 'straight':
                return True
            begin += lane.path.length
        return False


def along_lanes(city: City, first: Lane, length: float,
                rng: np.random.Generator,
                turns: tuple[str, ...] = ()) -> Route:
    """A random way that crosses nobody who has green at the same time.

    Args:
        turns: to take at the first junctions, where there are such; they may
            cross oncoming traffic.
    """
    lanes, path, gates = [first], first.path, []
    wanted = list(turns)
    while path.length < length:
        lane = lanes[-1]
        exits = [city.lanes[i] for i in lane.exits]
        if not lane.is_connector:
            gates.append(
                Gate(path.length - STOP_LINE[1] - _BEFORE_LINE,
                     lane.junction, lane.street))
            turn = wanted.pop(0) if wanted else ''
            exits = ([e for e in exits if e.turn == turn]
                     or _unopposed(city, lane, exits))
        lanes.append(exits[int(rng.integers(len(exits)))])
        path = path + lanes[-1].path
    return Route(path, tuple(gates), tuple(lanes))


def _unopposed(city: City, lane: Lane, exits: list[Lane]) -> list[Lane]:
    """Without left turns against oncoming traffic."""
    street = city.streets[lane.street]
    same = street.forward if lane.index in street.forward else street.backward
    if any(city.lanes[e].turn == 'straight'
           for i in same for e in city.lanes[i].exits):
        return [e for e in exits if e.turn != 'left']
    return exits


def make_lights(city: City, rng: np.random.Generator) -> Lights:
    """Lights of all junctions of three streets or more."""
    from .traffic import CYCLE
    group = {}
    for junction in city.junctions:
        if len(junction.arms) < 3:
            continue
        for arm in junction.arms:
            # Streets of one line share a phase.
            along = np.cos(arm.heading - junction.arms[0].heading)
            group[junction.index, arm.street] = int(abs(along) < .5)
    return Lights(
        group,
        {j.index: float(rng.uniform(0., CYCLE)) for j in city.junctions})


def on_walkway(street: Street, side: float, out: float,
               backward: bool) -> ArcPath:
    """Along a street, ``out`` metres outside the kerb.

    Args:
        side: 1 for the left of the street's centre line, -1 for the right.
        backward: against the centre line.
    """
    path = street.centre.offset(side * (street.half_width + out))
    return path.reversed() if backward else path


def over_crossing(street: Street, side: float, out: float, at_start: bool,
                  speed: float) -> tuple[ArcPath, tuple[Gate, ...]]:
    """Along a walkway, over the crossing at a street's end, and back.

    Returns:
        The path and the gate before the kerb.
    """
    # Keep to the right of those who come towards one.
    middle = sum(CROSSING) / 2 + (.7 if (side > 0) == at_start else -.7)
    centre = street.centre if at_start else street.centre.reversed()
    side = side if at_start else -side
    offset = side * (street.half_width + out)
    there = centre.offset(offset)
    there = there.cut(middle + _TURN, there.length).reversed()
    back = centre.offset(-offset)
    back = back.cut(middle + _TURN, back.length)
    xy, heading = centre.at(middle)
    left = np.array([-np.sin(heading), np.cos(heading)])
    over: Pose = (*(xy + .5 * offset * left).tolist(),
                  float(heading - np.sign(offset) * np.pi / 2))
    halfway = connect(there.end, over)
    path = there + halfway + connect(halfway.end, back.start) + back
    kerb = there.length + halfway.length - (street.half_width / 2 - out / 2)
    width = 2 * street.half_width
    junction = street.nodes[0 if at_start else 1]
    return path, (Gate(kerb - .6, junction, street.index,
                       width / speed + .5), )
