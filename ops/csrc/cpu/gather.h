// Weighted sums of the rows of a map, and their gradient, on the CPU.
//
// Everything here is inlined into functions marked MMTURBOX_CLONES.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "../common/bilinear.h"

#define MMTURBOX_INLINE __attribute__((always_inline)) inline

namespace mmturbox {

// A few channels at a time: one register of the widest instruction set, or
// several of a narrower one. They are never passed by value, whose ABI
// depends on the instruction set.
template <typename T>
struct Lanes {
  typedef T Vector __attribute__((vector_size(64)));
  typedef T Half __attribute__((vector_size(32)));
};

// `from` and `to` need not be aligned.
template <typename V, typename T>
MMTURBOX_INLINE void load(const T* from, V* vector) {
  std::memcpy(vector, from, sizeof(V));
}

template <typename V, typename T>
MMTURBOX_INLINE void store(const V& vector, T* to) {
  std::memcpy(to, &vector, sizeof(V));
}

// A bilinear read: where its four corners start, counted in elements from
// the first channel of the map, or -1 outside; and their weights.
template <typename T>
struct Tap {
  int64_t at[4];
  T weight[4];
  T lx, ly;
};

// False where the read is zero. The map starts at cell `start`, and `stride`
// elements are between cells.
template <typename T>
MMTURBOX_INLINE bool make_tap(T px, T py, int64_t height, int64_t width,
                              int64_t start, int64_t stride, Tap<T>* tap) {
  const BilinearRead<T> read(px, py, height, width);
  if (!read.inside) return false;
  for (int k = 0; k < 4; ++k) {
    const int64_t cell = read.cell(k, height, width);
    tap->at[k] = cell < 0 ? -1 : (start + cell) * stride;
    tap->weight[k] = read.weight(k);
  }
  tap->lx = read.lx;
  tap->ly = read.ly;
  return true;
}

template <typename T>
MMTURBOX_INLINE void prefetch_row(const T* row, int64_t channels) {
  const int64_t line = 64 / sizeof(T);
  for (int64_t c = 0; c < channels; c += line) __builtin_prefetch(row + c);
}

// Reads that are summed before they join the total, whose rounding then
// grows with the number of such parts alone.
constexpr int64_t kPart = 32;

// out[c] += sum of weight[i * step] * tap i, for N channels from `base`.
// A corner outside of the map reads `zeros`.
template <typename T, typename V, int N>
MMTURBOX_INLINE void gather_lanes(const T* base, const T* zeros,
                                  const Tap<T>* taps, int64_t num,
                                  const T* weight, int64_t step, T* out) {
  constexpr int kLanes = sizeof(V) / sizeof(T), kVectors = N / kLanes;
  for (int64_t begin = 0; begin < num; begin += kPart) {
    const int64_t end = begin + kPart < num ? begin + kPart : num;
    V sum[kVectors] = {};
    for (int64_t i = begin; i < end; ++i) {
      const Tap<T>& tap = taps[i];
      const T* row[4];
      T w[4];
      for (int k = 0; k < 4; ++k) {
        row[k] = tap.at[k] < 0 ? zeros : base + tap.at[k];
        w[k] = tap.weight[k] * weight[i * step];
      }
      for (int v = 0; v < kVectors; ++v) {
        V corner[4];
        for (int k = 0; k < 4; ++k) {
          load(row[k] + v * kLanes, &corner[k]);
          corner[k] *= w[k];
        }
        sum[v] += (corner[0] + corner[1]) + (corner[2] + corner[3]);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      V total;
      load(out + v * kLanes, &total);
      store(total + sum[v], out + v * kLanes);
    }
  }
}

// Any number of channels.
template <typename T>
MMTURBOX_INLINE void gather(const T* base, const T* zeros, const Tap<T>* taps,
                            int64_t num, const T* weight, int64_t step,
                            int64_t channels, T* out) {
  using V = typename Lanes<T>::Vector;
  using H = typename Lanes<T>::Half;
  constexpr int kHalf = sizeof(H) / sizeof(T);
  int64_t c = 0;
#define MMTURBOX_GATHER(VECTOR, N)                                          \
  gather_lanes<T, VECTOR, N>(base + c, zeros, taps, num, weight, step,      \
                             out + c)
  for (; c + 64 <= channels; c += 64) MMTURBOX_GATHER(V, 64);
  for (; c + 32 <= channels; c += 32) MMTURBOX_GATHER(V, 32);
  for (; c + kHalf <= channels; c += kHalf) MMTURBOX_GATHER(H, kHalf);
  for (; c < channels; ++c) MMTURBOX_GATHER(T, 1);
#undef MMTURBOX_GATHER
}

// The sum of a vector's lanes, halves first.
template <typename T, int N>
struct LaneSum {
  typedef T Vector __attribute__((vector_size(N * sizeof(T))));
  typedef T Part __attribute__((vector_size(N / 2 * sizeof(T))));
  MMTURBOX_INLINE static T of(const Vector& vector) {
    Part low, high;
    std::memcpy(&low, &vector, sizeof(Part));
    std::memcpy(&high, reinterpret_cast<const char*>(&vector) + sizeof(Part),
                sizeof(Part));
    return LaneSum<T, N / 2>::of(low + high);
  }
};
template <typename T>
struct LaneSum<T, 2> {
  typedef T Vector __attribute__((vector_size(2 * sizeof(T))));
  MMTURBOX_INLINE static T of(const Vector& vector) {
    return vector[0] + vector[1];
  }
};
template <typename T>
struct LaneSum<T, 1> {
  MMTURBOX_INLINE static T of(const T& value) { return value; }
};

template <typename T, typename V>
MMTURBOX_INLINE T sum_lanes(const V& vector) {
  return LaneSum<T, sizeof(V) / sizeof(T)>::of(vector);
}

// dot[k] += grad . corner k, and corner k of grad_base += grad * weight[k],
// for N channels.
template <typename T, typename V, int N>
MMTURBOX_INLINE void scatter_lanes(const T* const* row, T* const* to,
                                   const T* weight, const T* grad, int64_t c,
                                   T* dot) {
  constexpr int kLanes = sizeof(V) / sizeof(T), kVectors = N / kLanes;
  V sum[4];
  for (int v = 0; v < kVectors; ++v) {
    V g, values, before;
    load(grad + c + v * kLanes, &g);
    for (int k = 0; k < 4; ++k) {
      load(row[k] + c + v * kLanes, &values);
      load(to[k] + c + v * kLanes, &before);
      sum[k] = v == 0 ? values * g : sum[k] + values * g;
      store(before + g * weight[k], to[k] + c + v * kLanes);
    }
  }
  for (int k = 0; k < 4; ++k) dot[k] += sum_lanes<T, V>(sum[k]);
}

// Gradient of one tap whose weight is `weight`: adds to the map's gradient
// and gives dot[k], the product of `grad` and corner k. `zeros` and `waste`
// stand in for corners outside; they have `channels` elements.
template <typename T>
MMTURBOX_INLINE void scatter(const T* base, T* grad_base, const T* zeros,
                             T* waste, const Tap<T>& tap, T weight,
                             const T* grad, int64_t channels, T* dot) {
  using V = typename Lanes<T>::Vector;
  using H = typename Lanes<T>::Half;
  constexpr int kHalf = sizeof(H) / sizeof(T);
  const T* row[4];
  T* to[4];
  T w[4];
  for (int k = 0; k < 4; ++k) {
    const bool here = tap.at[k] >= 0;
    row[k] = here ? base + tap.at[k] : zeros;
    to[k] = here ? grad_base + tap.at[k] : waste;
    w[k] = weight * tap.weight[k];
    dot[k] = 0;
  }
  int64_t c = 0;
  for (; c + 32 <= channels; c += 32)
    scatter_lanes<T, V, 32>(row, to, w, grad, c, dot);
  for (; c + kHalf <= channels; c += kHalf)
    scatter_lanes<T, H, kHalf>(row, to, w, grad, c, dot);
  for (; c < channels; ++c) scatter_lanes<T, T, 1>(row, to, w, grad, c, dot);
}

// Softmax of `num` logits, times `scale`.
template <typename T>
MMTURBOX_INLINE void softmax_row(const T* logits, int64_t num, T scale,
                                 T* out) {
  if (num == 0) return;
  T most = logits[0], sum = 0;
  for (int64_t i = 1; i < num; ++i)
    most = logits[i] > most ? logits[i] : most;
  for (int64_t i = 0; i < num; ++i) {
    out[i] = std::exp(logits[i] - most);
    sum += out[i];
  }
  scale /= sum;
  for (int64_t i = 0; i < num; ++i) out[i] *= scale;
}

}  // namespace mmturbox
