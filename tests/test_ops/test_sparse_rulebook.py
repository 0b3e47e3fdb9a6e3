"""Which rows meet in a sparse convolution."""

import math

import pytest
import torch

from mmturbox.ops import (
    SparseSpec,
    indice_pairs,
    sparse_rulebook,
    sparse_rulebooks,
    tables_from_pairs,
)

OPS = torch.ops.mmturbox
LAYERS = [
    SparseSpec(3, kind='subm'),
    SparseSpec((1, 3, 5), dilation=2, kind='subm'),
    SparseSpec(3, 2, 1),
    SparseSpec((2, 3, 2), (1, 2, 3), (0, 1, 1)),
    SparseSpec(3, 1, 2, 2),
    SparseSpec((1, 1, 3), (1, 1, 2)),
    SparseSpec(3, 2, 1, kind='transposed', output_padding=1),
    SparseSpec(2, 2, kind='transposed'),
]


def make_coords(rows, batch_size, shape, seed=0):
    """Distinct rows in random order."""
    generator = torch.Generator().manual_seed(seed + rows)
    number = torch.randperm(
        batch_size * math.prod(shape), generator=generator)[:rows]
    columns = []
    for size in reversed(shape):
        columns.append(number % size)
        number = number // size
    return torch.stack([number, *reversed(columns)], 1).int()


def make_messy_coords(rows, batch_size, shape):
    """Duplicates, and rows outside on every side."""
    generator = torch.Generator().manual_seed(rows)
    return torch.stack([
        torch.randint(-1, size + 1, (rows,), generator=generator)
        for size in (batch_size, *shape)
    ], 1).int()


def plain_pairs(coords, batch_size, shape, spec):
    """Independent of the package: {tap: {(input row, output place)}}."""
    ndim = len(shape)
    spec = spec.per_axis(ndim)
    out_shape = spec.out_shape(shape)
    pairs = {}
    for row, (b, *place) in enumerate(coords.tolist()):
        if not (0 <= b < batch_size and all(
                0 <= c < s for c, s in zip(place, shape, strict=True))):
            continue
        for k, tap in enumerate(
                torch.cartesian_prod(
                    *[torch.arange(v) for v in spec.kernel]).view(
                        -1, ndim).tolist()):
            to = []
            for a in range(ndim):
                if spec.kind == 'transposed':
                    c = (place[a] * spec.stride[a] - spec.padding[a]
                         + tap[a] * spec.dilation[a])
                elif spec.kind == 'subm':
                    c = place[a] - spec.dilation[a] * (
                        tap[a] - spec.kernel[a] // 2)
                else:
                    c, rest = divmod(
                        place[a] + spec.padding[a]
                        - tap[a] * spec.dilation[a], spec.stride[a])
                    c = -1 if rest else c
                to.append(c)
            if all(0 <= c < s for c, s in zip(to, out_shape, strict=True)):
                pairs.setdefault(k, set()).add((row, (b, *to)))
    return pairs


def assert_rulebook_is_plain(rulebook, coords, batch_size, shape, spec):
    pairs = plain_pairs(coords, batch_size, shape, spec)
    places = [tuple(row) for row in rulebook.coords.tolist()]
    if spec.kind == 'subm':
        assert torch.equal(rulebook.coords, coords)
    else:
        assert places == sorted({to for s in pairs.values() for _, to in s})
    tables = rulebook.tables
    other = tables.inverse().inverse()
    for k, row in enumerate(tables.table.tolist()):
        expected = {(n, to) for n, to in pairs.get(k, ()) if to in places}
        assert {(n, places[m]) for m, n in enumerate(row) if n >= 0
                } == expected
        assert {(n, places[m]) for n, m in
                enumerate(other.transposed[k].tolist()) if m >= 0
                } == expected


@pytest.mark.parametrize('spec', LAYERS)
def test_rulebooks_match_plain_python(device, spec):
    batch_size, shape = 2, (5, 7, 6)
    coords = make_coords(150, batch_size, shape)
    rulebook = sparse_rulebook(
        coords.to(device), batch_size, shape, *spec)
    assert rulebook.spatial_shape == spec.out_shape(shape)
    assert rulebook.tables.table.dtype == torch.int32
    rulebook = rulebook._replace(
        coords=rulebook.coords.cpu(),
        tables=type(rulebook.tables)(*[
            t.cpu() if isinstance(t, torch.Tensor) else t
            for t in rulebook.tables]))
    assert_rulebook_is_plain(rulebook, coords, batch_size, shape, spec)


@pytest.mark.parametrize('shape', [(40,), (9, 8), (3, 4, 5, 3)])
@pytest.mark.parametrize('kind', ['subm', 'conv', 'transposed'])
def test_one_to_four_axes(device, shape, kind):
    spec = SparseSpec(3, 2 if kind == 'conv' else 1, 1, kind=kind)
    coords = make_coords(30, 2, shape)
    rulebook = sparse_rulebook(coords.to(device), 2, shape, *spec)
    rulebook = rulebook._replace(coords=rulebook.coords.cpu())
    assert_rulebook_is_plain(rulebook, coords, 2, shape, spec)


def op_calls(coords, batch_size, shape):
    """(operator, arguments) over layers of all kinds."""
    for spec in LAYERS:
        spec = spec.per_axis(len(shape))
        if spec.kind == 'subm':
            yield 'sparse_subm_table', (coords, batch_size, shape,
                                        spec.kernel, spec.dilation, False)
            continue
        out_shape = spec.out_shape(shape)
        rest = (spec.kernel, spec.stride, spec.padding, spec.dilation,
                spec.kind == 'transposed')
        arguments = coords, batch_size, shape, out_shape, *rest
        yield 'sparse_conv_coords', arguments
        out = OPS.sparse_conv_coords(*arguments)[0]
        yield 'sparse_conv_table', (coords, out, batch_size, shape,
                                    out_shape, *rest, False)


@pytest.mark.parametrize('rows', [0, 1, 37, 700])
def test_kernels_equal_the_reference(device, rows):
    """Also with duplicates and rows outside of the grid."""
    from mmturbox.ops import OPERATORS
    for coords in (make_messy_coords(rows, 3, (6, 5, 9)),
                   make_coords(rows, 3, (6, 5, 9))):
        wide = torch.zeros(rows, 8, dtype=torch.int32, device=device)
        wide[:, ::2] = coords.to(device)
        for name, arguments in op_calls(wide[:, ::2], 3, (6, 5, 9)):
            found = getattr(OPS, name)(*arguments)
            expected = OPERATORS[name](*arguments)
            assert len(found) == len(expected)
            for a, b in zip(found, expected, strict=True):
                assert a.dtype == b.dtype and torch.equal(a, b), name
            again = getattr(OPS, name)(*arguments)
            assert all(map(torch.equal, found, again))


def test_levels_built_at_once_equal_levels_built_in_turn(device):
    specs = [
        SparseSpec(3, kind='subm'), SparseSpec(3, 2, 1),
        SparseSpec(3, kind='subm'), SparseSpec(3, 2, (1, 1, 0)),
        SparseSpec((1, 2, 1), (2, 3, 1)), SparseSpec(3, 1, 2, 2),
        SparseSpec(3, kind='subm'),
        SparseSpec(3, 2, 1, kind='transposed'), SparseSpec(3, 2, 1)
    ]
    for coords, unique in ((make_coords(300, 2, (24, 20, 18)), True),
                           (make_messy_coords(300, 2, (24, 20, 18)), False)):
        here, shape = coords.to(device), (24, 20, 18)
        for book, spec in zip(
                sparse_rulebooks(here, 2, shape, specs, unique), specs,
                strict=True):
            alone = sparse_rulebook(here, 2, shape, *spec, unique=unique)
            assert torch.equal(book.coords, alone.coords)
            assert torch.equal(book.tables.table, alone.tables.table)
            here, shape = book.coords, book.spatial_shape
            assert book.spatial_shape == alone.spatial_shape


def test_far_apart_rows_of_a_huge_grid_do_not_alias(device):
    """KF-A13: 4 x 41 x 40000 x 40000 cells."""
    near = make_coords(40, 4, (3, 3, 3))
    shape = (41, 40000, 40000)
    shift = torch.tensor([0, 38, 39996, 39996], dtype=torch.int32)
    far = near + shift
    lone = torch.tensor([[0, 0, 0, 0], [3, 0, 0, 39999]], dtype=torch.int32)
    small = sparse_rulebook(
        near.to(device) + 1 - torch.tensor([1, 0, 0, 0], device=device,
                                           dtype=torch.int32),
        4, (5, 5, 5), kind='subm')
    large = sparse_rulebook(
        torch.cat([far, lone]).to(device), 4, shape, kind='subm')
    assert torch.equal(large.tables.table[:, :40], small.tables.table)
    alone = torch.full((27, 2), -1, dtype=torch.int32)
    alone[13] = torch.tensor([40, 41])
    assert torch.equal(large.tables.table[:, 40:].cpu(), alone)
    books = sparse_rulebooks(
        torch.cat([far, lone]).to(device), 4, shape,
        [SparseSpec(3, 2, 1)] * 3)
    assert int(books[0].coords[:, 3].max()) == 19999
    assert int(books[2].coords[:, 2].max()) == 4999
    assert books[2].tables.table.max() == len(books[1].coords) - 1
    with pytest.raises(ValueError, match='2\\^62'):
        sparse_rulebook(lone, 4, (2**20, 2**20, 2**20))


def test_an_output_shape_of_zero_is_named():
    """KF-A14."""
    coords = torch.zeros(1, 4, dtype=torch.int32)
    with pytest.raises(ValueError, match=r'\(2, 188, 188\).*\(3, 1, 1\)'):
        sparse_rulebook(coords, 1, (2, 188, 188), (3, 1, 1), (2, 1, 1))


@pytest.mark.parametrize('coords, change, message', [
    (torch.zeros(3, 3, dtype=torch.int32), {}, 'coords'),
    (torch.zeros(3, 4), {}, 'coords'),
    (torch.zeros(3, 4, dtype=torch.int32), {'kernel': (3, 3)}, 'kernel'),
    (torch.zeros(3, 4, dtype=torch.int32), {'stride': 0}, 'stride'),
    (torch.zeros(3, 4, dtype=torch.int32),
     {'kernel': 2, 'kind': 'subm'}, 'odd'),
    (torch.zeros(3, 4, dtype=torch.int32), {'kind': 'inverse'}, 'kind'),
])
def test_wrong_arguments_are_named(coords, change, message):
    with pytest.raises(ValueError, match=message):
        sparse_rulebook(coords, 1, (8, 8, 8), **change)


def test_duplicates_read_the_lowest_row_of_a_place(device):
    coords = torch.tensor([[0, 1, 1, 1], [0, 1, 1, 2], [0, 1, 1, 1],
                           [0, 1, 1, 2], [0, 1, 1, 1]], dtype=torch.int32)
    tables = sparse_rulebook(coords.to(device), 1, (3, 3, 3),
                             kind='subm').tables
    assert tables.table[13].tolist() == [0, 1, 2, 3, 4]
    assert tables.table[14].tolist() == [1, -1, 1, -1, 1]
    assert tables.table[12].tolist() == [-1, 0, -1, 0, -1]
    assert tables.transposed_chain.tolist() == [2, 3, 4, -1, -1]
    assert tables.transposed[12].tolist() == [1, -1, -1, -1, -1]
    assert tables.unchained == 13


@pytest.mark.parametrize('spec', LAYERS)
def test_indice_pairs_and_back(device, spec):
    batch_size, shape = 2, (5, 7, 6)
    coords = make_coords(150, batch_size, shape).to(device)
    rulebook = sparse_rulebook(coords, batch_size, shape, *spec)
    pairs, num = indice_pairs(rulebook.tables)
    taps = math.prod(spec.per_axis(3).kernel)
    assert pairs.shape == (taps, 2, 150) and num.shape == (taps,)
    assert pairs.dtype == num.dtype == torch.int32
    expected = plain_pairs(coords.cpu(), batch_size, shape, spec)
    places = [tuple(row) for row in rulebook.coords.tolist()]
    for k in range(taps):
        used = pairs[k, :, :num[k]]
        assert bool((pairs[k, :, num[k]:] == -1).all())
        assert {(n, places[m]) for n, m in used.t().tolist()} == {
            (n, to) for n, to in expected.get(k, ()) if to in places}
    tables = tables_from_pairs(pairs, num, 150, len(rulebook.coords))
    assert torch.equal(tables.table, rulebook.tables.table)
    assert torch.equal(tables.transposed,
                       rulebook.tables.inverse().inverse().transposed)


def test_indice_pairs_of_nothing():
    rulebook = sparse_rulebook(torch.zeros(0, 4, dtype=torch.int32), 1,
                               (4, 4, 4))
    pairs, num = indice_pairs(rulebook.tables)
    assert pairs.shape == (27, 2, 0) and num.tolist() == [0] * 27
    assert tables_from_pairs(pairs, num, 0, 0).table.shape == (27, 0)


def test_operators_pass_opcheck():
    coords = make_coords(20, 2, (5, 6, 7))
    for name, arguments in list(op_calls(coords, 2, (5, 6, 7)))[1:5]:
        torch.library.opcheck(getattr(OPS, name).default, arguments)


def test_threads_do_not_change_tables():
    coords = make_coords(5000, 2, (40, 40, 40))
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(sparse_rulebooks(
                coords, 2, (40, 40, 40),
                [SparseSpec(3, kind='subm'), SparseSpec(3, 2, 1)]))
    finally:
        torch.set_num_threads(before)
    for a, b in zip(*found, strict=True):
        assert torch.equal(a.coords, b.coords)
        assert torch.equal(a.tables.table, b.tables.table)
