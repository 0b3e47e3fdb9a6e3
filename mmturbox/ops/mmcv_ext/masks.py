"""mmcv's calls for attention masks and masked convolution, in PyTorch.

Point-wise spatial attention (PSANet, ECCV 2018) and convolution at chosen
pixels.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ._provided import provides


def _psa_places(h_feature: int, w_feature: int, h_mask: int, w_mask: int,
                half_h_mask: int, half_w_mask: int,
                device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Mask entry, its pixel, and the pixel it speaks of, where inside."""

    def along(size: int, mask: int, half: int) -> Tensor:
        at = torch.arange(size, device=device)
        return torch.arange(mask, device=device)[:, None] - half + at

    rows = along(h_feature, h_mask, half_h_mask)[:, None, :, None]
    columns = along(w_feature, w_mask, half_w_mask)[None, :, None]
    inside = ((rows >= 0) & (rows < h_feature) & (columns >= 0)
              & (columns < w_feature)).flatten(2).flatten(0, 1)
    entry, pixel = inside.nonzero().unbind(1)
    other = (rows * w_feature + columns).flatten(2).flatten(0, 1)
    return entry, pixel, other[entry, pixel]


@provides
def psamask_forward(input: Tensor, output: Tensor, psa_type: int, num_: int,
                    h_feature: int, w_feature: int, h_mask: int, w_mask: int,
                    half_h_mask: int, half_w_mask: int) -> None:
    """``psa_type`` 0 collects, 1 distributes."""
    entry, pixel, other = _psa_places(h_feature, w_feature, h_mask, w_mask,
                                      half_h_mask, half_w_mask, input.device)
    row, column = (other, pixel) if psa_type == 0 else (pixel, other)
    attention = torch.zeros_like(output).flatten(2)
    attention[:, row, column] = input.flatten(2)[:, entry, pixel]
    output.copy_(attention.view(output.shape))


@provides
def psamask_backward(grad_output: Tensor, grad_input: Tensor, psa_type: int,
                     num_: int, h_feature: int, w_feature: int, h_mask: int,
                     w_mask: int, half_h_mask: int, half_w_mask: int) -> None:
    entry, pixel, other = _psa_places(h_feature, w_feature, h_mask, w_mask,
                                      half_h_mask, half_w_mask,
                                      grad_output.device)
    row, column = (other, pixel) if psa_type == 0 else (pixel, other)
    grad = torch.zeros_like(grad_input).flatten(2)
    grad[:, entry, pixel] = grad_output.flatten(2)[:, row, column]
    grad_input.copy_(grad.view(grad_input.shape))


@provides
def masked_im2col_forward(im: Tensor, mask_h_idx: Tensor, mask_w_idx: Tensor,
                          col: Tensor, kernel_h: int, kernel_w: int,
                          pad_h: int, pad_w: int) -> None:
    """Fill ``col`` (C * kernel_h * kernel_w, pixels) of one image."""
    # The window of the last row may reach a kernel beyond the padded map.
    padded = pad(im[0], (pad_w, kernel_w, pad_h, kernel_h))
    down = torch.arange(kernel_h, device=im.device)[:, None, None]
    across = torch.arange(kernel_w, device=im.device)[:, None]
    col.copy_(padded[:, mask_h_idx + down,
                     mask_w_idx + across].view(col.shape))


@provides
def masked_col2im_forward(col: Tensor, mask_h_idx: Tensor, mask_w_idx: Tensor,
                          im: Tensor, height: int, width: int,
                          channels: int) -> None:
    """Write ``col`` (channels, pixels) into one image."""
    im.view(channels, height, width)[:, mask_h_idx, mask_w_idx] = col
