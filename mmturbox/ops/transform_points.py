"""Sweeps of a lidar into one cloud: move, stamp, filter and merge at once.

Definition: for each sweep, mmdet3d's ``LoadPointsFromMultiSweeps`` (without
the reading of files), then ``PointsRangeFilter`` on what comes out. As there,
coordinates of a float32 cloud are multiplied in float64, rounded to float32,
translated in float64 and rounded again. The float64 sum of three products is
taken from left to right; BLAS may take it in another order, so that a
coordinate can differ in its last bit where that sum lies within some 1e-16 of
the middle between two float32 values (about one in 10^8).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ._library import define


def transform_points_reference(sweeps: list[Tensor], matrices: Tensor,
                               time_lags: list[float], radii: list[float],
                               bounds: list[float], columns: list[int],
                               time_column: int) -> Tensor:
    parts = []
    for points, matrix, lag, radius in zip(
            sweeps, matrices, time_lags, radii, strict=True):
        half = points.dtype in (torch.float16, torch.bfloat16)
        points = points.float() if half else points
        points = points[~(points[:, :2].abs() < radius).all(dim=1)]
        if time_column == points.shape[1]:
            points = torch.nn.functional.pad(points, (0, 1))
        elif time_column >= 0:
            points = points.clone()
        if time_column >= 0:
            points[:, time_column] = lag
        if not torch.equal(matrix, torch.eye(3, 4).to(matrix)):
            x, y, z = points[:, :3].double().unbind(1)
            turned = torch.stack([(x * row[0] + y * row[1]) + z * row[2]
                                  for row in matrix], dim=1)
            moved = turned.to(points.dtype).double() + matrix[:, 3]
            points = torch.cat((moved.to(points.dtype), points[:, 3:]), dim=1)
        if bounds:
            limits = torch.tensor(bounds, device=points.device).to(points)
            points = points[((points[:, :3] > limits[:3]) &
                             (points[:, :3] < limits[3:])).all(dim=1)]
        parts.append(points[:, columns])
    return torch.cat(parts).to(sweeps[0].dtype)


def _fake(sweeps, matrices, time_lags, radii, bounds, columns, time_column):
    return sweeps[0].new_empty(torch.library.get_ctx().new_dynamic_size(),
                               len(columns))


_transform = define(
    'transform_points(Tensor[] sweeps, Tensor matrices, float[] time_lags, '
    'float[] radii, float[] bounds, int[] columns, int time_column) '
    '-> Tensor',
    transform_points_reference,
    fake=_fake)


def _check(sweeps: Sequence[Tensor], matrices: Tensor, lags: Sequence[float],
           radii: Sequence[float]) -> None:
    if not sweeps:
        raise ValueError('sweeps must hold at least one cloud')
    first = sweeps[0]
    for points in sweeps:
        if points.dim() != 2 or points.shape[1] < 3:
            raise ValueError('a sweep must have shape (N, C >= 3), got '
                             f'{tuple(points.shape)}')
        if not points.is_floating_point() or (
                points.shape[1], points.dtype, points.device) != (
                    first.shape[1], first.dtype, first.device):
            raise ValueError(
                'sweeps must be floating and share columns, dtype and '
                f'device, got {first.shape[1]} {first.dtype} {first.device} '
                f'and {points.shape[1]} {points.dtype} {points.device}')
    if matrices.shape != (len(sweeps), 3, 4) or (matrices.device !=
                                                 first.device):
        raise ValueError(
            f'matrices must have shape ({len(sweeps)}, 3, 4) on '
            f'{first.device}, got {tuple(matrices.shape)} on '
            f'{matrices.device}')
    if len(lags) != len(sweeps) or len(radii) != len(sweeps):
        raise ValueError(
            f'{len(sweeps)} sweeps need as many time lags and close radii, '
            f'got {len(lags)} and {len(radii)}')


def transform_points(sweeps: Sequence[Tensor],
                     matrices: Tensor,
                     time_lags: Sequence[float],
                     *,
                     time_column: int | None = 4,
                     columns: Sequence[int] | None = None,
                     close_radius: float | Sequence[float] = 0.0,
                     point_cloud_range: Sequence[float] | None = None
                     ) -> Tensor:
    """Merge sweeps into the frame that their matrices lead to.

    Args:
        sweeps: S clouds (N_s, C >= 3) floating; x, y, z in metres in the
            frame of each sweep first.
        matrices: (S, 3, 4) affine, column vectors, sweep -> common frame, on
            the sweeps' device; taken as float64. A sweep whose matrix is the
            identity is copied, also where it is not finite. Of mmdet3d's
            ``lidar2sensor`` it is ``[L[:3, :3].T | -L[:3, 3]]``.
        time_lags: S numbers in seconds.
        time_column: column that the time lag is written to; C appends one,
            None writes none.
        columns: columns of the result, counted after the time lag is there;
            all by default.
        close_radius: points whose x and y, in the sweep's own frame, are
            both smaller than it in size are left out; one for all sweeps or
            one each. mmdet3d spares the key frame (0) and takes 1.0 for the
            others.
        point_cloud_range: x0, y0, z0, x1, y1, z1 in metres in the common
            frame; only points strictly inside are kept.

    Returns:
        (K, len(columns)) in the sweeps' dtype: the points kept, sweep after
        sweep, each in input order.

    Raises:
        ValueError: on a wrong shape, dtype, device, length or column.

    Note:
        Bitwise deterministic, equal on every device. On CUDA the number of
        points kept is read once, if anything is filtered. No gradient.
    """
    radii = ([float(close_radius)] * len(sweeps) if isinstance(
        close_radius, (int, float)) else [float(r) for r in close_radius])
    _check(sweeps, matrices, time_lags, radii)
    width = sweeps[0].shape[1]
    if time_column is not None and not 3 <= time_column <= width:
        raise ValueError(f'time_column must lie in [3, {width}], got '
                         f'{time_column}')
    if time_column == width:
        width += 1
    columns = list(range(width)) if columns is None else list(columns)
    if not columns or not 0 <= min(columns) <= max(columns) < width:
        raise ValueError(f'columns must lie in [0, {width}), got {columns}')
    bounds = list(point_cloud_range or ())
    if len(bounds) not in (0, 6):
        raise ValueError('point_cloud_range must be [x0, y0, z0, x1, y1, z1],'
                         f' got {bounds}')
    return _transform(list(sweeps), matrices.double(), list(time_lags), radii,
                      bounds, columns,
                      -1 if time_column is None else time_column)
