"""Rulebooks: found once, shared by all layers of the same geometry.

The first pass through a model finds them one by one and notes on its first
layer which were asked for in a chain. From the second pass on that layer
finds all of them together, so that the host waits once for the sizes of all
levels of an encoder.
"""

from typing import NamedTuple

from torch import Tensor, nn

from mmturbox.ops import SparseRulebook, SparseSpec, sparse_rulebooks

from .tensor import SparseConvTensor

_TRACE = '__mmturbox_trace__'


class Couple(NamedTuple):
    """What an inverse convolution needs of the layer that it undoes."""
    rulebook: SparseRulebook
    spec: SparseSpec
    indices: Tensor
    spatial_shape: list[int]


class Trace:
    """The rulebooks of one pass.

    Attributes:
        chain: specs of layers that were asked for, each on the rows that the
            one before it gave.
        books: by identity of the input coordinates, and spec.
    """

    def __init__(self, indices: Tensor):
        self.chain: list[SparseSpec] = []
        self.books: dict[tuple[int, SparseSpec], SparseRulebook] = {}
        self._end = indices
        self._asked: set = set()
        # An identity is good for as long as the tensor lives.
        self._alive = [indices]

    def keep(self, indices: Tensor, spec: SparseSpec,
             book: SparseRulebook) -> None:
        self.books[id(indices), spec] = book
        self._alive += [indices, book.coords]

    def note(self, indices: Tensor, spec: SparseSpec,
             book: SparseRulebook) -> None:
        key = id(indices), spec
        if indices is self._end and key not in self._asked:
            self.chain.append(spec)
            self._end = book.coords
        self._asked.add(key)


def _start(x: SparseConvTensor, layer: nn.Module) -> Trace:
    """Begin a pass, with all rulebooks of the last one's chain."""
    trace = Trace(x.indices)
    chain = getattr(layer, 'chain', None)
    if chain:
        try:
            books = sparse_rulebooks(x.indices, x.batch_size,
                                     x.spatial_shape, chain, x.unique)
        except ValueError:
            # Another shape than last time: the layer it fits ill will say.
            books = []
        indices = x.indices
        for spec, book in zip(chain, books, strict=False):
            trace.keep(indices, spec, book)
            indices = book.coords
    layer.chain = trace.chain
    return trace


def find_rulebook(x: SparseConvTensor, layer: nn.Module,
                  spec: SparseSpec) -> SparseRulebook:
    """The rulebook of ``layer`` on the rows of ``x``, found or made."""
    trace = x.indice_dict.get(_TRACE)
    if trace is None:
        trace = x.indice_dict[_TRACE] = _start(x, layer)
    book = trace.books.get((id(x.indices), spec))
    if book is None:
        book = sparse_rulebooks(x.indices, x.batch_size, x.spatial_shape,
                                [spec], x.unique)[0]
        trace.keep(x.indices, spec, book)
    trace.note(x.indices, spec, book)
    return book
