// Bindings of draw_gaussians.cu.
#include "draw_gaussians.h"

#include "binding.h"

namespace mmturbox {
namespace {

Tensor draw(const Tensor& planes_in, const Tensor& centers_in,
            const int64_t* radii, const float* sizes,
            const GaussianRadius& radius, int64_t num_planes, int64_t height,
            int64_t width, const Launch& launch) {
  Tensor planes = torch::stable::contiguous(planes_in);
  Tensor centers = torch::stable::contiguous(centers_in);
  Tensor out = torch::stable::new_zeros(planes, {num_planes, height, width},
                                        ScalarType::Float);
  draw_gaussians_cuda(planes.const_data_ptr<int64_t>(),
                      centers.const_data_ptr<int32_t>(), radii, sizes, radius,
                      planes.size(0),
                      {out.mutable_data_ptr<float>(), num_planes, height,
                       width},
                      launch);
  return out;
}

Tensor draw_gaussians(const Tensor& planes, const Tensor& centers,
                      const Tensor& radii_in, int64_t num_planes,
                      int64_t height, int64_t width) {
  const Launch launch(planes);
  Tensor radii = torch::stable::contiguous(radii_in);
  return draw(planes, centers, radii.const_data_ptr<int64_t>(), nullptr,
              GaussianRadius(0.5, 0), num_planes, height, width, launch);
}

Tensor draw_box_gaussians(const Tensor& planes, const Tensor& centers,
                          const Tensor& sizes_in, int64_t num_planes,
                          int64_t height, int64_t width, double overlap,
                          int64_t min_radius) {
  const Launch launch(planes);
  Tensor sizes = torch::stable::contiguous(sizes_in);
  return draw(planes, centers, nullptr, sizes.const_data_ptr<float>(),
              GaussianRadius(overlap, min_radius), num_planes, height, width,
              launch);
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("draw_gaussians", TORCH_BOX(&draw_gaussians));
  m.impl("draw_box_gaussians", TORCH_BOX(&draw_box_gaussians));
}

}  // namespace mmturbox
