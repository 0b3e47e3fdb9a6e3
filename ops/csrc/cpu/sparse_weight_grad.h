// The weight gradient of sparse convolution on the CPU: sums of a few taps
// stay in the cache while the rows stream by.
#pragma once

#include "sparse_blocks.h"

namespace mmturbox {

constexpr int64_t kSlice = 32;      // input channels of a task
constexpr int64_t kTaps = 9;        // and its taps
constexpr int64_t kPart = 16384;    // and its outputs
constexpr int64_t kGradTile = 128;  // of which it takes so many at a time

template <typename T>
struct GradTask {
  Reads<T> in;
  const T* grad;  // (outputs, out_channels)
  int64_t out_channels, stride;
  T* out;         // (taps, channels, out_channels)
};

// sums[r] += sum over pairs of rows[pair][r] * grads[to[pair]], V vectors
// wide, R rows at a time.
template <typename T, int kBytes, int R, int V>
MMTURBOX_INLINE void outer(const T* rows, const T* grads, const int32_t* to,
                           int64_t stride, int64_t pairs, int64_t slice,
                           T* sums) {
  using Vec = typename Lanes<T, kBytes>::Vec;
  constexpr int L = Lanes<T, kBytes>::count;
  for (int64_t first = 0; first < slice; first += R) {
    T* sum = sums + first * stride;
    Vec acc[R][V];
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        acc[r][v] = *reinterpret_cast<const Vec*>(sum + r * stride + v * L);
    for (int64_t p = 0; p < pairs; ++p) {
      const T* grad = grads + to[p] * stride;
      Vec g[V];
      for (int v = 0; v < V; ++v)
        g[v] = *reinterpret_cast<const Vec*>(grad + v * L);
      for (int r = 0; r < R; ++r) {
        const T x = rows[p * kSlice + first + r];
        for (int v = 0; v < V; ++v) acc[r][v] += x * g[v];
      }
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        *reinterpret_cast<Vec*>(sum + r * stride + v * L) = acc[r][v];
  }
}

// Adds one tile of outputs, whose gradients are `grads` (rows of `stride`),
// to the sums of one tap.
template <typename T, int kBytes>
MMTURBOX_INLINE void grad_tile(const GradTask<T>& task, int64_t tap,
                               int64_t first, int64_t begin, int64_t end,
                               const T* grads, T* sums, Scratch<T>& scratch) {
  constexpr int L = Lanes<T, kBytes>::count;
  constexpr int kFull = kBytes == 64 ? 16 : 8;
  const int64_t channels = task.in.channels, stride = task.stride;
  const int64_t slice = std::min(kSlice, channels - first);
  T* rows = scratch.rows.data();
  const int32_t* to = scratch.to.data();
  const int64_t pairs =
      collect<kBytes>(task.in.table + tap * task.in.outputs, begin, end,
              scratch.from.data(), scratch.to.data());
  for (int64_t p = 0; p < pairs; ++p)
    copy_row<T, kBytes>(task.in.rows, scratch.from[p], channels, first, slice,
                        task.in.chain_of(tap), rows + p * kSlice);
  for (int64_t c = 0; c < stride;) {
    if (kBytes == 64 && stride - c >= 4 * L) {
      outer<T, kBytes, kFull / 4, 4>(rows, grads + c, to, stride, pairs,
                                     slice, sums + c);
      c += 4 * L;
    } else if (stride - c >= 2 * L) {
      outer<T, kBytes, kFull / 2, 2>(rows, grads + c, to, stride, pairs,
                                     slice, sums + c);
      c += 2 * L;
    } else {
      outer<T, kBytes, kFull, 1>(rows, grads + c, to, stride, pairs,
                                 slice, sums + c);
      c += L;
    }
  }
}

// The part of the gradient of weight[tap][first:first + kSlice] that comes
// from outputs [begin, end), for a few taps.
template <typename T, int kBytes>
MMTURBOX_INLINE void grad_slice(const GradTask<T>& task, int64_t tap,
                                int64_t first, int64_t begin, int64_t end,
                                T* out, Scratch<T>& scratch) {
  const int64_t channels = task.in.channels, stride = task.stride;
  const int64_t width = task.out_channels, last = task.in.taps;
  const int64_t taps = std::min(kTaps, last - tap);
  T* sums = scratch.sums.data();
  std::fill(sums, sums + taps * kSlice * stride, T(0));
  for (int64_t m = begin; m < end; m += kGradTile) {
    const int64_t stop = std::min(m + kGradTile, end);
    const T* grads = task.grad + m * width;
    if (stride != width) {
      for (int64_t i = m; i < stop; ++i)
        copy_row<T, kBytes>(task.grad, i, width, 0, width, nullptr,
                            scratch.grads.data() + (i - m) * stride);
      grads = scratch.grads.data();
    }
    for (int64_t t = 0; t < taps; ++t)
      grad_tile<T, kBytes>(task, tap + t, first, m, stop, grads,
                           sums + t * kSlice * stride, scratch);
  }
  for (int64_t t = 0; t < taps; ++t)
    for (int64_t i = 0; i < std::min(kSlice, channels - first); ++i)
      std::copy(sums + (t * kSlice + i) * stride,
                sums + (t * kSlice + i) * stride + width,
                out + ((tap + t) * channels + first + i) * width);
}

#ifdef MMTURBOX_V4
template <typename T>
MMTURBOX_V4 void grad_slice_v4(const GradTask<T>& task, int64_t tap,
                               int64_t first, int64_t begin, int64_t end,
                               T* out, Scratch<T>& scratch) {
  grad_slice<T, 64>(task, tap, first, begin, end, out, scratch);
}
template <typename T>
MMTURBOX_V3 void grad_slice_v3(const GradTask<T>& task, int64_t tap,
                               int64_t first, int64_t begin, int64_t end,
                               T* out, Scratch<T>& scratch) {
  grad_slice<T, 32>(task, tap, first, begin, end, out, scratch);
}
#endif
template <typename T>
void grad_slice_plain(const GradTask<T>& task, int64_t tap, int64_t first,
                      int64_t begin, int64_t end, T* out,
                      Scratch<T>& scratch) {
  grad_slice<T, 16>(task, tap, first, begin, end, out, scratch);
}

// Tasks are few taps of few channels over one part of the rows; the parts
// are then added in order.
template <typename T>
void weight_grad(const GradTask<T>& task) {
  const int64_t M = task.in.outputs;
  const int64_t slices = (task.in.channels + kSlice - 1) / kSlice;
  const int64_t groups = (task.in.taps + kTaps - 1) / kTaps;
  const int64_t parts = std::max<int64_t>(1, (M + kPart - 1) / kPart);
  const int64_t size = task.in.taps * task.in.channels * task.out_channels;
#ifdef MMTURBOX_V4
  const auto run =
      for_this_cpu(grad_slice_v4<T>, grad_slice_v3<T>, grad_slice_plain<T>);
#else
  const auto run = grad_slice_plain<T>;
#endif
  std::vector<T> others((parts - 1) * size);
  for_each<T>(parts * groups * slices, [&](int64_t i, Scratch<T>& scratch) {
    scratch.sums.resize(kTaps * kSlice * task.stride);
    scratch.rows.resize(kGradTile * kSlice);
    scratch.grads.resize(kGradTile * task.stride);
    scratch.from.resize(kGradTile + kMaxRows);
    scratch.to.resize(kGradTile + kMaxRows);
    const int64_t part = i / (groups * slices);
    run(task, i / slices % groups * kTaps, i % slices * kSlice, part * kPart,
        std::min((part + 1) * kPart, M),
        part == 0 ? task.out : others.data() + (part - 1) * size, scratch);
  });
  torch::stable::parallel_for(0, size, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t part = 1; part < parts; ++part)
      for (int64_t i = begin; i < end; ++i)
        task.out[i] += others[(part - 1) * size + i];
  });
}

}  // namespace mmturbox
