// Bindings of roi_align.cu.
#include "roi_align.h"

#include <tuple>
#include <vector>

#include "../cpu/compute.h"
#include "binding.h"

namespace mmturbox {
namespace {

std::tuple<Tensor, Tensor, Tensor> roi_align(
    const Tensor& input_in, const Tensor& rois_in, int64_t height,
    int64_t width, double spatial_scale, int64_t sampling_ratio,
    int64_t pool_mode, bool aligned) {
  const Launch launch(input_in);
  const Tensor input = compute_tensor(input_in);
  const Tensor rois =
      torch::stable::contiguous(in_type(rois_in, input.scalar_type()));
  const RoiAlignShape shape{rois.size(0),  input.size(0),  input.size(1),
                            input.size(2), input.size(3),  height,
                            width,         sampling_ratio, spatial_scale,
                            pool_mode == 0, aligned};
  Tensor out = torch::stable::new_empty(
      input, {shape.rois, shape.channels, height, width});
  Tensor arg_y = shape.take_max ? torch::stable::empty_like(out)
                                : torch::stable::new_empty(out, {0});
  Tensor arg_x = torch::stable::empty_like(arg_y);
  MMTURBOX_DISPATCH_FLOAT(input.scalar_type(), "roi_align", {
    roi_align_cuda(input.const_data_ptr<scalar_t>(),
                   rois.const_data_ptr<scalar_t>(), shape,
                   out.mutable_data_ptr<scalar_t>(),
                   arg_y.mutable_data_ptr<scalar_t>(),
                   arg_x.mutable_data_ptr<scalar_t>(), launch);
  });
  return {in_type(out, input_in.scalar_type()), arg_y, arg_x};
}

Tensor roi_align_backward(const Tensor& grad_in, const Tensor& rois_in,
                          const Tensor& arg_y_in, const Tensor& arg_x_in,
                          std::vector<int64_t> map, double spatial_scale,
                          int64_t sampling_ratio, int64_t pool_mode,
                          bool aligned) {
  const Launch launch(grad_in);
  const Tensor grad = compute_tensor(grad_in);
  const ScalarType type = grad.scalar_type();
  const Tensor rois = torch::stable::contiguous(in_type(rois_in, type));
  const Tensor arg_y = torch::stable::contiguous(in_type(arg_y_in, type));
  const Tensor arg_x = torch::stable::contiguous(in_type(arg_x_in, type));
  const RoiAlignShape shape{rois.size(0),   map[0],
                            map[1],         map[2],
                            map[3],         grad.size(2),
                            grad.size(3),   sampling_ratio,
                            spatial_scale,  pool_mode == 0,
                            aligned};
  Tensor out =
      torch::stable::new_zeros(grad, {map[0], map[1], map[2], map[3]});
  MMTURBOX_DISPATCH_FLOAT(type, "roi_align_backward", {
    roi_align_backward_cuda(
        grad.const_data_ptr<scalar_t>(), rois.const_data_ptr<scalar_t>(),
        arg_y.const_data_ptr<scalar_t>(), arg_x.const_data_ptr<scalar_t>(),
        shape, out.mutable_data_ptr<scalar_t>(), launch);
  });
  return in_type(out, grad_in.scalar_type());
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("roi_align", TORCH_BOX(&roi_align));
  m.impl("roi_align_backward", TORCH_BOX(&roi_align_backward));
}

}  // namespace mmturbox
