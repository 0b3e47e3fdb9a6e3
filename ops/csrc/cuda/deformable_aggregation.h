// Launch functions of deformable_aggregation.cu.
#pragma once

#include "../common/deformable_aggregation.h"

namespace mmturbox {

using Stream = void*;

// `feats` and `out` are of type T, everything else that is not an integer of
// the type in which T is summed. `weights` is null where the weights are a
// softmax of split logits. In backward `out` is the gradient of the result.
struct AggregationArgs {
  AggregationShape shape;
  const void *feats, *locations, *weights;
  const void *anchors, *cameras, *norm, *scale;
  const int64_t *shapes, *starts;
  void* out;
  void *grad_feats, *grad_locations, *grad_weights;
  void *grad_anchors, *grad_cameras, *grad_norm;
};

// Channels that the kernels take at most, in vectors of 16 bytes where a
// group of channels divides into them.
constexpr int64_t kMostChannelVectors = 512;

template <typename T>
void deformable_aggregation_cuda(const AggregationArgs& args, Stream stream);

template <typename T>
void deformable_aggregation_backward_cuda(const AggregationArgs& args,
                                          Stream stream);

}  // namespace mmturbox
