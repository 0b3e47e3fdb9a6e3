"""The sparse encoder of BEVFusion against spconv 2 on the CPU.

Layers and widths are those of the full-size model on a grid of 1440 x 1440 x
41; as in mmdet3d its residual blocks have no ``indice_key``. Voxels are those
of nine sweeps (see ``bench_voxels``). spconv (``pip install spconv cumm``) has
to be importable; it asks for a CUDA stream also where there is no CUDA, for
which nothing stands in.
"""

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import torch
from bench_voxels import RANGE, SIZE, one_sweep, sweeps_of
from harness import Case, Skipped
from torch import Tensor, nn

from mmturbox.models import sparse
from mmturbox.ops import SparseSpec, hard_voxelize, sparse_rulebooks
from mmturbox.ops.sparse_conv import sparse_conv_reference
from mmturbox.ops.sparse_rulebook import sparse_subm_table_reference

SHAPE = [1440, 1440, 41]
# Width of a stage, width after its strided layer, padding of that layer.
STAGES = [(16, 32, 1), (32, 64, 1), (64, 128, (1, 1, 0)), (128, None, None)]
ROW = 'sparse encoder of BEVFusion '


def _norm(channels: int) -> nn.Module:
    return nn.BatchNorm1d(channels, eps=1e-3, momentum=0.01)


def encoder(library: ModuleType | SimpleNamespace) -> nn.Module:
    """The encoder from the layers of ``library``."""

    class Block(library.SparseModule):

        def __init__(self, width: int):
            super().__init__()
            self.conv1 = library.SubMConv3d(width, width, 3, 1, 1, bias=False)
            self.bn1 = _norm(width)
            self.conv2 = library.SubMConv3d(width, width, 3, 1, 1, bias=False)
            self.bn2 = _norm(width)

        def forward(self, x):
            identity = x.features
            x = self.conv1(x)
            x = x.replace_feature(self.bn1(x.features).relu_())
            x = self.conv2(x)
            return x.replace_feature(
                (self.bn2(x.features) + identity).relu_())

    layers = [library.SubMConv3d(5, 16, 3, 1, 1, bias=False), _norm(16),
              nn.ReLU(inplace=True)]
    for width, wider, padding in STAGES:
        layers += [Block(width), Block(width)]
        if wider:
            layers += [library.SparseConv3d(width, wider, 3, 2, padding,
                                            bias=False),
                       _norm(wider), nn.ReLU(inplace=True)]
    layers += [library.SparseConv3d(128, 128, (1, 1, 3), (1, 1, 2), 0,
                                    bias=False),
               _norm(128), nn.ReLU(inplace=True)]
    return library.SparseSequential(*layers)


def voxels() -> tuple[Tensor, Tensor]:
    """Mean features (N, 5), and coordinates (N, 4) batch, x, y, z."""
    points = torch.cat(sweeps_of(one_sweep()))
    found, coords, count = hard_voxelize(points, SIZE, RANGE, 10, 1 << 20)
    means = found.sum(1) / count[:, None]
    coords = torch.cat([torch.zeros_like(coords[:, :1]), coords.flip(1)], 1)
    return means, coords.int().contiguous()


def _spconv() -> ModuleType:
    import spconv.pytorch as library
    for module in list(sys.modules.values()):
        if (module.__name__.startswith('spconv.')
                and hasattr(module, 'get_current_stream')):
            module.get_current_stream = lambda: 0
    return library


class Run:
    """One encoder on its input."""

    def __init__(self, library: ModuleType, state: dict | None) -> None:
        torch.manual_seed(0)
        self.model = encoder(library)
        if state is not None:
            self.model.load_state_dict(state)
        self.tensor = library.SparseConvTensor
        self.features, self.coords = voxels()
        self.out = None

    def forward(self):
        self.out = self.model(
            self.tensor(self.features, self.coords, SHAPE, 1))
        return self.out

    def train(self) -> None:
        self.model.train()
        self.model.zero_grad()
        self.forward().features.square().mean().backward()

    def infer(self) -> None:
        self.model.eval()
        with torch.no_grad():
            self.forward()


def _check(stock: Run, turbo: Run) -> None:
    """The first layer: ours equals the reference in plain PyTorch, and
    spconv's nearly.

    spconv 2.3.8 computes up to some rows in a thousand wrongly on the CPU,
    other ones from run to run, which layers behind spread, so that whole
    encoders cannot be compared.
    """
    layer, shape = turbo.model[0], list(SHAPE)
    with torch.no_grad():
        found, theirs = (
            run.model[0](run.tensor(run.features, run.coords, SHAPE,
                                    1)).features for run in (turbo, stock))
        table, _ = sparse_subm_table_reference(
            turbo.coords, 1, shape, layer.kernel_size, layer.dilation,
            False)
        expected = sparse_conv_reference(turbo.features, layer.taps(), None,
                                         table, None, None, None, -1, False)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    wrong = ((theirs - expected).abs() > 1e-3).any(1).float().mean()
    if wrong > 1e-2:
        raise AssertionError(f'{wrong:.2%} of the rows of spconv differ')


def cases() -> Iterator[Case | Skipped]:
    try:
        library = _spconv()
    except (ImportError, AttributeError) as error:
        yield Skipped(ROW, f'spconv is not importable: {error}')
        return
    stock = Run(library, None)
    turbo = Run(sparse, stock.model.state_dict())
    yield Case(f'{ROW}forward+backward', stock.train, turbo.train, 5.0,
               check=lambda: _check(stock, turbo))
    yield Case(f'{ROW}forward, evaluation', stock.infer, turbo.infer)


def build_all() -> list:
    """All rulebooks of the encoder, for a profile of them alone."""
    specs = []
    for _, wider, padding in STAGES:
        specs.append(SparseSpec(3, kind='subm'))
        if wider:
            specs.append(SparseSpec(3, 2, padding))
    specs.append(SparseSpec((1, 1, 3), (1, 1, 2)))
    return sparse_rulebooks(voxels()[1], 1, SHAPE, specs)
