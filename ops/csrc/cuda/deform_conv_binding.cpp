// Bindings of deform_conv.cu: images go by in runs whose columns fit into a
// fixed amount of memory.
#include "deform_conv.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "../common/matmul.h"
#include "../cpu/compute.h"
#include "binding.h"

namespace mmturbox {
namespace {

constexpr int64_t kColumnBytes = 256 << 20, kMostImages = 32;

// `body(T(), Sum())` for the storage type and the type of its sums.
template <typename Body>
void dispatch(ScalarType type, const Body& body) {
  switch (type) {
    case ScalarType::Float:
      return body(float(), float());
    case ScalarType::Double:
      return body(double(), double());
    case ScalarType::Half:
      return body(torch::headeronly::Half(), float());
    case ScalarType::BFloat16:
      return body(torch::headeronly::BFloat16(), float());
    default:
      STD_TORCH_CHECK(false, "deform_conv2d: expected floating point");
  }
}

struct Convolution {
  Tensor input, offset, mask, weight;  // weight: (groups, out, depth)
  bool modulated;
  DeformShape s;
  int64_t out_width, depth, run;  // run: images at a time

  Convolution(const Tensor& input_in, const Tensor& offset_in,
              const std::optional<Tensor>& mask_in, const Tensor& weight_in,
              const std::vector<int64_t>& stride,
              const std::vector<int64_t>& padding,
              const std::vector<int64_t>& dilation, int64_t groups,
              int64_t deform_groups)
      : input(torch::stable::contiguous(input_in)),
        offset(torch::stable::contiguous(offset_in)),
        mask(torch::stable::contiguous(mask_in ? *mask_in : offset_in)),
        weight(torch::stable::contiguous(weight_in)),
        modulated(mask_in.has_value()),
        s{input.size(0),  input.size(1),  input.size(2),  input.size(3),
          weight.size(0), weight.size(2), weight.size(3), offset.size(2),
          offset.size(3), stride[0],      stride[1],      padding[0],
          padding[1],     dilation[0],    dilation[1],    groups,
          deform_groups},
        out_width(s.out_channels / groups),
        depth(s.group_width() * s.taps()) {
    const std::vector<int64_t> shape{groups, out_width, depth};
    weight = torch::stable::reshape(weight, shape);
    const int64_t bytes = s.channels * s.taps() * s.positions() * 4;
    run = std::max<int64_t>(
        1, std::min({s.batch, kMostImages,
                     kColumnBytes / std::max<int64_t>(bytes, 1)}));
  }

  template <typename T>
  const T* mask_pointer() const {
    return modulated ? mask.const_data_ptr<T>() : nullptr;
  }

  Tensor empty_columns() const {
    return torch::stable::new_empty(
        input, {run, s.groups, depth, s.positions()});
  }

  // (B, groups, out, positions)
  Tensor by_group(const Tensor& maps) const {
    const std::vector<int64_t> shape{s.batch, s.groups, out_width,
                                     s.positions()};
    return torch::stable::reshape(maps, shape);
  }

  template <typename T>
  void fill(int64_t first, int64_t images, Tensor columns,
            Stream stream) const {
    deform_columns_cuda(input.const_data_ptr<T>(), offset.const_data_ptr<T>(),
                        mask_pointer<T>(), s, first, images,
                        columns.mutable_data_ptr<T>(), stream);
  }
};

Tensor deform_conv2d(const Tensor& input_in, const Tensor& offset_in,
                     std::optional<Tensor> mask_in, const Tensor& weight_in,
                     std::vector<int64_t> stride,
                     std::vector<int64_t> padding,
                     std::vector<int64_t> dilation, int64_t groups,
                     int64_t deform_groups) {
  using torch::stable::select;
  const Launch launch(input_in);
  const Convolution conv(input_in, offset_in, mask_in, weight_in, stride,
                         padding, dilation, groups, deform_groups);
  const DeformShape& s = conv.s;
  Tensor out = torch::stable::new_empty(
      conv.input, {s.batch, s.out_channels, s.out_h, s.out_w});
  if (out.numel() == 0) return out;
  Tensor rows = conv.by_group(out);
  Tensor columns = conv.empty_columns();
  dispatch(out.scalar_type(), [&](auto type, auto) {
    for (int64_t first = 0; first < s.batch; first += conv.run) {
      const int64_t images = std::min(conv.run, s.batch - first);
      conv.fill<decltype(type)>(first, images, columns, launch);
      for (int64_t i = 0; i < images; ++i)
        multiply(conv.weight, select(columns, 0, i),
                 select(rows, 0, first + i), true);
    }
  });
  return out;
}

// The sum over the products of a run of images, in `sum_type`.
Tensor weight_sum(const Convolution& conv, const Tensor& grads,
                  const Tensor& columns, int64_t first, int64_t images,
                  ScalarType sum_type) {
  using torch::stable::select;
  Tensor products = torch::stable::new_empty(
      conv.input, {images, conv.s.groups, conv.out_width, conv.depth});
  for (int64_t i = 0; i < images; ++i)
    multiply(select(grads, 0, first + i),
             torch::stable::transpose(select(columns, 0, i), 1, 2),
             select(products, 0, i), true);
  const std::vector<int64_t> dims{0};
  return torch::stable::sum(products,
                            torch::headeronly::IntHeaderOnlyArrayRef(dims),
                            false, sum_type);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> deform_conv2d_backward(
    const Tensor& grad_in, const Tensor& input_in, const Tensor& offset_in,
    std::optional<Tensor> mask_in, const Tensor& weight_in,
    std::vector<int64_t> stride, std::vector<int64_t> padding,
    std::vector<int64_t> dilation, int64_t groups, int64_t deform_groups,
    bool with_input, bool with_weight) {
  using torch::stable::empty_like;
  using torch::stable::new_empty;
  using torch::stable::new_zeros;
  using torch::stable::select;
  const Launch launch(input_in);
  const Convolution conv(input_in, offset_in, mask_in, weight_in, stride,
                         padding, dilation, groups, deform_groups);
  const DeformShape& s = conv.s;
  const ScalarType type = conv.input.scalar_type();
  const ScalarType sum_type =
      type == ScalarType::Double ? type : ScalarType::Float;
  const Tensor grads =
      conv.by_group(torch::stable::contiguous(grad_in));
  const Tensor turned = torch::stable::transpose(conv.weight, 1, 2);
  Tensor none = new_empty(conv.input, {0});
  Tensor grad_input =
      with_input ? new_zeros(conv.input,
                             {s.batch, s.channels, s.height, s.width},
                             sum_type)
                 : none;
  Tensor grad_offset = with_input ? empty_like(conv.offset) : none;
  Tensor grad_mask =
      with_input && conv.modulated ? empty_like(conv.mask) : none;
  const int64_t runs = (s.batch + conv.run - 1) / conv.run;
  Tensor sums = with_weight
                    ? new_zeros(conv.input, {runs, groups, conv.out_width,
                                             conv.depth},
                                sum_type)
                    : none;
  Tensor columns = conv.empty_columns();
  dispatch(type, [&](auto value, auto sum) {
    using T = decltype(value);
    for (int64_t r = 0; r < runs; ++r) {
      const int64_t first = r * conv.run;
      const int64_t images = std::min(conv.run, s.batch - first);
      if (with_weight) {
        conv.fill<T>(first, images, columns, launch);
        Tensor to = select(sums, 0, r);
        torch::stable::copy_(to, weight_sum(conv, grads, columns, first,
                                            images, sum_type));
      }
      if (!with_input) continue;
      for (int64_t i = 0; i < images; ++i)
        multiply(turned, select(grads, 0, first + i), select(columns, 0, i),
                 true);
      deform_gradients_cuda(
          columns.const_data_ptr<T>(), conv.input.const_data_ptr<T>(),
          conv.offset.const_data_ptr<T>(), conv.mask_pointer<T>(), s, first,
          images, grad_input.mutable_data_ptr<decltype(sum)>(),
          grad_offset.mutable_data_ptr<T>(),
          conv.modulated ? grad_mask.mutable_data_ptr<T>() : nullptr, launch);
    }
  });
  Tensor grad_weight = none;
  if (with_weight) {
    const std::vector<int64_t> dims{0};
    const std::vector<int64_t> shape{s.out_channels, s.group_width(),
                                     s.kernel_h, s.kernel_w};
    grad_weight = torch::stable::reshape(
        torch::stable::sum(sums,
                           torch::headeronly::IntHeaderOnlyArrayRef(dims)),
        shape);
  }
  return {in_type(grad_input, type), grad_offset, grad_mask,
          in_type(grad_weight, type)};
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("deform_conv2d", TORCH_BOX(&deform_conv2d));
  m.impl("deform_conv2d_backward", TORCH_BOX(&deform_conv2d_backward));
}

}  // namespace mmturbox
