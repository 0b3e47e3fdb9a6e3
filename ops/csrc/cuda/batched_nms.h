// Launch functions of batched_nms.cu.
#pragma once

#include <cstdint>

namespace mmturbox {

using Stream = void*;

constexpr int64_t kNmsTile = 64;
// Boxes that one pair of launches compares with all that follow: bounds the
// memory of the bit mask, and what was dropped before costs nothing later.
constexpr int64_t kNmsChunk = 4096;
constexpr int64_t kNmsItemBytes = 64;

// A greedy suppression. `order` names the boxes by falling score. Where there
// are groups, `places` sorts the ranks by group and `keys` are the groups in
// that order; otherwise both are null.
struct Suppression {
  const void* boxes;  // float or double, `stride` numbers a box
  int64_t stride, num_boxes, kind, offset, max_out;
  double threshold;
  bool inclusive;
  const int64_t *order, *keys, *places;
  // Scratch: num_boxes * kNmsItemBytes; a bit a box, in whole tiles; 64 *
  // kNmsChunk (or the tiles of num_boxes, if fewer) bits a tile; one number.
  void* items;
  unsigned long long *removed, *mask, *total;
  // Results by rank: 1 where kept, zeroed before; and, unless null, the rank
  // of the box that suppresses it or its own (without groups only).
  uint8_t* kept;
  int64_t* owners;
};

// keys[rank] = the group of a box; the largest int64 where it has no part.
void nms_keys_cuda(const int64_t* order, const int64_t* classes,
                   const int64_t* samples, const bool* valid, int64_t n,
                   int64_t num_samples, int64_t* keys, Stream stream);

// T is the type of the boxes.
template <typename T>
void suppress_cuda(const Suppression& task, Stream stream);

// The first `max_out` kept boxes of each sample, then -1; and their number.
void nms_emit_cuda(const uint8_t* kept, const int64_t* order,
                   const int64_t* samples, int64_t n, int64_t num_samples,
                   int64_t max_out, int64_t* keep, int64_t* counts,
                   Stream stream);

// Of sorted `owners`: heads[i] = 1 where a group begins.
void nms_heads_cuda(const int64_t* owners, int64_t n, int64_t* heads,
                    Stream stream);

// members[i] = order[places[i]]; starts[g] = where group g begins.
void nms_members_cuda(const int64_t* order, const int64_t* places,
                      const int64_t* owners, const int64_t* group, int64_t n,
                      int64_t* members, int64_t* starts, Stream stream);

// sizes[g]: a group ends where the next begins, the last at `n`.
void nms_sizes_cuda(const int64_t* starts, int64_t groups, int64_t n,
                    int64_t* sizes, Stream stream);

}  // namespace mmturbox
