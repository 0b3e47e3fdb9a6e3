"""Deformable convolution, plain and modulated."""

import math

import pytest
import torch
import torch.nn.functional as F

from mmturbox.ops import deform_conv2d
from mmturbox.ops.deform_conv import (
    deform_conv2d_backward_reference,
    deform_conv2d_reference,
)

OPS = torch.ops.mmturbox
# channels, out, groups, deform_groups, kernel, stride, padding, dilation
CASES = [(4, 6, 1, 1, (3, 3), 1, 1, 1), (12, 8, 4, 3, (3, 2), (2, 1), (0, 2),
                                         (1, 2)),
         (6, 4, 2, 1, (1, 1), 1, 0, 1), (40, 4, 1, 2, (2, 2), 2, 1, 1)]
every_case = pytest.mark.parametrize('case', CASES)
modulated = pytest.mark.parametrize('with_mask', [False, True])


def make_input(case, with_mask, dtype=torch.float64, device='cpu', batch=2,
               size=(9, 11)):
    """Tensors (input, offset, weight, bias, mask) and options; offsets of a
    few pixels, so that some samples are outside of the map."""
    channels, out, groups, shared, kernel, stride, padding, dilation = case
    generator = torch.Generator().manual_seed(channels)

    def randn(*shape):
        return torch.randn(shape, generator=generator,
                           dtype=torch.float64).to(device, dtype)

    x = randn(batch, channels, *size)
    weight = randn(out, channels // groups, *kernel)
    like = F.conv2d(x[:, :1].float(), x.new_zeros(1, 1, *kernel).float(),
                    None, stride, padding, dilation)
    taps = shared * math.prod(kernel)
    offset = randn(batch, 2 * taps, *like.shape[2:]) * 2
    mask = randn(batch, taps, *like.shape[2:]).sigmoid()
    options = dict(stride=stride, padding=padding, dilation=dilation,
                   groups=groups, deform_groups=shared)
    tensors = x, offset, weight, randn(out), mask if with_mask else None
    return tensors, options


def plain_read(image, y, x):
    """Zeros around the map."""
    height, width = image.shape
    if not (-1 < y < height and -1 < x < width):
        return 0.0
    y0, x0 = math.floor(y), math.floor(x)
    total = 0.0
    for cy, wy in ((y0, y0 + 1 - y), (y0 + 1, y - y0)):
        for cx, wx in ((x0, x0 + 1 - x), (x0 + 1, x - x0)):
            if 0 <= cy < height and 0 <= cx < width:
                total += float(image[cy, cx]) * wy * wx
    return total


def plain_conv(x, offset, weight, bias, mask, stride, padding, dilation,
               groups, deform_groups):
    """Independent of the package: Python floats, sample by sample."""
    (sh, sw), (ph, pw), (dh, dw) = (
        (o, o) if isinstance(o, int) else o
        for o in (stride, padding, dilation))
    out_channels, width, kh, kw = weight.shape
    out = x.new_zeros(len(x), out_channels, *offset.shape[2:])
    per_group, shared = out_channels // groups, x.shape[1] // deform_groups
    for b, o, i, j in torch.cartesian_prod(
            *(torch.arange(n) for n in out.shape)).tolist():
        total = float(bias[o])
        for c in range(width):
            channel = o // per_group * width + c
            for k in range(kh * kw):
                at = channel // shared * kh * kw + k
                y = i * sh - ph + k // kw * dh + float(offset[b, 2 * at, i, j])
                z = j * sw - pw + k % kw * dw + float(offset[b, 2 * at + 1, i,
                                                             j])
                value = plain_read(x[b, channel], y, z)
                if mask is not None:
                    value *= float(mask[b, at, i, j])
                total += value * float(weight[o, c, k // kw, k % kw])
        out[b, o, i, j] = total
    return out


def run(tensors, options):
    """Output and the gradients of all tensors."""
    leaves = [t if t is None else t.detach().clone().requires_grad_()
              for t in tensors]
    out = deform_conv2d(*leaves, **options)
    generator = torch.Generator().manual_seed(1)
    out.backward(torch.randn(out.shape, generator=generator).to(out))
    return out.detach(), *(t.grad for t in leaves if t is not None)


@every_case
@modulated
def test_matches_plain_python(device, case, with_mask):
    tensors, options = make_input(case, with_mask, batch=1, size=(5, 4))
    expected = plain_conv(*tensors, **options)
    for dtype in (torch.float64, torch.float32):
        moved = [t if t is None else t.to(device, dtype) for t in tensors]
        found = deform_conv2d(*moved, **options)
        torch.testing.assert_close(found.cpu(), expected.to(dtype),
                                   rtol=1e-4, atol=1e-4)


@every_case
@modulated
def test_kernels_equal_the_reference(device, case, with_mask):
    (x, offset, weight, _, mask), options = make_input(case, with_mask,
                                                       device=device)
    places = [[v, v] if isinstance(v, int) else list(v)
              for v in list(options.values())[:3]]
    arguments = (x, offset, mask, weight, *places, *list(
        options.values())[3:])
    out = OPS.deform_conv2d(*arguments)
    torch.testing.assert_close(out, deform_conv2d_reference(*arguments))
    grad = torch.randn_like(out)
    for wanted in ((True, True), (True, False), (False, True)):
        found = OPS.deform_conv2d_backward(grad, *arguments, *wanted)
        expected = deform_conv2d_backward_reference(grad, *arguments, *wanted)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)


@every_case
@modulated
def test_gradients_are_right(device, case, with_mask):
    tensors, options = make_input(case, with_mask, device=device,
                                  size=(4, 5))
    assert torch.autograd.gradcheck(
        lambda *leaves: deform_conv2d(*leaves, **options),
        [t if t is None else t.requires_grad_() for t in tensors],
        fast_mode=True, nondet_tol=1e-12)


def test_without_offsets_it_is_a_convolution(device):
    for case in CASES:
        (x, offset, weight, bias, _), options = make_input(case, False,
                                                           device=device)
        found = run((x, offset * 0, weight, bias, None), options)
        shared = options.pop('deform_groups')
        assert shared == case[3]
        x, weight, bias = (t.requires_grad_() for t in (x, weight, bias))
        out = F.conv2d(x, weight, bias, **options)
        generator = torch.Generator().manual_seed(1)
        out.backward(torch.randn(out.shape, generator=generator).to(out))
        for a, b in zip((found[0], found[1], *found[3:]),
                        (out, x.grad, weight.grad, bias.grad), strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize('batch', [1, 33, 65, 80, 154])
def test_any_batch_is_the_sum_of_its_images(device, batch):
    """KF-A10: nothing depends on how images are taken together."""
    tensors, options = make_input((2, 3, 1, 1, (2, 2), 1, 0, 1), True,
                                  device=device, batch=batch, size=(3, 4))
    found = run(tensors, options)
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(found[0].shape, generator=generator).to(found[0])
    leaves = [t.clone().requires_grad_() for t in tensors]
    out = torch.cat([
        deform_conv2d(leaves[0][b:b + 1], leaves[1][b:b + 1], leaves[2],
                      leaves[3], leaves[4][b:b + 1], **options)
        for b in (range(batch) if batch < 40 else range(0, batch, 13))
    ])
    kept = slice(None) if batch < 40 else slice(None, None, 13)
    torch.testing.assert_close(found[0][kept], out)
    out.backward(weight[kept])
    for a, b in zip(found[1:], (t.grad for t in leaves), strict=True):
        if len(a) == batch:
            torch.testing.assert_close(a[kept], b[kept])
        elif batch < 40:
            torch.testing.assert_close(a, b)


def test_positions_of_several_blocks_and_tiles(device):
    """No multiple of 32 positions, and of 8 channels a slice."""
    case = (11, 3, 1, 1, (3, 3), 1, 1, 1)
    tensors, options = make_input(case, True, torch.float32, device, 1,
                                  (7, 43))
    found = run(tensors, options)
    expected = deform_conv2d_reference(
        tensors[0], tensors[1], tensors[4], tensors[2], [1, 1], [1, 1],
        [1, 1], 1, 1) + tensors[3].view(-1, 1, 1)
    torch.testing.assert_close(found[0], expected, rtol=1e-4, atol=1e-4)


def test_many_positions_cross_tiles_on_the_cpu():
    case = (48, 5, 1, 1, (3, 3), 1, 1, 1)
    tensors, options = make_input(case, True, torch.float32, 'cpu', 2,
                                  (40, 61))
    arguments = (*(tensors[k] for k in (0, 1, 4, 2)), [1, 1], [1, 1], [1, 1],
                 1, 1)
    out = OPS.deform_conv2d(*arguments)
    torch.testing.assert_close(out, deform_conv2d_reference(*arguments),
                               rtol=1e-4, atol=1e-4)
    grad = torch.randn_like(out)
    for a, b in zip(
            OPS.deform_conv2d_backward(grad, *arguments, True, True),
            deform_conv2d_backward_reference(grad, *arguments, True, True),
            strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_samples_outside_and_not_finite_are_zero(device):
    (x, offset, weight, bias, mask), options = make_input(
        CASES[0], True, device=device)
    for value in (math.nan, math.inf, -math.inf, 1e20, -500.0):
        out, *grads = run((x, torch.full_like(offset, value), weight, bias,
                           mask), options)
        assert torch.equal(out, bias.view(-1, 1, 1).expand_as(out))
        assert not any(grads[k].any() for k in (0, 1, 2, 4))


def test_empty_batch_and_no_output_channels(device):
    tensors, options = make_input(CASES[0], True, device=device)
    empty = [tensors[0][:0], tensors[1][:0], *tensors[2:4], tensors[4][:0]]
    out, *grads = run(empty, options)
    assert out.shape == (0, 6, 9, 11)
    assert [g.shape for g in grads] == [t.shape for t in empty]
    assert not grads[2].any()
    out, *grads = run([*tensors[:2], tensors[2][:0], tensors[3][:0],
                       tensors[4]], options)
    assert out.shape == (2, 0, 9, 11)
    assert not any(grads[k].any() for k in (0, 1, 4))


@modulated
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_no_worse_than_the_reference(
        device, with_mask, dtype):
    """Whose samples and sums are in float32."""
    tensors, options = make_input(CASES[0], with_mask, dtype, device)
    exact = run([t if t is None else t.double() for t in tensors], options)
    found = run(tensors, options)
    tolerance = 4 * torch.finfo(dtype).eps
    for k, (a, b) in enumerate(zip(found, exact, strict=True)):
        assert a.dtype == dtype
        # Columns in half precision add to the error of CUDA's products.
        error = (a.double() - b).abs().max() / b.abs().max()
        assert error < tolerance, (k, float(error))


def test_all_are_cast_to_the_type_of_offset(device):
    (x, offset, weight, bias, mask), options = make_input(
        CASES[0], True, torch.float32, device)
    out = deform_conv2d(x, offset.half(), weight, bias, mask, **options)
    assert out.dtype == torch.float16


@every_case
def test_results_do_not_depend_on_run_threads_or_strides(
        device, case, request):
    by_atomics = request.node.callspec.params['device'] != 'cpu'
    tensors, options = make_input(case, True, torch.float32, device, 3)
    strided = [
        t.transpose(-1, -2).contiguous().transpose(-1, -2)
        if t.dim() > 1 else t.repeat_interleave(2)[::2] for t in tensors
    ]
    last = [tensors[0].to(memory_format=torch.channels_last), *tensors[1:]]
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            results.append(run(tensors, options))
    finally:
        torch.set_num_threads(before)
    results += [run(strided, options), run(last, options)]
    for result in results[1:]:
        for k, (a, b) in enumerate(zip(result, results[0], strict=True)):
            # Atomics add up the gradient of the input on CUDA.
            if by_atomics and k == 1:
                torch.testing.assert_close(a, b)
            else:
                assert torch.equal(a, b)


@modulated
def test_operators_pass_opcheck(with_mask):
    (x, offset, weight, _, mask), _ = make_input(CASES[2], with_mask,
                                                 size=(2, 3))
    options = [1, 1], [0, 0], [1, 1], 2, 1
    arguments = [x, offset, mask, weight]
    grad = torch.randn(2, 4, 2, 3, dtype=torch.float64)
    torch.library.opcheck(OPS.deform_conv2d_backward.default,
                          (grad, *arguments, *options, True, True))
    leaves = [t if t is None else t.requires_grad_() for t in arguments]
    torch.library.opcheck(OPS.deform_conv2d.default, (*leaves, *options))


@pytest.mark.parametrize('change, message', [
    (dict(input=torch.zeros(4, 9, 11)), 'four dimensions'),
    (dict(groups=3), 'groups'),
    (dict(deform_groups=3), 'deform_groups'),
    (dict(weight=torch.zeros(6, 2, 3, 3)), 'weight'),
    (dict(offset=torch.zeros(2, 9, 9, 11)), 'offset'),
    (dict(offset=torch.zeros(2, 18, 9, 10)), 'offset'),
    (dict(mask=torch.zeros(2, 18, 9, 11)), 'mask'),
    (dict(mask=torch.zeros(2, 9, 9, 11, device='meta')), 'device'),
    (dict(input=torch.zeros(2, 4, 2, 2), padding=0), 'too small'),
])
def test_bad_arguments_are_named(change, message):
    (x, offset, weight, bias, mask), options = make_input(CASES[0], True)
    arguments = dict(input=x, offset=offset, weight=weight, bias=bias,
                     mask=mask, **options)
    with pytest.raises(ValueError, match=message):
        deform_conv2d(**(arguments | change))
