"""2D boxes and camera-frame 3D boxes, for monocular detectors.

Definition: mmdet3d 1.4's ``get_nuscenes_2d_boxes``. A 2D box bounds what the
image holds of the convex hull of the projected corners; of a box that reaches
behind the camera only the corners in front count.
"""

import itertools

import numpy as np

from .annotations import Annotations
from .poses import inverse_many

_CORNERS = np.array(list(itertools.product((-.5, .5), repeat=3)))


def camera_instances(boxes: Annotations, cam2global: np.ndarray,
                     cam2img: np.ndarray, width: int,
                     height: int) -> list[dict]:
    """Entries of ``cam_instances`` for one image.

    Args:
        boxes: annotations of the key frame.
        cam2global: (4, 4) when the image was taken.
        cam2img: (3, 3).
        width: of the image, pixels.
        height: of the image, pixels.

    Returns:
        One dict for each box of a known class whose centre is in front of the
        camera and which the image holds a part of. ``bbox_3d`` is the centre,
        length, height, width and yaw about the camera's y axis.
    """
    global2cam = inverse_many(cam2global)
    box2cam = global2cam @ boxes.box2global
    centres = box2cam[:, :3, 3]
    wanted = np.flatnonzero((np.array(boxes.labels) >= 0)
                            & (centres[:, 2] > 0))
    bounds = _image_bounds(box2cam[wanted], boxes.sizes[wanted], cam2img,
                           width, height)
    seen = ~np.isnan(bounds[:, 0])
    wanted, bounds = wanted[seen], bounds[seen]
    centres = centres[wanted]
    yaw = np.arctan2(box2cam[wanted, 0, 1], box2cam[wanted, 0, 0])
    boxes_3d = np.concatenate(
        [centres, boxes.sizes[wanted][:, [0, 2, 1]], yaw[:, None]],
        axis=1).tolist()
    velocity = boxes.velocity[wanted] @ global2cam[:3, :3].T
    velocity = velocity[:, [0, 2]].tolist()
    centres_2d = _project(centres, cam2img).tolist()
    depths = centres[:, 2].tolist()
    return [
        dict(
            bbox_label=boxes.labels[j],
            bbox_label_3d=boxes.labels[j],
            bbox=bounds[i].tolist(),
            bbox_3d_isvalid=True,
            bbox_3d=boxes_3d[i],
            velocity=velocity[i],
            center_2d=centres_2d[i],
            depth=depths[i],
            attr_label=boxes.attributes[j]) for i, j in enumerate(wanted)
    ]


def _project(points: np.ndarray, cam2img: np.ndarray) -> np.ndarray:
    """(..., 3) in front of the camera -> (..., 2) pixels."""
    image = points @ np.asarray(cam2img).T
    return image[..., :2] / image[..., 2:]


def _image_bounds(box2cam: np.ndarray, sizes: np.ndarray,
                  cam2img: np.ndarray, width: int,
                  height: int) -> np.ndarray:
    """(N, 4) x1, y1, x2, y2; NaN for boxes that the image does not show."""
    corners = _CORNERS * sizes[:, None]
    corners = (
        corners @ np.swapaxes(box2cam[:, :3, :3], 1, 2) +
        box2cam[:, None, :3, 3])
    front = corners[..., 2] > 0
    # What is behind is put aside, not projected.
    corners[~front] = (0, 0, 1)
    pixels = _project(corners, cam2img)
    masked = np.where(front[..., None], pixels, np.nan)
    out = np.full((len(sizes), 4), np.nan)
    some = front.sum(1) > 2
    out[some, :2] = np.nanmin(masked[some], axis=1)
    out[some, 2:] = np.nanmax(masked[some], axis=1)
    limits = np.array([width, height, width, height])
    inside = front.all(1) & ((out >= 0) & (out <= limits)).all(1)
    outside = (out[:, 2:] < 0).any(1) | (out[:, :2] > limits[:2]).any(1)
    out[outside] = np.nan
    for i in np.flatnonzero(~inside & ~outside & some):
        out[i] = _clipped_bounds(pixels[i, front[i]], width, height)
    return out


def _clipped_bounds(pixels: np.ndarray, width: int,
                    height: int) -> tuple[float, float, float, float]:
    import shapely
    hull = shapely.convex_hull(shapely.multipoints(pixels))
    shown = shapely.intersection(hull, shapely.box(0, 0, width, height))
    if shapely.get_type_id(shown) != shapely.GeometryType.POLYGON:
        return (np.nan, ) * 4
    return shapely.bounds(shown)
