"""What boxes look like: vehicles, people, cones, buildings, trees.

Each class has its own colours and shapes on its faces, so that what a box is
and which way it faces can be seen. Colours are red, green, blue.
"""

from collections.abc import Callable, Sequence

import numpy as np

from .kinds import KINDS
from .sheets import FACES, Colour, Face, Look, Sheet

_GLASS = (38., 48., 58.)
_BLACK = (28., 28., 30.)
_DARK = (52., 52., 56.)
_RUBBER = (22., 22., 24.)
_RIM = (150., 152., 156.)
_LAMP = (250., 246., 214.)
_RED = (205., 24., 28.)
_WHITE = (232., 232., 228.)
_PLATE = (238., 236., 214.)
_SKIN = (204., 158., 128.)
_WOOD = (98., 74., 54.)
_CARS = ((226., 226., 224.), (40., 42., 46.), (150., 154., 158.),
         (96., 100., 106.), (164., 34., 38.), (38., 70., 140.),
         (58., 84., 70.), (196., 176., 140.))
_CLOTHES = ((190., 52., 48.), (52., 84., 160.), (226., 222., 214.),
            (70., 72., 78.), (222., 178., 60.), (88., 140., 92.),
            (140., 84., 150.))
_WALLS = ((164., 98., 78.), (190., 176., 152.), (146., 146., 148.),
          (176., 136., 104.), (204., 200., 190.), (118., 128., 138.))


class Looks(Sequence[Look]):
    """The looks of all boxes of a scene, each painted when first asked for.

    Args:
        kind: (N,) index into ``KINDS``.
        size: (N, 3) length, width, height in metres.
        structure_kind: (M,) 0 building, 1 tree or hedge.
        structure_size: (M, 3).
        rng: same state, same N + M looks, in whatever order they are read.
        ridden: (N,) bool, whether a cycle has its rider; all by default.
    """

    def __init__(self, kind: np.ndarray, size: np.ndarray,
                 structure_kind: np.ndarray, structure_size: np.ndarray,
                 rng: np.random.Generator,
                 ridden: np.ndarray | None = None) -> None:
        self._painters = [_PAINTERS[KINDS[k].name] for k in kind]
        for i in [] if ridden is None else np.nonzero(~ridden)[0]:
            self._painters[i] = _EMPTY.get(self._painters[i],
                                           self._painters[i])
        self._painters += [(_building, _foliage)[k] for k in structure_kind]
        self._sizes = np.concatenate(
            [np.reshape(size, (-1, 3)),
             np.reshape(structure_size, (-1, 3))])
        self._seeds = rng.integers(2**62, size=len(self._sizes))
        self._painted: dict[int, Look] = {}

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, index: int) -> Look:
        if index not in self._painted:
            self._painted[index] = _paint(
                self._painters[index], self._sizes[index],
                np.random.default_rng(self._seeds[index]))
        return self._painted[index]


Painter = Callable[[dict[str, Sheet], np.random.Generator], None]


def _paint(painter: Painter, size: np.ndarray,
           rng: np.random.Generator) -> Look:
    length, width, height = size.tolist()
    sheets = {
        'front': Sheet(width, height, _DARK),
        # From the left, the front is at the left edge of the sheet; painters
        # fill both sides from the front.
        'left': Sheet(length, height, _DARK),
        'back': Sheet(width, height, _DARK),
        'right': Sheet(length, height, _DARK, mirrored=True),
        'top': Sheet(length, width, _DARK)
    }
    painter(sheets, rng)
    return tuple(Face.of(sheets[name]) for name in FACES)


def _vary(rng: np.random.Generator, *colours: Colour) -> Colour:
    """One of ``colours``, or nearly so."""
    base = np.array(colours[rng.integers(len(colours))])
    base += rng.normal(0., 9.) + rng.normal(0., 4., 3)
    r, g, b = np.clip(base, 8., 250.).tolist()
    return r, g, b


def _times(colour: Colour, factor: float) -> Colour:
    r, g, b = (min(250., c * factor) for c in colour)
    return r, g, b


def _coat(sheets: dict[str, Sheet], colour: Colour) -> None:
    for sheet in sheets.values():
        sheet.rect(0., 1., 0., 1., colour)


def _sides(sheets: dict[str, Sheet]) -> tuple[Sheet, Sheet]:
    return sheets['left'], sheets['right']


def _wheels(sheets: dict[str, Sheet], places: tuple[float, ...],
            radius: float) -> None:
    """Wheels on both sides, ``places`` from the front as shares."""
    for side in _sides(sheets):
        side.rect(0., 1., 0., .45 * radius / side.height, _BLACK)
        for a in places:
            side.disc(a, radius / side.height, radius, _RUBBER)
            side.disc(a, radius / side.height, .55 * radius, _RIM)


def _lamps(sheet: Sheet, low: float, high: float, width: float,
           colour: Colour) -> None:
    sheet.rect(.04, .04 + width, low, high, colour)
    sheet.rect(.96 - width, .96, low, high, colour)


def _car(sheets: dict[str, Sheet], rng: np.random.Generator) -> None:
    paint = _vary(rng, *_CARS)
    _coat(sheets, paint)
    for side in _sides(sheets):
        side.polygon([(.2, .56), (.86, .56), (.8, .92), (.3, .92)], _GLASS)
        side.rect(.52, .55, .56, .92, paint)
        side.rect(0., .05, .4, .5, _LAMP)
        side.rect(.95, 1., .42, .54, _RED)
    _wheels(sheets, (.18, .8), .33)
    front, back, top = sheets['front'], sheets['back'], sheets['top']
    front.polygon([(.08, .55), (.92, .55), (.82, .94), (.18, .94)], _GLASS)
    front.rect(.28, .72, .26, .42, _BLACK)
    front.rect(0., 1., 0., .14, _DARK)
    _lamps(front, .33, .47, .2, _LAMP)
    front.rect(.38, .62, .16, .24, _PLATE)
    back.polygon([(.14, .6), (.86, .6), (.78, .9), (.22, .9)], _GLASS)
    back.rect(0., 1., 0., .16, _DARK)
    _lamps(back, .4, .56, .16, _RED)
    back.rect(.36, .64, .34, .44, _PLATE)
    top.rect(.58, .72, .08, .92, _GLASS)
    top.rect(.12, .2, .1, .9, _GLASS)


def _truck(sheets: dict[str, Sheet], rng: np.random.Generator) -> None:
    cab = _vary(rng, (214., 120., 40.), (50., 92., 168.), (220., 220., 216.),
                      (176., 40., 40.), (60., 120., 80.))
    cargo = _vary(rng, (222., 222., 218.), (188., 190., 186.),
                        (150., 160., 170.))
    _coat(sheets, cargo)
    for side in _sides(sheets):
        side.rect(0., .26, 0., 1., cab)
        side.rect(.26, .29, 0., 1., _BLACK)
        side.rect(.04, .2, .5, .8, _GLASS)
        side.rect(.4, .9, .5, .72, _times(cab, .9))
    _wheels(sheets, (.14, .68, .84), .48)
    front, back, top = sheets['front'], sheets['back'], sheets['top']
    front.rect(0., 1., 0., 1., cab)
    front.rect(.08, .92, .52, .84, _GLASS)
    front.rect(.24, .76, .22, .42, _BLACK)
    front.rect(0., 1., 0., .12, _DARK)
    _lamps(front, .16, .28, .14, _LAMP)
    back.rect(.485, .515, .2, .96, _DARK)
    back.rect(.06, .94, .93, .96, _times(cargo, .7))
    for i in range(6):
        back.rect(i / 6, i / 6 + 1 / 12, .12, .18, _RED)
    back.rect(0., 1., 0., .12, _BLACK)
    _lamps(back, .02, .1, .14, _RED)
    top.rect(.74, 1., 0., 1., cab)
    top.rect(.71, .74, 0., 1., _BLACK)


def _construction(sheets: dict[str, Sheet],
                  rng: np.random.Generator) -> None:
    paint = _vary(rng, (236., 178., 30.), (232., 150., 34.))
    _coat(sheets, paint)
    for side in _sides(sheets):
        side.rect(.02, .98, 0., .24, _RUBBER)
        for a in np.linspace(.08, .92, 6):
            side.disc(float(a), .12, .24, _DARK)
        side.rect(.3, .56, .5, .92, _GLASS)
        side.rect(0., .3, .84, 1., _times(paint, .75))
        side.rect(.6, .96, .36, .6, _BLACK)
    for name in ('front', 'back'):
        _lamps(sheets[name], 0., .24, .22, _RUBBER)
        sheets[name].rect(.26, .74, 0., .16, _BLACK)
    front, back = sheets['front'], sheets['back']
    front.rect(.3, .78, .5, .92, _GLASS)
    front.rect(.04, .22, .28, 1., _times(paint, .75))
    for i in range(5):
        back.polygon([(.2 * i, .3), (.2 * i + .1, .3), (.2 * i + .2, .44),
                      (.2 * i + .1, .44)], _BLACK)
    _lamps(back, .5, .58, .1, _RED)
    sheets['top'].rect(.44, .7, .2, .7, _DARK)


def _bus(sheets: dict[str, Sheet], rng: np.random.Generator) -> None:
    paint = _vary(rng, (236., 206., 60.), (60., 130., 180.), (210., 60., 50.),
                        (70., 150., 110.))
    _coat(sheets, paint)
    for side in _sides(sheets):
        side.rect(.02, .98, .48, .82, _GLASS)
        for a in np.linspace(.12, .9, 7):
            side.rect(float(a), float(a) + .012, .48, .82, paint)
        side.rect(0., 1., .34, .4, _WHITE)
    # Doors where passengers wait, on the right.
    for a in (.04, .5):
        sheets['right'].rect(a, a + .1, .08, .84, _GLASS)
        sheets['right'].rect(a + .046, a + .054, .08, .84, _RIM)
    _wheels(sheets, (.22, .76), .5)
    front, back = sheets['front'], sheets['back']
    front.rect(.05, .95, .34, .8, _GLASS)
    front.rect(.15, .85, .84, .94, _BLACK)
    front.rect(.3, .7, .86, .92, (250., 170., 40.))
    _lamps(front, .14, .22, .16, _LAMP)
    back.rect(.16, .84, .58, .84, _GLASS)
    back.rect(.2, .8, .16, .4, _times(paint, .6))
    _lamps(back, .2, .4, .1, _RED)
    for sheet in (front, back):
        sheet.rect(0., 1., 0., .09, _BLACK)
    sheets['top'].rect(.2, .4, .25, .75, _WHITE)
    sheets['top'].rect(.6, .8, .25, .75, _WHITE)


def _trailer(sheets: dict[str, Sheet], rng: np.random.Generator) -> None:
    paint = _vary(rng, (206., 208., 210.), (120., 140., 150.),
                        (180., 120., 90.))
    rib = _times(paint, .82)
    _coat(sheets, paint)
    for name, ribs in (('left', 16), ('right', 16), ('front', 5),
                       ('back', 0)):
        sheet = sheets[name]
        for i in range(ribs):
            sheet.rect((i + .3) / ribs, (i + .6) / ribs, .28, 1., rib)
        sheet.rect(0., 1., 0., .26, _BLACK)
    _wheels(sheets, (.72, .82, .92), .48)
    back = sheets['back']
    back.rect(.485, .515, .28, 1., _DARK)
    for a in (.2, .38, .6, .78):
        back.rect(a, a + .02, .28, 1., _RIM)
    for i in range(6):
        back.rect(i / 6, i / 6 + 1 / 12, .26, .31, _RED)
    _lamps(back, .14, .22, .16, _RED)


def _barrier(sheets: dict[str, Sheet], rng: np.random.Generator) -> None:
    orange = _vary(rng, (236., 110., 30.))
    _coat(sheets, orange)
    for name in ('front', 'back'):
        for i in range(4):
            a = .25 * i
            sheets[name].polygon([(a, .2), (a + .12, .2), (a + .25, .95),
                                  (a + .13, .95)], _WHITE)
    for name in ('front', 'back', 'left', 'right'):
        sheets[name].rect(0., 1., 0., .16, _DARK)


def _rider(sheets: dict[str, Sheet], low: float,
           rng: np.random.Generator) -> None:
    """Torso and helmet above ``low`` on all four sides."""
    shirt = _vary(rng, *_CLOTHES)
    helmet = _vary(rng, _WHITE, _RED, _BLACK)
    for side in _sides(sheets):
        side.polygon([(.38, low), (.68, low), (.6, .86), (.34, .86)], shirt)
        side.disc(.46, .9, .14, helmet)
    for name in ('front', 'back'):
        sheets[name].rect(.14, .86, low, .82, shirt)
        sheets[name].disc(.5, .89, .14, helmet)
    sheets['front'].rect(.38, .62, .82, .9, _SKIN)
    sheets['top'].rect(.36, .64, .2, .8, shirt)


def _motorcycle(sheets: dict[str, Sheet], rng: np.random.Generator) -> None:
    paint = _vary(rng, (150., 30., 34.), (40., 60., 130.), (40., 42., 46.))
    _coat(sheets, (96., 94., 100.))
    for side in _sides(sheets):
        side.rect(.2, .86, .3, .52, paint)
        side.rect(.3, .66, .12, .3, _DARK)
    _wheels(sheets, (.16, .84), .3)
    for name, lamp in (('front', _LAMP), ('back', _RED)):
        sheets[name].rect(.38, .62, 0., .4, _RUBBER)
        sheets[name].rect(.2, .8, .4, .52, paint)
        sheets[name].disc(.5, .47, .09, lamp)


def _motorcyclist(sheets: dict[str, Sheet],
                  rng: np.random.Generator) -> None:
    _motorcycle(sheets, rng)
    _rider(sheets, .5, rng)


def _bicycle(sheets: dict[str, Sheet], rng: np.random.Generator) -> None:
    paint = _vary(rng, (40., 150., 140.), (210., 200., 60.), (60., 90., 190.),
                        (200., 60., 110.))
    back = (166., 170., 168.)
    _coat(sheets, back)
    for side in _sides(sheets):
        for a in (.2, .8):
            side.disc(a, .32 / side.height, .32, _RUBBER)
            side.disc(a, .32 / side.height, .26, back)
        side.polygon([(.24, .5), (.3, .5), (.56, .24), (.5, .24)], paint)
        side.rect(.26, .7, .48, .54, paint)
        side.polygon([(.66, .5), (.7, .5), (.82, .24), (.78, .24)], paint)
    for name, lamp in (('front', _LAMP), ('back', _RED)):
        sheets[name].rect(.44, .56, 0., .5, _RUBBER)
        sheets[name].rect(.1, .9, .5, .54, paint)
        sheets[name].disc(.5, .44, .06, lamp)


def _cyclist(sheets: dict[str, Sheet], rng: np.random.Generator) -> None:
    _bicycle(sheets, rng)
    _rider(sheets, .54, rng)


def _pedestrian(sheets: dict[str, Sheet], rng: np.random.Generator) -> None:
    shirt = _vary(rng, *_CLOTHES)
    trousers = _vary(rng, (44., 50., 70.), (80., 72., 62.), (36., 36., 40.))
    hair = _vary(rng, (40., 30., 26.), (120., 90., 50.), (90., 90., 92.))
    _coat(sheets, shirt)
    for name in FACES[:4]:
        sheet = sheets[name]
        sheet.rect(0., 1., 0., .46, trousers)
        sheet.rect(0., 1., 0., .05, _BLACK)
        sheet.rect(0., 1., .83, 1., hair)
    for name in ('front', 'back'):
        sheets[name].rect(.47, .53, 0., .44, _BLACK)
        sheets[name].rect(0., .12, .46, .8, _times(shirt, .8))
        sheets[name].rect(.88, 1., .46, .8, _times(shirt, .8))
    sheets['front'].rect(.12, .88, .83, .95, _SKIN)
    sheets['front'].rect(.26, .36, .89, .915, _BLACK)
    sheets['front'].rect(.64, .74, .89, .915, _BLACK)
    for side in _sides(sheets):
        side.rect(.35, .65, .42, .8, _times(shirt, .8))
        side.rect(0., .4, .83, .95, _SKIN)
    sheets['top'].rect(0., 1., 0., 1., hair)


def _cone(sheets: dict[str, Sheet], rng: np.random.Generator) -> None:
    orange = _vary(rng, (244., 92., 26.))
    _coat(sheets, orange)
    for name in FACES[:4]:
        sheets[name].rect(0., 1., .38, .54, _WHITE)
        sheets[name].rect(0., 1., .7, .82, _WHITE)
        sheets[name].rect(0., 1., 0., .09, _BLACK)


def _building(sheets: dict[str, Sheet], rng: np.random.Generator) -> None:
    wall = _vary(rng, *_WALLS)
    pane = _vary(rng, (64., 78., 92.), (88., 100., 110.), (50., 56., 62.))
    bay = rng.uniform(2.4, 3.4)
    _coat(sheets, wall)
    for name in FACES[:4]:
        sheet = sheets[name]
        columns = max(1, int(sheet.width / bay))
        floors = max(1, int(sheet.height / 3.2))
        sheet.rect(0., 1., 0., .5 / sheet.height, _times(wall, .6))
        for row in range(floors):
            for i in range(columns):
                door = row == 0 and i == columns // 2
                low = 0. if door else .3
                sheet.rect((i + .25) / columns, (i + .75) / columns,
                           (row + low) / floors * .94,
                           (row + .8) / floors * .94,
                           _WOOD if door else pane)
        sheet.rect(0., 1., 1. - .4 / sheet.height, 1., _times(wall, 1.15))


def _foliage(sheets: dict[str, Sheet], rng: np.random.Generator) -> None:
    leaf = _vary(rng, (66., 104., 52.), (84., 112., 50.), (58., 92., 62.))
    _coat(sheets, leaf)
    for name in FACES:
        sheet = sheets[name]
        # A tree stands on a trunk, a hedge on the ground.
        trunk = .34 if name != 'top' and sheet.height > 2.5 else 0.
        for _ in range(14):
            a, b = rng.uniform(0., 1.), rng.uniform(trunk, 1.)
            sheet.disc(a, b, rng.uniform(.12, .3) * min(
                sheet.width, sheet.height), _times(leaf, rng.uniform(.7, 1.3)))
        if trunk:
            sheet.rect(0., 1., 0., trunk, _times(leaf, .5))
            sheet.rect(.4, .6, 0., trunk, _WOOD)


_PAINTERS: dict[str, Painter] = {
    'car': _car,
    'truck': _truck,
    'construction_vehicle': _construction,
    'bus': _bus,
    'trailer': _trailer,
    'barrier': _barrier,
    'motorcycle': _motorcyclist,
    'bicycle': _cyclist,
    'pedestrian': _pedestrian,
    'traffic_cone': _cone,
}
# Without riders.
_EMPTY = {_motorcyclist: _motorcycle, _cyclist: _bicycle}
