"""Who follows whom: vehicles, cyclists and people along their paths.

Each mover keeps to its path and chooses its acceleration five times a second
with the intelligent driver model (Treiber, Hennecke, Helbing 2000,
https://arxiv.org/abs/cond-mat/0002177), applied to the nearest body on its
path ahead, to red lights and to the curves of the path.
"""

from dataclasses import dataclass, field

import numpy as np

from .paths import ArcPath

STEP = .2
GREEN, CLEARANCE = 12., 3.
CYCLE = 2 * (GREEN + CLEARANCE)
# Metres before the front at which bodies are looked for.
_LOOK = np.concatenate([np.arange(.2, 6., .4), np.arange(6.2, 28., 1.4)])
_TABLE_STEP = .5
# Sideways acceleration in curves, and braking before them, m/s^2.
_LATERAL, _EASY_BRAKE = 2.2, 1.6
# Ignore a light that turns red when stopping would take more, m/s^2.
_FIRM_BRAKE, _HARDEST_BRAKE = 3.5, 8.


@dataclass(frozen=True)
class Manners:
    """Parameters of the driver model: m/s^2, m/s^2, s, m, m."""
    acceleration: float
    braking: float
    headway: float
    gap: float
    side_gap: float


DRIVER = Manners(1.8, 2.5, 1.2, 2., .25)
CYCLIST = Manners(1., 2., 1., 1.5, .2)
WALKER = Manners(1.2, 2., .5, .5, .15)


@dataclass(frozen=True)
class Gate:
    """A place that is passed only when the light allows.

    Attributes:
        s: arc length on the mover's path that its front keeps behind.
        junction, street: whose light.
        duration: seconds for which people must find the street's light red,
            0 for vehicles, which need it green.
    """
    s: float
    junction: int
    street: int
    duration: float = 0.


@dataclass(frozen=True)
class Mover:
    """Somebody on a path.

    Attributes:
        kind: index into ``KINDS``.
        size: length, width, height in metres.
        path: where its reference point goes.
        start: arc length of the reference point at time 0.
        desired: speed on a free straight path, m/s.
        ahead: metres from the reference point to the box centre.
    """
    kind: int
    size: np.ndarray
    path: ArcPath
    start: float
    desired: float
    manners: Manners
    gates: tuple[Gate, ...] = ()
    ahead: float = 0.


@dataclass
class Lights:
    """Two-phase lights: a junction's rows and columns take turns.

    Attributes:
        group: (junction, street) -> 0 or 1, for junctions that have lights.
        offset: junction -> seconds into its cycle at time 0.
        held: (junction, street) that stay red.
    """
    group: dict[tuple[int, int], int]
    offset: dict[int, float]
    held: set[tuple[int, int]] = field(default_factory=set)

    def red_for(self, junction: int, street: int) -> float:
        """Seconds for which a light is red at time 0, 0 if it is not."""
        key = junction, street
        if key not in self.group:
            return 0.
        phase = self.offset[junction] - self.group[key] * CYCLE / 2
        return max(0., phase % CYCLE - GREEN)

    def may_pass(self, gate: Gate, time: float) -> bool:
        key = gate.junction, gate.street
        if key not in self.group:
            return True
        phase = time + self.offset[gate.junction]
        phase -= self.group[key] * CYCLE / 2
        if not gate.duration:
            return phase % CYCLE < GREEN and key not in self.held
        # Red from the end of green to the end of the cycle.
        return phase % CYCLE > GREEN + .5 and (
            CYCLE - phase % CYCLE >= gate.duration)


@dataclass(frozen=True)
class Tracks:
    """Motion along the paths; constant acceleration within a step.

    Attributes:
        s, speed: (T + 1, N) at multiples of ``STEP``, metres and m/s.
        acceleration: (T, N) m/s^2.
    """
    s: np.ndarray
    speed: np.ndarray
    acceleration: np.ndarray

    def at(self, times: np.ndarray) -> tuple[np.ndarray, ...]:
        """(T, N) arc length, speed and acceleration at (T,) seconds."""
        step = np.clip((times / STEP + 1e-9).astype(int), 0,
                       len(self.acceleration) - 1)
        rest = (times - step * STEP)[:, None]
        a, v = self.acceleration[step], self.speed[step]
        return self.s[step] + rest * (v + a * rest / 2), v + a * rest, a


def speed_limit(path: ArcPath, desired: float, length: float) -> np.ndarray:
    """(M,) speed allowed by curves ahead, every half metre of the path."""
    s = np.arange(0., length, _TABLE_STEP)
    curvature = np.abs(path.curvature(s))
    curvature[s > path.length] = 0.
    limit = np.minimum(desired,
                       np.sqrt(_LATERAL / np.maximum(curvature, 1e-6)))
    gain = 2 * _EASY_BRAKE * _TABLE_STEP
    for i in range(len(limit) - 2, -1, -1):
        limit[i] = min(limit[i], np.sqrt(limit[i + 1]**2 + gain))
    return limit


def simulate(movers: list[Mover], lights: Lights,
             duration: float) -> Tracks:
    """Let all movers go for ``duration`` seconds.

    Paths should be long enough; their ends are extended.
    """
    crowd = _Crowd(movers, lights, duration)
    steps = int(np.ceil(duration / STEP - 1e-9)) + 1
    s = np.array([m.start for m in movers])
    speed = np.array([
        0. if crowd.starts_at_gate(i) else crowd.limit(s)[i]
        for i in range(len(movers))
    ])
    history = [(s, speed)]
    accelerations = []
    for step in range(steps):
        wish = crowd.acceleration(s, speed, step * STEP)
        # Nobody goes backwards.
        wish = np.maximum(wish, -speed / STEP)
        s = s + STEP * (speed + wish * STEP / 2)
        speed = np.maximum(speed + wish * STEP, 0.)
        accelerations.append(wish)
        history.append((s, speed))
    return Tracks(
        np.array([h[0] for h in history]),
        np.array([h[1] for h in history]), np.array(accelerations))


class _Crowd:
    """All movers as arrays."""

    def __init__(self, movers: list[Mover], lights: Lights,
                 duration: float) -> None:
        self.movers, self.lights = movers, lights
        longest = max(m.start + m.desired * duration for m in movers) + 60.
        grid = np.arange(0., longest, _TABLE_STEP)
        placed = [m.path.at(grid) for m in movers]
        self.xy = np.array([p[0] for p in placed])
        self.heading = np.array([p[1] for p in placed])
        self.limits = np.array(
            [speed_limit(m.path, m.desired, longest) for m in movers])
        self.front = np.array([m.ahead + m.size[0] / 2 for m in movers])
        self.half_width = np.array([m.size[1] / 2 for m in movers])
        for name in ('acceleration', 'braking', 'headway', 'gap', 'side_gap'):
            values = [getattr(m.manners, name) for m in movers]
            setattr(self, f'm_{name}', np.array(values))
        self._make_discs()

    def _make_discs(self) -> None:
        """Each body as discs along its length.

        People have more, where they will be soon: drivers see them coming.
        """
        discs = []
        for i, m in enumerate(self.movers):
            reach = max(0., (m.size[0] - m.size[1]) / 2)
            count = int(np.ceil(2 * reach / 1.2)) + 1
            discs += [(i, m.ahead + shift, 0.)
                      for shift in np.linspace(-reach, reach, count)]
            if m.manners is WALKER:
                discs += [(i, 0., soon) for soon in (.7, 1.4, 2.1)]
        owner, self.shift, self.soon = np.array(discs).T
        self.owner = owner.astype(int)
        self.walks = np.array([m.manners is WALKER for m in self.movers])

    def _lookup(self, table: np.ndarray, who: np.ndarray,
                s: np.ndarray) -> np.ndarray:
        """Linear interpolation of each mover's table at arc length ``s``."""
        position = np.clip(s / _TABLE_STEP, 0., table.shape[1] - 1.001)
        low = position.astype(int)
        rest = position - low
        if table.ndim == 3:
            rest = rest[..., None]
        return table[who, low] * (1 - rest) + table[who, low + 1] * rest

    def limit(self, s: np.ndarray) -> np.ndarray:
        return self._lookup(self.limits, np.arange(len(s)), s)

    def starts_at_gate(self, i: int) -> bool:
        """Whether it stands at a red light from the start."""
        front = self.movers[i].start + self.front[i]
        return any(0 <= gate.s - front < 12.
                   and not self.lights.may_pass(gate, 0.)
                   for gate in self.movers[i].gates)

    def acceleration(self, s: np.ndarray, speed: np.ndarray,
                     time: float) -> np.ndarray:
        """(N,) m/s^2."""
        gap, leading = self._bodies_ahead(s, speed)
        light = self._lights_ahead(s, speed, time)
        wish = np.minimum(self._follow(s, speed, gap, leading),
                          self._follow(s, speed, light, 0.))
        return np.clip(wish, -_HARDEST_BRAKE, self.m_acceleration)

    def _follow(self, s: np.ndarray, speed: np.ndarray, gap: np.ndarray,
                leading: np.ndarray | float) -> np.ndarray:
        """The driver model."""
        approach = speed * (speed - leading) / 2 / np.sqrt(
            self.m_acceleration * self.m_braking)
        wanted = self.m_gap + np.maximum(
            0., speed * self.m_headway + approach)
        free = np.maximum(self.limit(s), .1)
        return self.m_acceleration * (
            1 - (speed / free)**4 - (wanted / np.maximum(gap, .05))**2)

    def _bodies_ahead(self, s: np.ndarray, speed: np.ndarray
                      ) -> tuple[np.ndarray, np.ndarray]:
        """Free metres before the front, and the speed of what is there."""
        who = np.arange(len(s))
        along = (s + self.front)[:, None] + _LOOK
        points = self._lookup(self.xy, who[:, None], along)
        at = s[self.owner] + self.shift + self.soon * speed[self.owner]
        discs = self._lookup(self.xy, self.owner, at)
        course = self._lookup(self.heading, self.owner, at)
        reach = (self.half_width + self.m_side_gap)[:, None] + (
            self.half_width[self.owner])
        gap = np.full(len(s), np.inf)
        leading = np.zeros(len(s))
        centre = self._lookup(self.xy, who, s)
        for i in who:
            # What lies farther does not matter at this speed.
            count = int(np.searchsorted(
                _LOOK, 4. + speed[i] * (2. + speed[i] / 4)))
            sight = along[i, count - 1] - s[i] + 2.
            near = np.nonzero((np.abs(discs - centre[i]).max(1) < sight)
                              & (self.owner != i)
                              & (~self.walks[i] | (self.soon == 0)))[0]
            if not len(near):
                continue
            apart = np.linalg.norm(
                points[i, :count, None] - discs[near][None], axis=-1)
            hit = apart < reach[i, near]
            first = hit.any(1)
            if not first.any():
                continue
            k = int(np.argmax(first))
            j = int(np.argmax(hit[k]))
            disc = near[j]
            gap[i] = _LOOK[k]
            if k:
                # Between two points: distances change about linearly.
                low, high = apart[k - 1, j], apart[k, j]
                share = (low - reach[i, disc]) / (low - high)
                gap[i] -= (1 - share) * (_LOOK[k] - _LOOK[k - 1])
            ahead = self._lookup(self.heading, i, along[i, k])
            leading[i] = max(0., speed[self.owner[disc]] * np.cos(
                course[disc] - ahead))
        return gap, leading

    def _lights_ahead(self, s: np.ndarray, speed: np.ndarray,
                      time: float) -> np.ndarray:
        """Metres to the next gate that is shut, plus the usual gap."""
        distance = np.full(len(s), np.inf)
        for i, mover in enumerate(self.movers):
            for gate in mover.gates:
                room = gate.s - s[i] - self.front[i]
                if room < 0 or room > 40. or self.lights.may_pass(gate, time):
                    continue
                if speed[i]**2 > 2 * _FIRM_BRAKE * (room + .5):
                    continue
                distance[i] = room + self.m_gap[i] * .8
                break
        return distance
