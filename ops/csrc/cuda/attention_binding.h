// What the bindings of ms_deform_attn and geometry_kernel_attn share.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <optional>
#include <vector>

#include "../cpu/compute.h"
#include "attention_args.h"
#include "binding.h"

namespace mmturbox {

// `body(T())` for the type of the values.
template <typename Body>
void dispatch_attention(ScalarType type, const Body& body) {
  switch (type) {
    case ScalarType::Float:
      return body(float());
    case ScalarType::Double:
      return body(double());
    case ScalarType::Half:
      return body(torch::headeronly::Half());
    case ScalarType::BFloat16:
      return body(torch::headeronly::BFloat16());
    default:
      STD_TORCH_CHECK(false, "attention: expected floating point");
  }
}

// The tensors of a call, contiguous and in the types that kernels take.
struct AttentionTensors {
  ScalarType sum;
  Tensor value, shapes, starts, locations, weights;
  std::optional<Tensor> images, offsets;
  AttentionArgs args{};

  AttentionTensors(const Tensor& value_in, const Tensor& shapes_in,
                   const Tensor& starts_in, const Tensor& locations_in,
                   const Tensor& weights_in,
                   const std::optional<Tensor>& images_in,
                   const std::optional<Tensor>& offsets_in, bool softmax)
      : sum(value_in.scalar_type() == ScalarType::Double
                ? ScalarType::Double : ScalarType::Float),
        value(torch::stable::contiguous(value_in)),
        shapes(torch::stable::contiguous(shapes_in)),
        starts(torch::stable::contiguous(starts_in)),
        locations(torch::stable::contiguous(in_type(locations_in, sum))),
        weights(torch::stable::contiguous(in_type(weights_in, sum))) {
    STD_TORCH_CHECK(value.size(1) < (int64_t{1} << 31),
                    "attention: value has 2^31 cells or more");
    args.value = value.const_data_ptr();
    args.locations = locations.const_data_ptr();
    args.weights = weights.const_data_ptr();
    args.shapes = shapes.const_data_ptr<int64_t>();
    args.starts = starts.const_data_ptr<int64_t>();
    args.num_images = value.size(0);
    args.cells = value.size(1);
    args.heads = value.size(2);
    args.channels = value.size(3);
    args.levels = weights.size(2);
    args.points = weights.size(3);
    args.rows = args.hits = weights.size(0);
    args.softmax = softmax;
    if (!offsets_in.has_value()) return;
    images = torch::stable::contiguous(*images_in);
    offsets = torch::stable::contiguous(*offsets_in);
    args.images = images->const_data_ptr<int64_t>();
    args.offsets = offsets->const_data_ptr<int64_t>();
    args.rows = offsets->numel() - 1;
  }

  Tensor result() {
    Tensor out = torch::stable::new_empty(
        value, {args.rows, args.heads * args.channels});
    args.out = out.mutable_data_ptr();
    return out;
  }

  // A gradient like `like`, of the type that sums are made in.
  Tensor gradient(const Tensor& like, void** pointer) const {
    Tensor grad = torch::stable::new_zeros(like, like.sizes(), sum);
    *pointer = grad.mutable_data_ptr();
    return grad;
  }
};

}  // namespace mmturbox
