"""Which faces of upright boxes a camera sees, and in which order to paint.

Boxes are (N, 7): centre x, y, z, length, width, height in metres and yaw in
radians, global frame; they stand on flat ground and do not overlap.
"""

from dataclasses import dataclass

import numpy as np

# Nothing nearer to the camera's plane is drawn, metres.
NEAR = .05


@dataclass(frozen=True)
class Sight:
    """Boxes as one camera sees them.

    Attributes:
        face2img: (N, 5, 3, 3) from a, b, 1 on a face (metres, see
            ``sheets``) to u w, v w, w, with w the depth in metres.
        corners: (N, 5, 4, 3) u w, v w, w of each face's corners.
        normal: (N, 5, 3) outward, global frame.
        visible: (N, 5) whether a face is turned towards the camera and may
            reach into the image.
        order: indices of the boxes with a visible face, back to front.
    """
    face2img: np.ndarray
    corners: np.ndarray
    normal: np.ndarray
    visible: np.ndarray
    order: list[int]


def look_at(boxes: np.ndarray, global2img: np.ndarray, eye: np.ndarray,
            image_size: tuple[int, int]) -> Sight:
    """Find the visible faces.

    Args:
        boxes: (N, 7).
        global2img: (3, 4), see ``Camera.global2img``.
        eye: (3,) position of the camera, global frame, in no box.
        image_size: width, height in pixels.
    """
    origin, across, up, normal, extent = _faces(boxes)
    face2img = np.stack([
        across @ global2img[:, :3].T, up @ global2img[:, :3].T,
        origin @ global2img[:, :3].T + global2img[:, 3]
    ], -1)
    # The corners of each face, counter-clockwise as seen from outside.
    unit = np.array([[0., 0.], [1., 0.], [1., 1.], [0., 1.]])
    corners = np.ones((*extent.shape[:2], 4, 3))
    corners[..., :2] = unit * extent[:, :, None]
    image = corners @ np.swapaxes(face2img, -1, -2)
    visible = ((eye - origin) * normal).sum(-1) > 0.
    visible &= reaches(image, image_size)
    chosen = np.nonzero(visible.any(1))[0]
    span = np.array([_span(image[i, visible[i]]) for i in chosen])
    order = paint_order(boxes[chosen], span.reshape(-1, 2), eye[:2])
    return Sight(face2img, image, normal, visible, chosen[order].tolist())


def _faces(boxes: np.ndarray) -> tuple[np.ndarray, ...]:
    """Front, left, back, right, top of each box.

    Returns:
        (N, 5, 3) corners where a = b = 0, directions of a and of b, normals;
        (N, 5, 2) extents along a and b in metres.
    """
    cos, sin = np.cos(boxes[:, 6]), np.sin(boxes[:, 6])
    zero, one = np.zeros_like(cos), np.ones_like(cos)
    x = np.stack([cos, sin, zero], 1)
    y = np.stack([-sin, cos, zero], 1)
    z = np.stack([zero, zero, one], 1)
    length, width, height = boxes[:, 3], boxes[:, 4], boxes[:, 5]
    normal = np.stack([x, y, -x, -y, z], 1)
    across = np.stack([y, -x, -y, x, x], 1)
    up = np.stack([z, z, z, z, y], 1)
    extent = np.stack([
        np.stack([width, length, width, length, length], 1),
        np.stack([height, height, height, height, width], 1)
    ], -1)
    depth = np.stack([length, width, length, width, height], 1)
    origin = boxes[:, None, :3] + .5 * (
        normal * depth[..., None] - across * extent[..., :1] -
        up * extent[..., 1:])
    return origin, across, up, normal, extent


def reaches(image: np.ndarray, image_size: tuple[int, int]) -> np.ndarray:
    """Whether polygons (..., P, 3) of u w, v w, w may reach into the image.
    """
    u, v, w = np.moveaxis(image, -1, 0)
    width, height = image_size
    # Outside only if all corners lie beyond one side of the viewing pyramid.
    outside = [
        w < NEAR, u < -.5 * w, u > (width - .5) * w, v < -.5 * w,
        v > (height - .5) * w
    ]
    return ~np.any([beyond.all(-1) for beyond in outside], 0)


def clip_near(polygon: np.ndarray) -> np.ndarray:
    """The part of a polygon in front of the camera.

    Args:
        polygon: (P, 3) u w, v w, w.

    Returns:
        (Q, 3), empty if nothing is in front.
    """
    depth = polygon[:, 2] - NEAR
    if depth.min() >= 0.:
        return polygon
    following, depth_after = np.roll(polygon, -1, 0), np.roll(depth, -1)
    kept = []
    for a, b, da, db in zip(
            polygon, following, depth, depth_after, strict=True):
        if da >= 0.:
            kept.append(a)
        if (da >= 0.) != (db >= 0.):
            kept.append(a + (b - a) * (da / (da - db)))
    return np.array(kept).reshape(-1, 3)


def _span(faces: np.ndarray) -> tuple[float, float]:
    """Columns that a box's visible faces (F, 4, 3) cover."""
    if faces[..., 2].min() < NEAR:
        faces = np.concatenate([clip_near(f) for f in faces])
    u = faces[..., 0] / faces[..., 2]
    return u.min(), u.max()


def paint_order(boxes: np.ndarray, span: np.ndarray,
                eye: np.ndarray) -> np.ndarray:
    """Order in which later boxes may cover earlier ones.

    Of two boxes that do not overlap, an edge of one parts them on the ground,
    and the one on the camera's side of it is in front. Within one image (less
    than half a turn) this has no circles among boxes that share a column.

    Args:
        boxes: (N, 7).
        span: (N, 2) first and last column of each box.
        eye: (2,) x, y of the camera.

    Returns:
        (N,) indices, back to front. Where boxes overlap, the farther centre
        is painted first.
    """
    count = len(boxes)
    cos, sin = np.cos(boxes[:, 6]), np.sin(boxes[:, 6])
    axes = np.stack([np.stack([cos, sin], 1), np.stack([-sin, cos], 1)], 1)
    half, centre = boxes[:, 3:5] / 2, boxes[:, :2]
    # All [i, axis of i, j]: how far the centre of j is along the axis, how
    # far j reaches along it; and [i, axis of i, 1] for the camera.
    along = (axes @ centre.T) - (axes * centre[:, None]).sum(-1)[..., None]
    reach = (np.abs(axes.reshape(-1, 2) @ axes.reshape(-1, 2).T).reshape(
        count, 2, count, 2) * half).sum(-1)
    camera = (axes @ eye - (axes * centre[:, None]).sum(-1))[..., None]
    parts = np.abs(along) - reach - half[..., None] >= -1e-9
    outside = np.sign(along) * camera > half[..., None]
    # One of either kind of edge shows that no ray meets both boxes.
    other_nearer = (parts & outside).any(1)
    self_nearer = (parts & ~outside).any(1)
    nearer = other_nearer | self_nearer.T
    shares = ((span[:, None, 0] <= span[None, :, 1]) &
              (span[None, :, 0] <= span[:, None, 1]))
    # hides[i, j]: j is in front of i.
    hides = nearer & ~nearer.T & shares
    distance = np.linalg.norm(boxes[:, :2] - eye, axis=1)
    waits = hides.sum(0)
    order = []
    for _ in range(count):
        ready = waits == waits.min()
        i = int(np.argmax(np.where(ready, distance, -1.)))
        order.append(i)
        distance[i] = -2.
        waits = waits - hides[i]
        waits[i] = 2 * count
    return np.array(order, dtype=np.int64)
