// Launch function of nms.cu.
#pragma once

#include <cstdint>

namespace mmturbox {

using Stream = void*;

struct SoftNms {
  int64_t num_boxes, method, offset;
  double threshold, sigma, min_score;
};

// `scores` and `gone` (N) are worked on. Fills the first `count` rows of
// `dets` (N, 5) and of `inds` (N).
template <typename T>
void soft_nms_cuda(const SoftNms& task, const T* boxes, T* scores, T* dets,
                   int64_t* inds, int64_t* count, bool* gone,
                   Stream stream);

}  // namespace mmturbox
