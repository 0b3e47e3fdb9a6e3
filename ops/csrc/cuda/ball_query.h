// Launches of ball_query.cu.
#pragma once

#include <cstdint>

namespace mmturbox {

using Stream = void*;

template <typename T>
struct BallQuery {
  const T *points, *centers;
  T min2, max2;         // squared radii
  int64_t samples;      // places of a ball
  int32_t none;         // the first place of an empty ball
  int32_t* out;
};

template <typename T>
void ball_query_cuda(const BallQuery<T>& query, int64_t clouds, int64_t n,
                     int64_t m, Stream stream);

// `counts` points and `center_counts` centres are of each of the samples.
template <typename T>
void ball_query_stacked_cuda(const BallQuery<T>& query,
                             const int32_t* counts,
                             const int32_t* center_counts, int64_t samples,
                             int64_t n, int64_t m, Stream stream);

}  // namespace mmturbox
