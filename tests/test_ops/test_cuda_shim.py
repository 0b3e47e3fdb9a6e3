"""The execution shim finds what a GPU would stumble over."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / 'ops/csrc'
KERNELS = """
#include "cuda/device.h"
#include <string>

template <bool kBarriers>
__global__ void reverse(const int* in, int n, int* out) {
  MMTURBOX_SHARED(int, tile, 64);
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) tile[threadIdx.x] = in[i];
  if (kBarriers) __syncthreads();
  const int j = 63 - threadIdx.x;
  if (int(blockIdx.x) * 64 + j < n) out[blockIdx.x * 64 + j] = tile[j];
  if (int(blockIdx.x) * 64 + j < n) out[blockIdx.x * 64 + j] += tile[0];
}
__global__ void poison(int* out) {
  MMTURBOX_SHARED(int, tile, 32);
  if (blockIdx.x == 0) tile[threadIdx.x] = 0;
  __syncthreads();
  out[blockIdx.x * 32 + threadIdx.x] = tile[threadIdx.x];
}
__global__ void lonely_barrier() {
  if (threadIdx.x < 5) __syncthreads();
}
__global__ void early_exit() {
  if (threadIdx.x < 5) return;
  __syncthreads();
}
__global__ void past_the_end() {
  MMTURBOX_SHARED(int, tile, 64);
  tile[threadIdx.x + 1] = 1;
}
__global__ void past_dynamic() {
  MMTURBOX_DYNAMIC_SHARED(int, tile);
  tile[threadIdx.x + 1] = 1;
}
__global__ void half_warp() {
  if (threadIdx.x < 16) __shfl_xor_sync(0xffffu, 1, 1);
}
__global__ void too_much() {
  MMTURBOX_SHARED(float, a, 8192);
  MMTURBOX_SHARED(float, b, 8192);
  a[threadIdx.x] = b[threadIdx.x] = 0;
}
// Each lane: sum by xor, prefix sum, ballot of odd lanes.
__global__ void warps(int* out) {
  const int lane = threadIdx.x % 32;
  int sum = lane;
  for (int step = 16; step > 0; step /= 2)
    sum += __shfl_xor_sync(mmturbox::kFullWarp, sum, step);
  int prefix = lane;
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(mmturbox::kFullWarp, prefix, step);
    if (lane >= step) prefix += before;
  }
  const unsigned odd = __ballot_sync(mmturbox::kFullWarp, lane % 2);
  const int first = __shfl_sync(mmturbox::kFullWarp, int(threadIdx.x), 0);
  const int right = __shfl_down_sync(mmturbox::kFullWarp, lane, 1);
  int* own = out + threadIdx.x * 5;
  own[0] = sum; own[1] = prefix; own[2] = int(odd);
  own[3] = first; own[4] = right;
}

static std::string error;
template <typename Launch>
const char* guarded(Launch launch) {
  error.clear();
  try { launch(); } catch (const std::exception& e) { error = e.what(); }
  return error.c_str();
}
#define EXPORT extern "C" __attribute__((visibility("default"))) const char*
EXPORT run_reverse(const int* in, int n, int* out) {
  return guarded([&] {
    MMTURBOX_LAUNCH((reverse<true>), (n + 63) / 64, 64, 0, nullptr, in, n,
                    out);
  });
}
EXPORT run_reverse_without_barrier(const int* in, int n, int* out) {
  return guarded([&] {
    MMTURBOX_LAUNCH((reverse<false>), (n + 63) / 64, 64, 0, nullptr, in, n,
                    out);
  });
}
EXPORT run_poison(int* out) {
  return guarded([&] { MMTURBOX_LAUNCH(poison, 2, 32, 0, nullptr, out); });
}
EXPORT run_warps(int* out) {
  return guarded([&] { MMTURBOX_LAUNCH(warps, 1, 64, 0, nullptr, out); });
}
#define PLAIN(name, shared)                                                 \\
  EXPORT run_##name() {                                                     \\
    return guarded(                                                         \\
        [&] { MMTURBOX_LAUNCH(name, 1, 64, shared, nullptr); });            \\
  }
PLAIN(lonely_barrier, 0)
PLAIN(early_exit, 0)
PLAIN(past_the_end, 0)
PLAIN(past_dynamic, 256)
PLAIN(half_warp, 0)
PLAIN(too_much, 0)
EXPORT run_empty_grid() {
  return guarded([&] { MMTURBOX_LAUNCH(lonely_barrier, 0, 64, 0, nullptr); });
}
EXPORT run_odd_block() {
  return guarded([&] { MMTURBOX_LAUNCH(lonely_barrier, 1, 33, 0, nullptr); });
}
"""

pytestmark = pytest.mark.skipif(
    shutil.which('g++') is None, reason='needs g++')


@pytest.fixture(scope='module')
def kernels(tmp_path_factory):
    folder = tmp_path_factory.mktemp('shim')
    source, library = folder / 'kernels.cu', folder / 'kernels.so'
    source.write_text(KERNELS)
    subprocess.run([
        'g++', '-O1', '-std=c++17', '-shared', '-fPIC', f'-I{SOURCES}', '-x',
        'c++', source, SOURCES / 'shim/shim.cpp', '-o', library
    ], check=True)

    def run(name, *arguments):
        function = getattr(ctypes.CDLL(str(library)), f'run_{name}')
        function.restype = ctypes.c_char_p
        return function(*arguments).decode()

    return run


def reversed_blocks(kernels, name):
    size = 150
    values = (ctypes.c_int * size)(*range(1, size + 1))
    out = (ctypes.c_int * size)()
    assert kernels(name, values, size, out) == ''
    expected = [i + 1 + i // 64 * 64 + 1 for i in range(size)]
    return list(out) == expected


def test_several_blocks_with_a_ragged_tail_give_the_right_values(kernels):
    assert reversed_blocks(kernels, 'reverse')


def test_a_missing_barrier_gives_wrong_values(kernels):
    assert not reversed_blocks(kernels, 'reverse_without_barrier')


def test_shared_memory_does_not_carry_over_to_the_next_block(kernels):
    out = (ctypes.c_int * 64)()
    assert kernels('poison', out) == ''
    assert not any(out[:32]) and all(out[32:])


def test_warp_operations_exchange_between_the_lanes_of_a_warp(kernels):
    out = (ctypes.c_int * 320)()
    assert kernels('warps', out) == ''
    for thread in range(64):
        lane = thread % 32
        total, prefix, odd, first, right = out[thread * 5:thread * 5 + 5]
        assert (total, prefix) == (496, lane * (lane + 1) // 2)
        assert odd & 0xffffffff == 0xaaaaaaaa
        assert (first, right) == (thread // 32 * 32, min(lane + 1, 31))


@pytest.mark.parametrize('name, message', [
    ('lonely_barrier', 'a barrier is not reached by all threads'),
    ('early_exit', 'a barrier is not reached by all threads'),
    ('past_the_end', 'past the end of shared memory'),
    ('past_dynamic', 'past the end of shared memory'),
    ('half_warp', 'without the full mask'),
    ('too_much', 'more than 48 KiB'),
    ('odd_block', 'out of bounds'),
])
def test_what_is_undefined_on_a_gpu_is_an_error_here(kernels, name, message):
    assert message in kernels(name)
    assert reversed_blocks(kernels, 'reverse')


def test_an_empty_grid_starts_nothing(kernels):
    assert kernels('empty_grid') == ''
