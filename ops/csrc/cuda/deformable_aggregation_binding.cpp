// Bindings of deformable_aggregation.cu.
#include "deformable_aggregation.h"

#include <tuple>

#include "attention_binding.h"

namespace mmturbox {
namespace {

// The tensors of a call, contiguous and in the types that kernels take.
struct Inputs {
  ScalarType sum;
  Tensor feats, shapes, starts, locations;
  std::vector<Tensor> rest;
  AggregationArgs args{};

  Inputs(const Tensor& feats_in, const Tensor& shapes_in,
         const Tensor& starts_in, const Tensor& locations_in, int64_t groups)
      : sum(feats_in.scalar_type() == ScalarType::Double
                ? ScalarType::Double : ScalarType::Float),
        feats(torch::stable::contiguous(feats_in)),
        shapes(torch::stable::contiguous(shapes_in)),
        starts(torch::stable::contiguous(starts_in)),
        locations(torch::stable::contiguous(in_type(locations_in, sum))) {
    args.shape = {locations.size(0), locations.size(1), locations.size(2),
                  locations.size(3), starts.size(1),    groups,
                  feats.size(1),     feats.size(2)};
    args.feats = feats.const_data_ptr();
    args.locations = locations.const_data_ptr();
    args.shapes = shapes.const_data_ptr<int64_t>();
    args.starts = starts.const_data_ptr<int64_t>();
    const int64_t each = groups > 0 ? args.shape.channels() : 0;
    const int64_t pack =
        16 / static_cast<int64_t>(feats.element_size());
    STD_TORCH_CHECK(
        feats.size(2) / (each % pack == 0 ? pack : 1) <= kMostChannelVectors,
        "deformable_aggregation: ", feats.size(2), " channels are too many");
    STD_TORCH_CHECK(feats.size(1) < (int64_t{1} << 31),
                    "deformable_aggregation: 2^31 cells or more");
  }

  const void* add(const Tensor& tensor) {
    rest.push_back(torch::stable::contiguous(in_type(tensor, sum)));
    return rest.back().const_data_ptr();
  }

  void add_split(const Tensor& anchors, const Tensor& cameras,
                 const Tensor& norm, const std::optional<Tensor>& scale) {
    args.anchors = add(anchors);
    args.cameras = add(cameras);
    args.norm = add(norm);
    if (scale.has_value()) args.scale = add(*scale);
  }

  Tensor run() {
    const AggregationShape& s = args.shape;
    Tensor out =
        torch::stable::new_empty(feats, {s.batch, s.anchors, s.width});
    args.out = out.mutable_data_ptr();
    const Launch launch(feats);
    dispatch_attention(feats.scalar_type(), [&](auto type) {
      deformable_aggregation_cuda<decltype(type)>(args, launch);
    });
    return out;
  }

  Tensor gradient(const Tensor& like, void** pointer) const {
    Tensor grad = torch::stable::new_zeros(like, like.sizes(), sum);
    *pointer = grad.mutable_data_ptr();
    return grad;
  }

  void run_backward(const Tensor& grad_in) {
    const Launch launch(feats);
    Tensor grad = torch::stable::contiguous(grad_in);
    args.out = const_cast<void*>(grad.const_data_ptr());
    dispatch_attention(feats.scalar_type(), [&](auto type) {
      deformable_aggregation_backward_cuda<decltype(type)>(args, launch);
    });
  }
};

Tensor deformable_aggregation(const Tensor& feats, const Tensor& shapes,
                              const Tensor& starts, const Tensor& locations,
                              const Tensor& weights) {
  Inputs in(feats, shapes, starts, locations, weights.size(5));
  in.args.weights = in.add(weights);
  return in.run();
}

std::tuple<Tensor, Tensor, Tensor> deformable_aggregation_backward(
    const Tensor& grad, const Tensor& feats, const Tensor& shapes,
    const Tensor& starts, const Tensor& locations, const Tensor& weights) {
  Inputs in(feats, shapes, starts, locations, weights.size(5));
  in.args.weights = in.add(weights);
  Tensor grad_feats = in.gradient(in.feats, &in.args.grad_feats);
  Tensor grad_at = in.gradient(in.locations, &in.args.grad_locations);
  Tensor grad_weights = in.gradient(in.rest[0], &in.args.grad_weights);
  in.run_backward(grad);
  return {in_type(grad_feats, feats.scalar_type()),
          in_type(grad_at, locations.scalar_type()),
          in_type(grad_weights, weights.scalar_type())};
}

Tensor deformable_aggregation_split(
    const Tensor& feats, const Tensor& shapes, const Tensor& starts,
    const Tensor& locations, const Tensor& anchors, const Tensor& cameras,
    const Tensor& norm, std::optional<Tensor> scale) {
  Inputs in(feats, shapes, starts, locations, norm.size(2));
  in.add_split(anchors, cameras, norm, scale);
  return in.run();
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>
deformable_aggregation_split_backward(
    const Tensor& grad, const Tensor& feats, const Tensor& shapes,
    const Tensor& starts, const Tensor& locations, const Tensor& anchors,
    const Tensor& cameras, const Tensor& norm, std::optional<Tensor> scale) {
  Inputs in(feats, shapes, starts, locations, norm.size(2));
  in.add_split(anchors, cameras, norm, scale);
  Tensor grad_feats = in.gradient(in.feats, &in.args.grad_feats);
  Tensor grad_at = in.gradient(in.locations, &in.args.grad_locations);
  Tensor grad_anchors = in.gradient(in.rest[0], &in.args.grad_anchors);
  Tensor grad_cameras = in.gradient(in.rest[1], &in.args.grad_cameras);
  Tensor grad_norm = in.gradient(in.rest[2], &in.args.grad_norm);
  in.run_backward(grad);
  return {in_type(grad_feats, feats.scalar_type()),
          in_type(grad_at, locations.scalar_type()),
          in_type(grad_anchors, anchors.scalar_type()),
          in_type(grad_cameras, cameras.scalar_type()),
          in_type(grad_norm, norm.scalar_type())};
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("deformable_aggregation", TORCH_BOX(&deformable_aggregation));
  m.impl("deformable_aggregation_backward",
         TORCH_BOX(&deformable_aggregation_backward));
  m.impl("deformable_aggregation_split",
         TORCH_BOX(&deformable_aggregation_split));
  m.impl("deformable_aggregation_split_backward",
         TORCH_BOX(&deformable_aggregation_split_backward));
}

}  // namespace mmturbox
