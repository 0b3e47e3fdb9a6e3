"""Movers follow, stop and wait as drivers and people do."""

import numpy as np
import pytest

from mmturbox.datasets.synthetic.paths import ArcPath
from mmturbox.datasets.synthetic.traffic import (
    CYCLE,
    DRIVER,
    GREEN,
    STEP,
    WALKER,
    Gate,
    Lights,
    Mover,
    simulate,
    speed_limit,
)

STRAIGHT = ArcPath((0., 0., 0.), ((400., 0.), ))
CAR = np.array([4.5, 1.9, 1.6])
PERSON = np.array([.7, .7, 1.8])
NO_LIGHTS = Lights({}, {})


def car(start, desired=10., path=STRAIGHT, gates=()):
    return Mover(0, CAR, path, start, desired, DRIVER, gates)


def test_motion_within_a_step_is_that_of_its_acceleration():
    tracks = simulate([car(0., 6.), car(30., 3.)], NO_LIGHTS, 10.)
    times = np.arange(0., 10., .01)
    s, speed, acceleration = tracks.at(times)
    np.testing.assert_allclose(
        np.gradient(s, .01, axis=0)[2:-2], speed[2:-2], atol=.02)
    inner = np.abs(times % STEP - STEP / 2) < .08
    np.testing.assert_allclose(
        np.gradient(speed, .01, axis=0)[inner], acceleration[inner],
        atol=1e-6)


def test_a_fast_car_settles_behind_a_slow_one():
    tracks = simulate([car(0., 12.), car(40., 5.)], NO_LIGHTS, 40.)
    gap = tracks.s[:, 1] - tracks.s[:, 0] - CAR[0]
    assert gap.min() > 1.5
    assert abs(tracks.speed[-1, 0] - tracks.speed[-1, 1]) < .3


def test_a_car_stops_for_one_that_stands():
    tracks = simulate([car(0., 12.), car(80., 1e-3)], NO_LIGHTS, 30.)
    gap = tracks.s[-1, 1] - tracks.s[-1, 0] - CAR[0]
    assert 1. < gap < 4.
    assert tracks.speed[-1, 0] < .25


def test_red_stops_at_the_line_and_green_lets_go():
    gate = Gate(60., 0, 7)
    lights = Lights({(0, 7): 0}, {0: GREEN + 1.})
    tracks = simulate([car(0., gates=(gate, ))], lights, CYCLE)
    front = tracks.s[:, 0] + CAR[0] / 2
    red_until = CYCLE - GREEN - 1.
    before = front[:int(red_until / STEP)]
    assert 58. < before[-1] < 60.
    assert tracks.speed[len(before) - 1, 0] < .2
    assert front[-1] > 90.
    held = Lights({(0, 7): 0}, {0: GREEN + 1.}, {(0, 7)})
    tracks = simulate([car(0., gates=(gate, ))], held, 2 * CYCLE)
    assert tracks.s[-1, 0] + CAR[0] / 2 < 60.


def test_a_light_that_turns_too_late_is_ignored():
    gate = Gate(40., 0, 7)
    # Green ends when the car, at 10 m/s, is 6 m before the line.
    lights = Lights({(0, 7): 0}, {0: GREEN - (34. - CAR[0] / 2) / 10.})
    tracks = simulate([car(0., gates=(gate, ))], lights, 6.)
    assert tracks.s[-1, 0] > 45.


def test_people_cross_only_with_time_enough():
    gate = Gate(3., 0, 7, duration=10.)
    path = ArcPath((0., -20., np.pi / 2), ((60., 0.), ))
    person = Mover(8, PERSON, path, 0., 1.4, WALKER, (gate, ))
    lights = Lights({(0, 7): 0}, {0: 0.})
    tracks = simulate([person], lights, CYCLE)
    waits = int((GREEN + .5) / STEP)
    assert tracks.s[waits, 0] + PERSON[0] / 2 < 3.
    assert tracks.s[-1, 0] > 3. + 10.
    late = Lights({(0, 7): 0}, {0: CYCLE - 9.})
    tracks = simulate([person], late, 9.)
    assert tracks.s[-1, 0] + PERSON[0] / 2 < 3.


def test_a_driver_brakes_for_a_person_who_is_about_to_cross():
    path = ArcPath((40., -6., np.pi / 2), ((60., 0.), ))
    person = Mover(8, PERSON, path, 0., 1.4, WALKER)
    tracks = simulate([car(0., 8.), person], NO_LIGHTS, 12.)
    s, walked, speed = *tracks.s.T, tracks.speed[:, 0]
    crossing = (walked > 4.5) & (walked < 7.5)
    reached = np.abs(s - 40.) < CAR[0] / 2 + PERSON[0] / 2
    assert crossing.any() and not (crossing & reached).any()
    assert speed.min() < 3. and s[-1] > 40.


def test_curves_are_taken_slowly_and_braked_for():
    path = ArcPath((0., 0., 0.), ((60., 0.), (12., 1 / 8), (60., 0.)))
    limit = speed_limit(path, 10., 132.)
    assert limit[int(66 / .5)] == pytest.approx(np.sqrt(2.2 * 8), rel=1e-3)
    assert limit[0] == 10.
    tracks = simulate([car(0., path=path)], NO_LIGHTS, 20.)
    in_curve = (tracks.s[:, 0] > 62.) & (tracks.s[:, 0] < 71.)
    assert (tracks.speed[in_curve, 0]**2 / 8 < 3.2).all()
    assert tracks.acceleration.min() > -3.
