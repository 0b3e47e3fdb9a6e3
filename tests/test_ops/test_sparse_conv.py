"""Convolution over the tables of a rulebook."""

import pytest
import torch
from torch.nn import functional as F

from mmturbox.ops import (
    SparseSpec,
    sparse_conv,
    sparse_rulebook,
    sparse_to_dense,
)
from mmturbox.ops.sparse_conv import (
    sparse_conv_reference,
    sparse_conv_weight_grad_reference,
)

OPS = torch.ops.mmturbox
BATCH, SHAPE = 2, (6, 7, 5)
LAYERS = [
    SparseSpec(3, kind='subm'),
    SparseSpec((1, 3, 5), dilation=(1, 1, 2), kind='subm'),
    SparseSpec(3, 2, 1),
    SparseSpec((2, 3, 1), (1, 2, 3), (0, 1, 0)),
    SparseSpec(3, 2, 1, kind='transposed', output_padding=1),
]


def make_coords(rows, seed=0):
    """Distinct rows in random order."""
    generator = torch.Generator().manual_seed(seed + rows)
    number = torch.randperm(BATCH * 6 * 7 * 5, generator=generator)[:rows]
    columns = []
    for size in reversed(SHAPE):
        columns.append(number % size)
        number = number // size
    return torch.stack([number, *reversed(columns)], 1).int()


def make_layer(spec, rows, c_in, c_out, device, dtype=torch.float32):
    """Tables, output coordinates, features, weight and bias."""
    coords = make_coords(rows).to(device)
    book = sparse_rulebook(coords, BATCH, SHAPE, *spec)
    generator = torch.Generator().manual_seed(c_in + c_out)
    sizes = (rows, c_in), (book.tables.table.shape[0], c_in, c_out), (c_out,)
    values = [
        torch.randn(size, generator=generator,
                    dtype=torch.float64).to(device, dtype)
        for size in sizes
    ]
    return coords, book, *values


def dense_conv(features, weight, bias, coords, book, spec):
    """The same by PyTorch's dense convolution, at the active outputs."""
    spec = spec.per_axis(3)
    dense = sparse_to_dense(features, coords, BATCH, SHAPE)
    kernel = weight.view(*spec.kernel, *weight.shape[1:])
    if spec.kind == 'transposed':
        out = F.conv_transpose3d(
            dense, kernel.permute(3, 4, 0, 1, 2), bias, spec.stride,
            spec.padding, spec.output_padding, 1, spec.dilation)
    else:
        padding = spec.padding if spec.kind == 'conv' else [
            k // 2 * d
            for k, d in zip(spec.kernel, spec.dilation, strict=True)]
        out = F.conv3d(dense, kernel.permute(4, 3, 0, 1, 2), bias,
                       spec.stride, padding, spec.dilation)
    b, z, y, x = book.coords.long().unbind(1)
    return out[b, :, z, y, x]


def assert_equal_with_gradients(found, expected, inputs, rtol=1e-5):
    """Outputs, and gradients of a random projection of them."""
    torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol * 10)
    generator = torch.Generator().manual_seed(1)
    grad = torch.randn(found.shape, generator=generator,
                       dtype=torch.float64).to(found)
    for a, b in zip(
            torch.autograd.grad(found, inputs, grad),
            torch.autograd.grad(expected, inputs, grad), strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol * 10)


@pytest.mark.parametrize('spec', LAYERS)
@pytest.mark.parametrize('rows, c_in, c_out', [(90, 5, 16), (201, 33, 21)])
def test_equals_dense_convolution(device, spec, rows, c_in, c_out):
    coords, book, *inputs = make_layer(spec, rows, c_in, c_out, device)
    inputs = [v.requires_grad_() for v in inputs]
    found = sparse_conv(*inputs[:2], book.tables, inputs[2])
    expected = dense_conv(*inputs, coords, book, spec)
    assert_equal_with_gradients(found, expected, inputs)


@pytest.mark.parametrize('spec', LAYERS)
def test_inverse_is_the_transposed_linear_map(device, spec):
    """<conv(x), y> == <x, inverse(y)> with the weights turned over."""
    _, book, x, weight, _ = make_layer(spec, 120, 6, 9, device,
                                       torch.float64)
    y = sparse_conv(x, weight, book.tables)
    other = torch.randn_like(y)
    back = sparse_conv(other, weight.transpose(1, 2), book.tables.inverse())
    assert back.shape == x.shape
    torch.testing.assert_close((y * other).sum(), (x * back).sum())


@pytest.mark.parametrize('c_in, c_out', [
    (1, 1), (3, 130), (130, 3), (16, 16), (32, 48), (64, 64), (16, 128),
    (128, 128), (144, 20)])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_kernels_equal_the_reference(device, dtype, c_in, c_out):
    """Widths of every tile; rows that read nothing or one row often."""
    generator = torch.Generator().manual_seed(c_in)
    for taps, rows, outs in ((3, 70, 150), (1, 1, 1), (12, 150, 67)):
        table = torch.randint(-rows, rows, (taps, outs),
                              generator=generator).clamp_(min=-1).int()
        table[0] = -1
        chain = torch.full((rows,), -1, dtype=torch.int32)
        third = rows // 3
        chain[:2 * third] = torch.arange(third, 3 * third)
        x, weight, bias, grad = (
            torch.randn(size, generator=generator, dtype=dtype).to(device)
            for size in ((rows, c_in), (taps, c_in, c_out), (c_out,),
                         (outs, c_out)))
        table, chain = table.to(device), chain.to(device)
        rtol = 1e-12 if dtype == torch.float64 else 2e-5
        scale = (c_in * taps)**0.5 * 4
        for links in (None, chain):
            arguments = (x, weight, bias, table, None, links, None, 1, True)
            found = OPS.sparse_conv(*arguments)
            assert found.dtype == dtype
            torch.testing.assert_close(
                found, sparse_conv_reference(*arguments), rtol=rtol,
                atol=rtol * scale)
            assert torch.equal(found, OPS.sparse_conv(*arguments))
            arguments = x, grad, table, links, 1
            found = OPS.sparse_conv_weight_grad(*arguments)
            torch.testing.assert_close(
                found, sparse_conv_weight_grad_reference(*arguments),
                rtol=rtol, atol=rtol * 100)
            assert torch.equal(found,
                               OPS.sparse_conv_weight_grad(*arguments))


def test_many_rows_have_the_same_gradients_in_parts(device):
    """More output rows than one part of the weight gradient holds."""
    generator = torch.Generator().manual_seed(0)
    rows = 20011
    table = torch.randint(-rows, rows, (2, rows),
                          generator=generator).clamp_(min=-1).int()
    x, grad = (torch.randn(rows, c, generator=generator) for c in (3, 2))
    arguments = x.to(device), grad.to(device), table.to(device), None, -1
    torch.testing.assert_close(
        OPS.sparse_conv_weight_grad(*arguments),
        sparse_conv_weight_grad_reference(*arguments), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize('spec', LAYERS[:3])
def test_gradcheck(spec):
    for rows in (14, 5):
        _, book, *inputs = make_layer(spec, rows, 2, 3, 'cpu', torch.float64)
        inputs = [v.requires_grad_() for v in inputs]
        for tables in (book.tables, book.tables.inverse()):
            x = inputs[0] if tables is book.tables else torch.randn(
                len(book.coords), 2, dtype=torch.float64, requires_grad=True)
            assert torch.autograd.gradcheck(
                lambda x, w, b, t=tables: sparse_conv(x, w, t, b),
                (x, *inputs[1:]))
            assert torch.autograd.gradcheck(
                lambda x, w, b, s, t=tables: sparse_conv(
                    x, w, t, b, s, relu=True),
                (x, *inputs[1:], (inputs[2] + 2).detach().requires_grad_()))


def duplicate_conv(features, weight, coords):
    """Plain definition of a submanifold convolution with equal rows."""
    first, out = {}, []
    places = [tuple(row) for row in coords.tolist()]
    for i, place in enumerate(places):
        first.setdefault(place, i)
    for i, (b, z, y, x) in enumerate(places):
        total = features[i] @ weight[13]
        for k in range(27):
            near = (b, z + k // 9 - 1, y + k // 3 % 3 - 1, x + k % 3 - 1)
            if k != 13 and near in first:
                total = total + features[first[near]] @ weight[k]
        out.append(total)
    return torch.stack(out)


@pytest.mark.parametrize('repeats', [1, 3])
def test_duplicates_of_a_submanifold_convolution(device, repeats):
    """The lowest row stands for a place; the middle tap reads each row."""
    coords = make_coords(40)
    coords = torch.cat([coords, *[coords[::3]] * repeats])
    coords = coords[torch.randperm(len(coords),
                                   generator=torch.Generator().manual_seed(0))]
    generator = torch.Generator().manual_seed(2)
    features, weight = (
        torch.randn(size, generator=generator, dtype=torch.float64)
        for size in ((len(coords), 4), (27, 4, 5)))
    inputs = [features.to(device).requires_grad_(),
              weight.to(device).requires_grad_()]
    tables = sparse_rulebook(coords.to(device), BATCH, SHAPE,
                             kind='subm').tables
    assert_equal_with_gradients(
        sparse_conv(*inputs, tables), duplicate_conv(*inputs, coords),
        inputs, 1e-10)


def test_duplicates_of_a_strided_convolution_are_summed(device):
    coords = make_coords(40)
    doubled = torch.cat([coords, coords[::2], coords[::4]]).to(device)
    one, many = (sparse_rulebook(c, BATCH, SHAPE, 3, 2, 1)
                 for c in (coords.to(device), doubled))
    assert torch.equal(one.coords, many.coords)
    generator = torch.Generator().manual_seed(2)
    x, weight = (torch.randn(size, generator=generator,
                             dtype=torch.float64).to(device).requires_grad_()
                 for size in ((len(doubled), 4), (27, 4, 5)))
    summed = x[:40].clone()
    summed[::2] += x[40:60]
    summed[::4] += x[60:]
    assert_equal_with_gradients(
        sparse_conv(x, weight, many.tables),
        sparse_conv(summed, weight, one.tables), [x, weight], 1e-10)
    back = torch.randn(len(many.coords), 5, dtype=torch.float64,
                       device=device, requires_grad=True)
    again = sparse_conv(back, weight.transpose(1, 2), one.tables.inverse())
    assert_equal_with_gradients(
        sparse_conv(back, weight.transpose(1, 2), many.tables.inverse()),
        again[torch.cat([torch.arange(40), torch.arange(0, 40, 2),
                         torch.arange(0, 40, 4)])],
        [back, weight], 1e-10)


def test_far_apart_rows_have_the_values_of_a_small_grid(device):
    """KF-A13."""
    near = make_coords(60)
    far = near + torch.tensor([2, 35, 39990, 39990], dtype=torch.int32)
    x = torch.randn(60, 4, device=device)
    weight = torch.randn(27, 4, 6, device=device)
    found = [
        sparse_conv(x, weight, sparse_rulebook(
            coords.to(device), 4, shape, kind='subm').tables)
        for coords, shape in ((near, SHAPE), (far, (41, 40000, 40000)))]
    assert torch.equal(*found)


def test_scale_bias_and_relu_equal_a_batch_norm_in_evaluation_mode(device):
    _, book, x, weight, _ = make_layer(LAYERS[0], 100, 8, 16, device)
    norm = torch.nn.BatchNorm1d(16, device=device).eval()
    with torch.no_grad():
        for value in (norm.weight, norm.bias, norm.running_mean):
            value.normal_()
        norm.running_var.uniform_(0.5, 2)
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    inputs = [x.requires_grad_(), weight.requires_grad_(), norm.weight,
              norm.bias]
    assert_equal_with_gradients(
        sparse_conv(x, weight, book.tables,
                    norm.bias - norm.running_mean * scale, scale, True),
        torch.relu(norm(sparse_conv(x, weight, book.tables))), inputs, 2e-5)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_no_worse_than_the_reference_in_it(device, dtype):
    for spec, c_in, c_out in ((LAYERS[0], 16, 32), (LAYERS[2], 20, 7)):
        _, book, *exact = make_layer(spec, 180, c_in, c_out, device)
        results = {}
        for name, cast in (('exact', torch.float32), ('found', dtype),
                           ('stock', dtype)):
            inputs = [v.to(dtype).to(cast).requires_grad_() for v in exact]
            if name == 'stock':
                rows = F.pad(inputs[0], (0, 0, 0, 1))
                out = inputs[2] + sum(
                    rows[row.long()] @ w
                    for row, w in zip(book.tables.table, inputs[1],
                                      strict=True))
            else:
                out = sparse_conv(*inputs[:2], book.tables, inputs[2])
            assert out.dtype == cast
            grad = torch.linspace(-1, 1, out.numel(), device=device)
            grads = torch.autograd.grad(
                out, inputs, grad.view_as(out).to(dtype).to(cast))
            results[name] = [v.float() for v in (out, *grads)]
        for i, factor in enumerate((2, 3, 3, 3)):
            exact_value = results['exact'][i]
            error, stock = ((results[name][i] - exact_value).abs().max()
                            for name in ('found', 'stock'))
            assert error <= factor * stock


def test_autocast_computes_in_its_type(device):
    _, book, x, weight, bias = make_layer(LAYERS[0], 60, 4, 8, device)
    weight.requires_grad_()
    with torch.autocast(device, dtype=torch.bfloat16):
        out = sparse_conv(x, weight, book.tables, bias)
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert weight.grad.dtype == torch.float32


def test_empty_one_row_and_strided_memory(device):
    for rows in (0, 1):
        _, book, x, weight, bias = make_layer(LAYERS[0], rows, 3, 4, device)
        x.requires_grad_()
        weight.requires_grad_()
        out = sparse_conv(x, weight, book.tables, bias)
        assert out.shape == (rows, 4)
        out.sum().backward()
        assert x.grad.shape == (rows, 3)
        assert (rows > 0) == bool(weight.grad.any())
    _, book, x, weight, bias = make_layer(LAYERS[2], 80, 6, 8, device)
    views = (x.t().contiguous().t(), weight.transpose(1, 2).contiguous()
             .transpose(1, 2), bias.repeat_interleave(2)[::2])
    tables = book.tables._replace(
        table=book.tables.table.t().contiguous().t(),
        transposed=book.tables.transposed.t().contiguous().t())
    for value in views:
        assert not value.is_contiguous()
    found = sparse_conv(views[0].requires_grad_(), views[1], tables, views[2])
    assert torch.equal(
        found, sparse_conv(x, weight, book.tables, bias))
    found.mul(2).sum().backward()


@pytest.mark.parametrize('change, message', [
    ({'x': torch.zeros(11, 3)}, 'rows'),
    ({'x': torch.zeros(10, 4)}, r'\(10, 4\)'),
    ({'weight': torch.zeros(26, 3, 4)}, 'taps'),
    ({'weight': torch.zeros(27, 3, 4, dtype=torch.float64)}, 'dtype'),
    ({'bias': torch.zeros(3)}, 'bias'),
    ({'scale': torch.zeros(5)}, 'scale'),
])
def test_wrong_arguments_are_named(change, message):
    tables = sparse_rulebook(make_coords(10), BATCH, SHAPE,
                             kind='subm').tables
    arguments = {'x': torch.zeros(10, 3), 'weight': torch.zeros(27, 3, 4),
                 'bias': None, 'scale': None, **change}
    with pytest.raises(ValueError, match=message):
        sparse_conv(arguments['x'], arguments['weight'], tables,
                    arguments['bias'], arguments['scale'])


def test_operators_pass_opcheck():
    _, book, x, weight, bias = make_layer(LAYERS[2], 12, 3, 4, 'cpu')
    inputs = [v.requires_grad_() for v in (x, weight, bias)]
    torch.library.opcheck(OPS.sparse_conv.default,
                          (*inputs, *book.tables, False))
    torch.library.opcheck(
        OPS.sparse_conv_weight_grad.default,
        (x.detach(), torch.randn(len(book.coords), 4), book.tables.table,
         None, -1))


def test_threads_do_not_change_results():
    generator = torch.Generator().manual_seed(0)
    rows = 40000
    table = torch.randint(-rows, rows, (3, rows),
                          generator=generator).clamp_(min=-1).int()
    x, grad = (torch.randn(rows, c, generator=generator) for c in (20, 70))
    weight = torch.randn(3, 20, 70, generator=generator)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append((
                OPS.sparse_conv(x, weight, None, table, None, None, None, -1,
                                False),
                OPS.sparse_conv_weight_grad(x, grad, table, None, -1)))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
