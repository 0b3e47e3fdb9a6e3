"""A deferring history is a stock history that is read later."""

import copy
import io
import pickle
from itertools import count
from unittest import mock

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer, MessageHub

from mmturbox.hooks import deferred_scalars
from mmturbox.hooks.deferred_scalars import (
    DeferredHistoryBuffer,
    adopt_buffers,
    defer_scalar,
    defer_scalars,
    pending_of,
)

_names = count()


@pytest.fixture
def hub():
    return MessageHub.get_instance(f'deferred-{next(_names)}')


@pytest.fixture
def reads():
    """Counts host reads: ``.item()`` and ``.tolist()``."""
    calls = []
    item, tolist = torch.Tensor.item, torch.Tensor.tolist

    def counted(function):
        return lambda self: (calls.append(1), function(self))[1]

    with mock.patch.object(torch.Tensor, 'item', counted(item)), \
            mock.patch.object(torch.Tensor, 'tolist', counted(tolist)):
        yield calls


def fill_both(hub, stock, rows):
    for row in rows:
        defer_scalars(hub, row)
        for key, value in row.items():
            stock.update_scalar(key, value)


def random_rows(n):
    generator = torch.Generator().manual_seed(0)
    return [
        {
            'train/loss': torch.randn((), generator=generator),
            'train/half': torch.randn((), generator=generator).half(),
            'train/double': torch.randn(1, generator=generator).double(),
            'train/hits': torch.tensor(i),
            'train/flag': torch.tensor(i % 2 == 0),
            'train/plain': i / 3,
            'train/numpy': np.float32(i / 7),
        } for i in range(n)
    ]


def assert_equal_histories(ours, stock):
    assert list(ours.log_scalars) == list(stock.log_scalars)
    for key, expected in stock.log_scalars.items():
        for a, b in zip(ours.log_scalars[key].data, expected.data,
                        strict=True):
            assert a.dtype == b.dtype, key
            assert np.array_equal(a, b), key


def test_every_statistic_equals_stock_bit_for_bit(hub):
    stock = MessageHub.get_instance(f'deferred-{next(_names)}')
    fill_both(hub, stock, random_rows(57))
    for key, expected in stock.log_scalars.items():
        ours = hub.get_scalar(key)
        for method in ('mean', 'min', 'max'):
            for window in (None, 1, 10, 200):
                assert ours.statistics(method, window) == \
                    expected.statistics(method, window)
        assert ours.current() == expected.current()
        assert type(ours.current()) is type(expected.current())
    assert_equal_histories(hub, stock)


def test_one_read_serves_all_keys_and_iterations(hub, reads):
    for i in range(20):
        defer_scalars(hub, {
            f'train/{k}': torch.tensor(float(i))
            for k in 'abcdef'
        })
    assert not reads
    for key in 'abcdef':
        assert hub.get_scalar(f'train/{key}').current() == 19
    assert len(reads) == 1


def test_a_host_value_is_read_without_touching_pending_tensors(hub, reads):
    defer_scalars(hub, {'train/loss': torch.tensor(1.), 'train/time': 0.5})
    adopt_buffers(hub)
    hub.update_scalar('train/time', 0.25)
    assert hub.get_scalar('train/time').current() == 0.25
    assert not reads


def test_later_writes_to_a_logged_tensor_do_not_show(hub):
    running = torch.zeros(())
    for _ in range(3):
        running += 1
        defer_scalars(hub, {'train/running': running})
    assert hub.get_scalar('train/running').data[0].tolist() == [1, 2, 3]


def test_a_stock_buffer_keeps_its_identity_when_it_starts_to_defer(hub):
    hub.update_scalar('train/loss', 3)
    held = hub.get_scalar('train/loss')
    defer_scalars(hub, {'train/loss': torch.tensor(4.5)})
    assert hub.get_scalar('train/loss') is held
    assert held.data[0].tolist() == [3, 4.5]
    assert isinstance(held, HistoryBuffer)


def test_pickles_and_copies_are_stock_buffers(hub):
    defer_scalars(hub, {'train/loss': torch.tensor(2.)})
    buffer = hub.get_scalar('train/loss')
    for make in (copy.deepcopy, copy.copy,
                 lambda b: pickle.loads(pickle.dumps(b))):
        out = make(buffer)
        assert type(out) is HistoryBuffer
        assert out.data[0].tolist() == [2.]
        assert set(out.__dict__) >= {'max_length', '_log_history'}
        out.update(1.)
        assert buffer.data[0].tolist() == [2.]


def test_a_saved_hub_loads_in_a_stock_hub_and_comes_back(hub):
    stock = MessageHub.get_instance(f'deferred-{next(_names)}')
    fill_both(hub, stock, random_rows(3))
    file = io.BytesIO()
    torch.save(hub.state_dict(), file)
    file.seek(0)
    loaded = MessageHub.get_instance(f'deferred-{next(_names)}')
    loaded.load_state_dict(torch.load(file, weights_only=False))
    assert all(
        type(b) is HistoryBuffer for b in loaded.log_scalars.values())
    assert_equal_histories(loaded, stock)
    # Resumed under turbo: the stock buffers become deferring ones.
    fill_both(loaded, stock, random_rows(2))
    adopt_buffers(loaded)
    assert all(
        type(b) is DeferredHistoryBuffer for b in loaded.log_scalars.values())
    assert_equal_histories(loaded, stock)


def test_pickles_do_not_name_mmturbox(hub):
    # A checkpoint must load where mmturbox is not installed.
    defer_scalars(hub, {'train/loss': torch.tensor(2.)})
    assert b'mmturbox' not in pickle.dumps(hub.get_scalar('train/loss'))
    assert b'mmturbox' not in pickle.dumps(hub.state_dict())


def test_truncation_equals_stock(hub):
    stock = HistoryBuffer(max_length=7)
    hub.log_scalars['train/loss'] = HistoryBuffer(max_length=7)
    for i in range(40):
        defer_scalars(hub, {'train/loss': torch.tensor(i / 3)})
        stock.update(torch.tensor(i / 3).item())
        if i % 11 == 0:
            assert np.array_equal(hub.get_scalar('train/loss').data[0],
                                  stock.data[0])
    for a, b in zip(hub.get_scalar('train/loss').data, stock.data,
                    strict=True):
        assert np.array_equal(a, b)


def test_statistics_registered_by_users_see_the_values(hub):
    name = 'last_two_for_test'
    HistoryBuffer._statistics_methods[name] = (
        lambda self: self._log_history[-2:].tolist())
    try:
        for i in range(3):
            defer_scalars(hub, {'train/loss': torch.tensor(float(i))})
        assert hub.get_scalar('train/loss').statistics(name) == [1., 2.]
    finally:
        del HistoryBuffer._statistics_methods[name]


def test_pending_tensors_are_bounded(hub, reads, monkeypatch):
    monkeypatch.setattr(deferred_scalars, 'MAX_PENDING', 10)
    for i in range(35):
        defer_scalars(hub, {'train/loss': torch.tensor(float(i))})
    assert len(reads) == 3
    assert len(pending_of(hub)._items) <= 10
    assert hub.get_scalar('train/loss').data[0].tolist() == list(range(35))


def test_on_read_gets_the_value_once(hub):
    seen = []
    defer_scalar(hub, 'train/norm', torch.tensor(3.), seen.extend)
    assert not seen
    hub.get_scalar('train/norm').current()
    hub.get_scalar('train/norm').current()
    assert seen == [3.]


@pytest.mark.parametrize('value', [torch.zeros(2), 'text'])
def test_values_stock_rejects_are_rejected(hub, value):
    with pytest.raises((AssertionError, TypeError)):
        defer_scalars(hub, {'train/bad': value})


def test_update_rejects_what_stock_rejects(hub):
    defer_scalars(hub, {'train/loss': torch.tensor(1.)})
    with pytest.raises(TypeError, match='int or float'):
        hub.get_scalar('train/loss').update(torch.tensor(1.))


def test_a_foreign_history_class_is_left_alone(hub):

    class Other(HistoryBuffer):
        pass

    hub.log_scalars['train/loss'] = Other()
    defer_scalars(hub, {'train/loss': torch.tensor(1.)})
    adopt_buffers(hub)
    assert type(hub.get_scalar('train/loss')) is Other
    assert hub.get_scalar('train/loss').current() == 1.
