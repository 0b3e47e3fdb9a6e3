"""Where all that a scene annotates is at its other key frames."""

from dataclasses import dataclass

import numpy as np

from .projection import move
from .samples import InfoFile, Sample


@dataclass(frozen=True)
class SceneTracks:
    """Ways through a scene, in the global frame.

    Attributes:
        ego: (T,) seconds, (T, 3) places of the LiDAR, metres.
        instances: the same of box centres, by instance token.
    """
    ego: tuple[np.ndarray, np.ndarray]
    instances: dict[str, tuple[np.ndarray, np.ndarray]]

    def around(self,
               time: float,
               token: str | None = None,
               reach: float = 6.) -> tuple[np.ndarray, np.ndarray]:
        """(P, 3) up to now and (F, 3) from now, within ``reach`` seconds.

        Args:
            time: now.
            token: instance, the ego vehicle if None.
            reach: seconds.
        """
        times, places = self.ego if token is None else self.instances[token]
        # Times are stored as float64 seconds of the same origin.
        past = (times <= time + 1e-4) & (times > time - reach)
        future = (times >= time - 1e-4) & (times < time + reach + .15)
        return places[past], places[future]


def scene_tracks(infos: InfoFile, scene: str) -> SceneTracks:
    """Ways of all instances of a scene."""
    ego, found = [], {}
    samples: list[Sample] = [infos[i] for i in infos.scenes[scene]]
    times = np.array([s.record['timestamp'] for s in samples])
    for time, sample in zip(times, samples, strict=True):
        ego.append(sample.lidar2global[:3, 3])
        objects = sample.objects
        places = move(sample.lidar2global, objects.boxes[:, :3])
        for token, place in zip(objects.tokens, places, strict=True):
            if token is not None:
                found.setdefault(token, []).append((time, place))
    return SceneTracks((times, np.array(ego)), {
        token: (np.array([t for t, _ in way]), np.array([p for _, p in way]))
        for token, way in found.items()
    })
