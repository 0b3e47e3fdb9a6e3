// What the kernels of sparse convolution on the CPU have in common.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "compute.h"

// The inner loops are written with vector types and compiled three times. The
// count of accumulators follows the registers, and here, unlike elsewhere, a
// multiplication and an addition may fuse: sums are compared with a tolerance.
#define MMTURBOX_INLINE inline __attribute__((always_inline))
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#define MMTURBOX_V4 \
  __attribute__((target("arch=x86-64-v4"), optimize("fp-contract=fast")))
#define MMTURBOX_V3 \
  __attribute__((target("arch=x86-64-v3"), optimize("fp-contract=fast")))
#endif

namespace mmturbox {

constexpr int64_t kAlign = 64;    // bytes to which channels are padded
constexpr int64_t kMaxRows = 16;  // more than rows of any block

template <typename T, int kBytes>
struct Lanes {
  typedef T Vec
      __attribute__((vector_size(kBytes), aligned(alignof(T)), may_alias));
  static constexpr int count = kBytes / sizeof(T);
};

// Rows of a sparse tensor and which of them each tap reads.
template <typename T>
struct Reads {
  const T* rows;
  int64_t channels;
  const int32_t* table;  // (taps, outputs)
  int64_t taps, outputs;
  const int32_t* chain;  // or nullptr
  int64_t unchained;

  const int32_t* chain_of(int64_t tap) const {
    return tap == unchained ? nullptr : chain;
  }
};

template <typename T>
struct Scratch {
  std::vector<T> sums, rows, grads;
  std::vector<int32_t> from, to;
};

// to[0:count] = row[first:first + count], summed over the chain.
template <typename T, int kBytes>
MMTURBOX_INLINE void copy_row(const T* rows, int64_t row, int64_t channels,
                              int64_t first, int64_t count,
                              const int32_t* chain, T* to) {
  using Vec = typename Lanes<T, kBytes>::Vec;
  constexpr int L = Lanes<T, kBytes>::count;
  const T* from = rows + row * channels + first;
  int64_t c = 0;
  for (; c + L <= count; c += L)
    *reinterpret_cast<Vec*>(to + c) = *reinterpret_cast<const Vec*>(from + c);
  for (; c < count; ++c) to[c] = from[c];
  if (chain == nullptr) return;
  for (int64_t r = chain[row]; r >= 0; r = chain[r])
    for (c = 0; c < count; ++c) to[c] += rows[r * channels + first + c];
}

// Pairs of a tap among outputs [begin, end); returns how many. Vectors of 16
// are packed where the CPU can.
template <int kBytes>
inline int64_t pack_pairs(const int32_t* row, int64_t begin, int64_t end,
                          int32_t* from, int32_t* to) {
  int64_t count = 0;
  for (int64_t m = begin; m < end; ++m) {
    from[count] = row[m];
    to[count] = static_cast<int32_t>(m - begin);
    count += row[m] >= 0;
  }
  return count;
}

#ifdef MMTURBOX_V4
template <>
MMTURBOX_V4 inline int64_t pack_pairs<64>(const int32_t* row, int64_t begin,
                                          int64_t end, int32_t* from,
                                          int32_t* to) {
  __m512i place = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4,
                                   3, 2, 1, 0);
  int64_t count = 0;
  for (int64_t m = begin; m < end; m += 16) {
    const int left = static_cast<int>(end - m < 16 ? end - m : 16);
    const __mmask16 there = static_cast<__mmask16>((1u << left) - 1);
    const __m512i rows = _mm512_mask_loadu_epi32(_mm512_set1_epi32(-1), there,
                                                 row + m);
    const __mmask16 valid =
        _mm512_cmpge_epi32_mask(rows, _mm512_setzero_si512());
    _mm512_storeu_si512(from + count,
                        _mm512_maskz_compress_epi32(valid, rows));
    _mm512_storeu_si512(to + count,
                        _mm512_maskz_compress_epi32(valid, place));
    count += __builtin_popcount(valid);
    place = _mm512_add_epi32(place, _mm512_set1_epi32(16));
  }
  return count;
}
#endif

// The same, with lists filled up so that a block may run over their end: it
// adds to a row of its own, number end - begin.
template <int kBytes>
inline int64_t collect(const int32_t* row, int64_t begin, int64_t end,
                       int32_t* from, int32_t* to) {
  const int64_t count = pack_pairs<kBytes>(row, begin, end, from, to);
  for (int64_t i = count; count > 0 && i < count + kMaxRows; ++i) {
    from[i] = from[count - 1];
    to[i] = static_cast<int32_t>(end - begin);
  }
  return count;
}

template <typename F>
F for_this_cpu([[maybe_unused]] F v4, [[maybe_unused]] F v3, F plain) {
#ifdef MMTURBOX_V4
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
      && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return v4;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2"))
    return v3;
#endif
  return plain;
}

// run(i, scratch) for i in [0, count). Tasks take unlike times, so that
// threads take the next one when they are done; which one takes it does not
// matter to the result.
template <typename T, typename F>
void for_each(int64_t count, const F& run) {
  std::atomic<int64_t> next{0};
  torch::stable::parallel_for(0, count, 1, [&](int64_t, int64_t) {
    Scratch<T> scratch;
    for (int64_t i; (i = next.fetch_add(1)) < count;) run(i, scratch);
  });
}

template <typename T>
int64_t padded(int64_t channels) {
  constexpr int64_t unit = kAlign / sizeof(T);
  return (channels + unit - 1) / unit * unit;
}

template <typename T>
Reads<T> reads(const Tensor& features, const Tensor& table,
               const std::optional<Tensor>& chain, int64_t unchained) {
  return {features.const_data_ptr<T>(),
          features.size(1),
          table.const_data_ptr<int32_t>(),
          table.size(0),
          table.size(1),
          chain ? chain->const_data_ptr<int32_t>() : nullptr,
          unchained};
}

inline std::optional<Tensor> dense(const std::optional<Tensor>& tensor) {
  if (!tensor) return tensor;
  return torch::stable::contiguous(*tensor);
}

}  // namespace mmturbox
