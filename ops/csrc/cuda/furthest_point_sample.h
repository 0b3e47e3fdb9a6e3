// Launches of furthest_point_sample.cu.
#pragma once

#include <cstdint>

namespace mmturbox {

using Stream = void*;

// keys[i]: the cloud of point i, then its place on a curve through space;
// points that are not finite come last in their cloud.
template <typename T>
void fps_keys_cuda(const T* points, int64_t clouds, int64_t n, int64_t* keys,
                   Stream stream);

// Scratch of one batch. A cloud has `slots` tiles of 32 points each.
template <typename T>
struct FpsScratch {
  T *xyz;             // (clouds, 3, slots * 32)
  T* distance;        // (clouds, slots * 32)
  int32_t* index;     // (clouds, slots * 32)
  T* box;             // (clouds, 6, slots)
  T* top;             // (clouds, slots)
  int32_t* first;     // (clouds, slots)
  int64_t slots;
};

int64_t fps_threads(int64_t n);
// Tiles of a cloud, in whole rounds of the block.
int64_t fps_slots(int64_t n);

template <typename T>
void fps_cuda(const T* points, const int64_t* order, int64_t clouds,
              int64_t n, int64_t picks, const FpsScratch<T>& scratch,
              int32_t* out, Stream stream);

template <typename T>
void fps_with_dist_cuda(const T* matrix, int64_t clouds, int64_t n,
                        int64_t picks, T* distance, int32_t* out,
                        Stream stream);

}  // namespace mmturbox
