// Points sorted by the number of their voxel.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "../common/stable.h"

namespace mmturbox {

// A number and the point that has it. They share one word where both fit.
struct PackedEntry {
  uint64_t word;

  static PackedEntry make(uint64_t number, uint32_t point) {
    return {number << 32 | point};
  }
  uint64_t number() const { return word >> 32; }
  uint32_t point() const { return static_cast<uint32_t>(word); }
};

struct WideEntry {
  uint64_t value;
  uint32_t index;

  static WideEntry make(uint64_t number, uint32_t point) {
    return {number, point};
  }
  uint64_t number() const { return value; }
  uint32_t point() const { return index; }
};

// One stable pass over kBits bits. Chunks are counted and moved by
// themselves; being stable, the result does not depend on how many there are.
template <typename Entry>
void radix_pass(const std::vector<Entry>& from, int shift,
                std::vector<Entry>* to) {
  constexpr int kBits = 11;
  constexpr uint64_t kMask = (1 << kBits) - 1;
  using Counts = std::array<uint32_t, 1 << kBits>;
  const int64_t N = from.size();
  const int64_t chunks =
      std::clamp<int64_t>(N / 16384, 1, torch::stable::get_num_threads());
  std::vector<Counts> counts(chunks);
  const auto each_chunk = [&](auto run) {
    torch::stable::parallel_for(0, chunks, 1, [&](int64_t a, int64_t b) {
      for (int64_t c = a; c < b; ++c)
        run(counts[c], c * N / chunks, (c + 1) * N / chunks);
    });
  };
  each_chunk([&](Counts& count, int64_t begin, int64_t end) {
    count.fill(0);
    for (int64_t i = begin; i < end; ++i)
      ++count[from[i].number() >> shift & kMask];
  });
  uint32_t next = 0;
  for (size_t digit = 0; digit <= kMask; ++digit)
    for (Counts& count : counts) next += std::exchange(count[digit], next);
  each_chunk([&](Counts& count, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      (*to)[count[from[i].number() >> shift & kMask]++] = from[i];
  });
}

// Points sorted by number, stable; those with number -1 last. `limit` is
// above every number.
template <typename Entry>
std::vector<Entry> sorted_entries(const std::vector<int64_t>& number,
                                  uint64_t limit) {
  const int64_t N = number.size();
  std::vector<Entry> entries(N), other(N);
  torch::stable::parallel_for(0, N, 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      entries[i] = Entry::make(
          number[i] < 0 ? limit : static_cast<uint64_t>(number[i]),
          static_cast<uint32_t>(i));
  });
  for (int shift = 0; shift < 64 && limit >> shift != 0; shift += 11) {
    radix_pass(entries, shift, &other);
    std::swap(entries, other);
  }
  return entries;
}

// Voxels in increasing order of their number.
struct VoxelGroups {
  Tensor map;                  // (N,) int32: point -> voxel, or -1
  Tensor count;                // (M,) int32: points of each voxel
  Tensor order;                // (N,) int64: points by voxel, left out last
  std::vector<int64_t> first;  // voxel -> its first point
};

template <typename Entry>
VoxelGroups group_entries(const std::vector<Entry>& entries, uint64_t limit,
                          const Tensor& like) {
  const int64_t N = entries.size();
  VoxelGroups out;
  out.map = torch::stable::new_empty(like, {N}, ScalarType::Int);
  out.order = torch::stable::new_empty(like, {N}, ScalarType::Long);
  int32_t* map = out.map.mutable_data_ptr<int32_t>();
  int64_t* order = out.order.mutable_data_ptr<int64_t>();
  std::vector<int64_t> begin;
  int64_t kept = 0;
  for (int64_t i = 0; i < N; ++i) {
    const Entry entry = entries[i];
    const bool valid = entry.number() < limit;
    if (valid && (i == 0 || entry.number() != entries[i - 1].number()))
      begin.push_back(i);
    order[i] = entry.point();
    map[entry.point()] =
        valid ? static_cast<int32_t>(begin.size()) - 1 : -1;
    kept += valid;
  }
  const int64_t M = begin.size();
  begin.push_back(kept);
  out.count = torch::stable::new_empty(like, {M}, ScalarType::Int);
  for (int64_t m = 0; m < M; ++m) {
    out.count.mutable_data_ptr<int32_t>()[m] =
        static_cast<int32_t>(begin[m + 1] - begin[m]);
    out.first.push_back(order[begin[m]]);
  }
  return out;
}

// Groups of points with equal numbers in [0, limit); -1 is left out.
inline VoxelGroups group_points(const std::vector<int64_t>& number,
                                uint64_t limit, const Tensor& like) {
  STD_TORCH_CHECK(number.size() < (uint64_t{1} << 31),
                  "mmturbox: more than 2^31 points in one call");
  if (limit < (uint64_t{1} << 32))
    return group_entries(sorted_entries<PackedEntry>(number, limit), limit,
                         like);
  return group_entries(sorted_entries<WideEntry>(number, limit), limit, like);
}

}  // namespace mmturbox
