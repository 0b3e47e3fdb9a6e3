"""Gaussian splatting against plain PyTorch, slab by slab.

3,200 Gaussians on GaussianFormer's grid of 200 x 200 x 16 voxels (its models
have 6,400 to 144,000, for which the plain form takes minutes), 18 classes,
and the forms of both heads.
"""

from collections.abc import Iterator

import torch
from harness import Case
from torch import Tensor

from mmturbox.ops import (
    gaussian_precisions,
    gaussian_radii,
    gaussian_splat,
    gaussian_splat_probabilistic,
)
from mmturbox.ops.gaussian_splat import (
    gaussian_splat_backward_reference,
    gaussian_splat_reference,
)

PLACE = [-50.0, -50.0, -5.0], 0.5, [200, 200, 16]


def _scene(number: int, device: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)

    def rand(*shape: int) -> Tensor:
        return torch.rand(1, number, *shape, generator=generator)

    means = rand(3) * torch.tensor([100., 100, 8]) + torch.tensor(PLACE[0])
    scales = rand(3) * 0.72 + 0.08
    tensors = (means, rand(), rand(18),
               gaussian_precisions(scales, rand(4) - 0.5),
               gaussian_radii(scales, 3, PLACE[1]))
    return [t.to(device) for t in tensors]


def cases(device: str = 'cpu') -> Iterator[Case]:
    *leaves, radii = _scene(3200, device)
    leaves = [leaf.requires_grad_() for leaf in leaves]
    grad = torch.randn(
        1, 640000, 18, generator=torch.Generator().manual_seed(1)).to(device)
    means, opacities, semantics, precisions = (t.detach() for t in leaves)
    none = grad[:, :0, 0]
    plain_inputs = (means, opacities[..., None] * semantics, precisions,
                    radii, *PLACE)

    def plain() -> Tensor:
        return gaussian_splat_reference(*plain_inputs, False)[0]

    def plain_both() -> tuple[Tensor, Tensor]:
        plain()
        return gaussian_splat_backward_reference(grad, none, none,
                                                 *plain_inputs)

    def ours() -> Tensor:
        return gaussian_splat(*leaves, radii, *PLACE)

    def ours_both() -> tuple[Tensor, ...]:
        return torch.autograd.grad(ours(), leaves, grad)

    def check() -> None:
        torch.testing.assert_close(ours(), plain(), rtol=1e-3, atol=1e-4)

    yield Case('Gaussian splatting forward', plain, ours, None, check)
    yield Case('Gaussian splatting forward+backward', plain_both, ours_both)

    # No stock form that is quick enough: against the additive one.
    def probabilistic() -> tuple[Tensor, ...]:
        out = gaussian_splat_probabilistic(*leaves, radii, *PLACE)
        return torch.autograd.grad(out[:2], leaves, (grad, grad[..., 0]))

    yield Case('Gaussian splatting forward+backward, probabilistic',
               plain_both, probabilistic)
