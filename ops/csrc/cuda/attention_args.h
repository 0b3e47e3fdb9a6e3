// What the bindings of attention operators hand to their kernels.
#pragma once

#include <cstdint>

namespace mmturbox {

using Stream = void*;

// `value` and `out` are of type T; everything else that is not an integer is
// of the type in which T is summed. Pointers that an operator has no use for
// are null. In backward `out` is the gradient of the result.
struct AttentionArgs {
  const void *value, *locations, *weights;
  const int64_t *shapes, *starts, *images, *offsets;
  int64_t num_images, cells, heads, channels, levels, points, rows, hits;
  bool softmax;
  int64_t kernel[3];  // height, width and dilation, or zeros
  void* out;
  void *grad_value, *grad_weights, *grad_locations;
};

}  // namespace mmturbox
