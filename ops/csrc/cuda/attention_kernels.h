// Kernels of attention that reads maps at a few samples for each head of a
// row. What a sample is, four corners of a bilinear read or one cell, is the
// business of a `Sampler`.
//
// A group of threads (a power of two within a warp) works on one head of one
// row, a thread on V neighbouring channels that one instruction of 16 bytes
// moves. The cells and weights of samples are made once by the group, each
// thread some of them, and are read by all of it from shared memory.
#pragma once

#include "attention_args.h"
#include "device.h"

namespace mmturbox {

template <typename T>
struct SumType {
  using type = float;
};
template <>
struct SumType<double> {
  using type = double;
};

template <typename T, int V>
struct alignas(sizeof(T) * V) Pack {
  T value[V];
};

// A sample: its cells or -1, where it lies between them, its weight.
template <typename Sum, int kCorners>
struct StagedTap {
  int32_t cell[kCorners];
  Sum lx, ly, weight;

  __device__ Sum corner(int k) const {
    if (kCorners == 1) return 1;
    return (k & 1 ? lx : 1 - lx) * (k & 2 ? ly : 1 - ly);
  }
};

// Rows of hits as on the CPU; ranges are kept inside of the list here.
struct AttentionRows {
  const int64_t *images, *offsets;
  int64_t rows, hits, num_images, per_image;

  __device__ int64_t bound(int64_t row) const {
    if (offsets == nullptr) return row;
    const int64_t at = offsets[row];
    return at < 0 ? 0 : (at > hits ? hits : at);
  }
  // The image that a hit reads, or -1.
  __device__ int64_t image(int64_t hit) const {
    const int64_t at = images == nullptr ? hit / per_image : images[hit];
    return at >= 0 && at < num_images ? at : -1;
  }
};

template <typename T>
struct AttentionMaps {
  using Sum = typename SumType<T>::type;
  const T* value;
  const Sum* weights;  // (hits, heads, samples)
  AttentionRows rows;
  int64_t cells, heads, channels, samples;
  bool softmax;
};

template <typename T>
AttentionMaps<T> maps_of(const AttentionArgs& a) {
  using Sum = typename SumType<T>::type;
  return {static_cast<const T*>(a.value),
          static_cast<const Sum*>(a.weights),
          {a.images, a.offsets, a.rows, a.hits, a.num_images,
           a.num_images > 0 ? a.hits / a.num_images : 0},
          a.cells,
          a.heads,
          a.channels,
          a.levels * a.points,
          a.softmax};
}

constexpr int kAttentionThreads = 256, kStagedTaps = 512;

template <typename Sum>
__device__ Sum group_sum(Sum value, int group) {
  for (int lanes = group / 2; lanes > 0; lanes /= 2)
    value += __shfl_xor_sync(kFullWarp, value, lanes);
  return value;
}

// Largest logit and one over the sum of exponentials, for a group.
template <typename Sum>
__device__ void softmax_of(const Sum* logits, int64_t count, int lane,
                           int group, Sum* most, Sum* inverse) {
  Sum top = -INFINITY;
  for (int64_t i = lane; i < count; i += group)
    top = logits[i] > top ? logits[i] : top;
  for (int lanes = group / 2; lanes > 0; lanes /= 2) {
    const Sum other = __shfl_xor_sync(kFullWarp, top, lanes);
    top = other > top ? other : top;
  }
  Sum sum = 0;
  for (int64_t i = lane; i < count; i += group)
    sum += std::exp(logits[i] - top);
  *most = top;
  *inverse = 1 / group_sum(sum, group);
}

// One head of one hit, as a group of threads sees it.
template <typename T>
struct HeadOfHit {
  using Sum = typename SumType<T>::type;
  int64_t unit, image, head;
  const Sum* logits;
  Sum most, inverse, scale;
  bool here;  // False for groups that only keep others company.

  __device__ HeadOfHit(const AttentionMaps<T>& a, int64_t hit, int64_t end,
                       int64_t head_in, Sum scale_in, int lane, int group) {
    image = hit < end ? a.rows.image(hit) : -1;
    here = image >= 0;
    head = head_in;
    unit = hit * a.heads + head;
    logits = a.weights + (here ? unit * a.samples : 0);
    most = 0;
    inverse = 1;
    scale = scale_in;
    if (a.softmax)
      softmax_of(logits, here ? a.samples : 0, lane, group, &most, &inverse);
  }

  __device__ Sum probability(int64_t i, bool softmax) const {
    return softmax ? std::exp(logits[i] - most) * inverse : logits[i];
  }

  __device__ const T* map(const AttentionMaps<T>& a) const {
    return a.value + (image * a.cells * a.heads + head) * a.channels;
  }

  // Samples [first, first + count) into shared memory.
  template <typename Sampler>
  __device__ void stage(const AttentionMaps<T>& a, const Sampler& sampler,
                        int64_t first, int64_t count, int lane, int group,
                        typename Sampler::Tap* taps) const {
    for (int64_t j = lane; here && j < count; j += group) {
      sampler.place(unit, first + j, &taps[j]);
      taps[j].weight = probability(first + j, a.softmax) * scale;
    }
    __syncwarp();
  }
};

template <typename T, int V, typename Sampler>
__global__ void __launch_bounds__(kAttentionThreads)
    attend_kernel(AttentionMaps<T> a, Sampler sampler, int group,
                  T* __restrict__ out) {
  using Sum = typename SumType<T>::type;
  using Tap = typename Sampler::Tap;
  using Vec = Pack<T, V>;
  MMTURBOX_SHARED(Tap, taps, kStagedTaps);
  const int lane = threadIdx.x % group, slot = threadIdx.x / group;
  const int units = kAttentionThreads / group, chunk = kStagedTaps / units;
  Tap* own = taps + slot * chunk;
  const int64_t total = a.rows.rows * a.heads, stride = a.heads * a.channels;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * units;
       first < total; first += static_cast<int64_t>(gridDim.x) * units) {
    const int64_t unit = first + slot;
    const int64_t row = unit < total ? unit / a.heads : 0;
    const int64_t begin = a.rows.bound(row);
    const int64_t end = unit < total ? a.rows.bound(row + 1) : begin;
    const Sum scale = 1 / static_cast<Sum>(end > begin ? end - begin : 1);
    for (int64_t c0 = 0; c0 < a.channels; c0 += group * V) {
      const int64_t c = c0 + lane * V;
      Sum sum[V];
      for (int v = 0; v < V; ++v) sum[v] = 0;
      for (int64_t hit = begin; __any_sync(kFullWarp, hit < end); ++hit) {
        const HeadOfHit<T> of(a, hit, end, unit % a.heads, scale, lane,
                              group);
        for (int64_t i = 0; i < a.samples; i += chunk) {
          const int64_t count = a.samples - i < chunk ? a.samples - i : chunk;
          of.stage(a, sampler, i, count, lane, group, own);
          const T* map = of.map(a) + c;
          for (int64_t j = 0; of.here && c < a.channels && j < count; ++j) {
            const Tap tap = own[j];
            for (int k = 0; k < Sampler::kCorners; ++k) {
              if (tap.cell[k] < 0) continue;
              const Vec read = *reinterpret_cast<const Vec*>(
                  map + tap.cell[k] * stride);
              const Sum weight = tap.corner(k) * tap.weight;
              for (int v = 0; v < V; ++v)
                sum[v] += weight * static_cast<Sum>(read.value[v]);
            }
          }
          __syncwarp();
        }
      }
      if (unit >= total || c >= a.channels) continue;
      Vec result;
      for (int v = 0; v < V; ++v) result.value[v] = static_cast<T>(sum[v]);
      *reinterpret_cast<Vec*>(out + unit * a.channels + c) = result;
    }
  }
}

template <typename T>
struct AttentionGradients {
  using Sum = typename SumType<T>::type;
  const T* out;
  Sum *value, *weights, *locations;  // Locations: null where there are none.
};

// What one sample adds to the gradient of the map, and its dot products with
// the row's gradient: this thread's share of them.
template <typename T, int V, typename Sampler>
__device__ void sample_gradient(const AttentionMaps<T>& a,
                                const typename Sampler::Tap& tap,
                                const T* map, const T* above,
                                typename SumType<T>::type* to, int lane,
                                int group, typename SumType<T>::type* dot) {
  using Sum = typename SumType<T>::type;
  using Vec = Pack<T, V>;
  const int64_t stride = a.heads * a.channels;
  for (int64_t c = lane * V; c < a.channels; c += group * V) {
    const Vec g = *reinterpret_cast<const Vec*>(above + c);
    for (int k = 0; k < Sampler::kCorners; ++k) {
      if (tap.cell[k] < 0) continue;
      const int64_t at = tap.cell[k] * stride + c;
      const Vec read = *reinterpret_cast<const Vec*>(map + at);
      const Sum weight = tap.corner(k) * tap.weight;
      for (int v = 0; v < V; ++v) {
        const Sum up = static_cast<Sum>(g.value[v]);
        dot[k] += up * static_cast<Sum>(read.value[v]);
        atomicAdd(to + at + v, weight * up);
      }
    }
  }
}

// Gradients of weights and locations are summed in the group and written
// once; only the gradient of the map is added by atomics.
template <typename T, int V, typename Sampler>
__global__ void __launch_bounds__(kAttentionThreads)
    attend_backward_kernel(AttentionMaps<T> a, Sampler sampler, int group,
                           AttentionGradients<T> grad) {
  using Sum = typename SumType<T>::type;
  using Tap = typename Sampler::Tap;
  constexpr int kSums = Sampler::kCorners == 1 ? 1 : 3;
  MMTURBOX_SHARED(Tap, taps, kStagedTaps);
  MMTURBOX_SHARED(Sum, staged_sums, kStagedTaps * kSums);
  const int lane = threadIdx.x % group, slot = threadIdx.x / group;
  // A multiple of the group: a sample is always the same thread's.
  const int units = kAttentionThreads / group, chunk = kStagedTaps / units;
  Tap* own = taps + slot * chunk;
  Sum* sums = staged_sums + slot * chunk * kSums;
  const int64_t total = a.rows.rows * a.heads;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * units;
       first < total; first += static_cast<int64_t>(gridDim.x) * units) {
    const int64_t unit = first + slot;
    const int64_t row = unit < total ? unit / a.heads : 0;
    const int64_t begin = a.rows.bound(row);
    const int64_t end = unit < total ? a.rows.bound(row + 1) : begin;
    const Sum scale = 1 / static_cast<Sum>(end > begin ? end - begin : 1);
    const T* above = grad.out + (unit < total ? unit * a.channels : 0);
    for (int64_t hit = begin; __any_sync(kFullWarp, hit < end); ++hit) {
      const HeadOfHit<T> of(a, hit, end, unit % a.heads, scale, lane, group);
      Sum* by_weight = grad.weights + of.unit * a.samples;
      Sum inner = 0;
      for (int64_t i = 0; i < a.samples; i += chunk) {
        const int64_t count = a.samples - i < chunk ? a.samples - i : chunk;
        of.stage(a, sampler, i, count, lane, group, own);
        for (int64_t j = 0; j < count; ++j) {
          Sum dot[4] = {0, 0, 0, 0}, part[3] = {0, 0, 0};
          if (of.here) {
            sample_gradient<T, V, Sampler>(
                a, own[j], of.map(a), above,
                grad.value + (of.map(a) - a.value), lane, group, dot);
            Sampler::slopes(own[j], dot, part);
          }
          for (int s = 0; s < kSums; ++s) {
            part[s] = group_sum(part[s], group);
            if (lane == 0) sums[j * kSums + s] = part[s];
          }
        }
        __syncwarp();
        for (int64_t j = lane; of.here && j < count; j += group) {
          const Sum* sum = sums + j * kSums;
          by_weight[i + j] = sum[0] * scale;
          inner += sum[0] * own[j].weight;
          sampler.store(of.unit, i + j, own[j].weight, sum, grad.locations);
        }
        __syncwarp();
      }
      if (!a.softmax) continue;
      inner = group_sum(inner, group);
      for (int64_t i = lane; of.here && i < a.samples; i += group)
        by_weight[i] = of.probability(i, true) * (by_weight[i] - inner);
    }
  }
}

// Threads for a head: a power of two.
inline int attention_group(int64_t vectors) {
  int group = 1;
  while (group < 32 && group < vectors) group *= 2;
  return group;
}

// Whether rows of `channels` can be moved in vectors of 16 bytes.
template <typename T>
bool whole_vectors(int64_t channels, const T* a, const T* b) {
  const auto address =
      reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b);
  return (channels * sizeof(T) | address) % 16 == 0;
}

template <typename T, typename Sampler>
void attend(const AttentionMaps<T>& a, const Sampler& sampler, T* out,
            Stream stream) {
  constexpr int kPack = 16 / sizeof(T);
  const bool whole = whole_vectors<T>(a.channels, a.value, out);
  const int group =
      attention_group(whole ? a.channels / kPack : a.channels);
  const unsigned blocks = grid_of(
      ceil_div(a.rows.rows * a.heads, kAttentionThreads / group));
  if (whole)
    MMTURBOX_LAUNCH((attend_kernel<T, kPack, Sampler>), blocks,
                    kAttentionThreads, 0, stream, a, sampler, group, out);
  else
    MMTURBOX_LAUNCH((attend_kernel<T, 1, Sampler>), blocks,
                    kAttentionThreads, 0, stream, a, sampler, group, out);
}

template <typename T, typename Sampler>
void attend_backward(const AttentionMaps<T>& a, const Sampler& sampler,
                     const AttentionGradients<T>& grad, Stream stream) {
  constexpr int kPack = 16 / sizeof(T);
  const bool whole = whole_vectors<T>(a.channels, a.value, grad.out);
  const int group =
      attention_group(whole ? a.channels / kPack : a.channels);
  const unsigned blocks = grid_of(
      ceil_div(a.rows.rows * a.heads, kAttentionThreads / group));
  if (whole)
    MMTURBOX_LAUNCH((attend_backward_kernel<T, kPack, Sampler>), blocks,
                    kAttentionThreads, 0, stream, a, sampler, group, grad);
  else
    MMTURBOX_LAUNCH((attend_backward_kernel<T, 1, Sampler>), blocks,
                    kAttentionThreads, 0, stream, a, sampler, group, grad);
}

}  // namespace mmturbox
