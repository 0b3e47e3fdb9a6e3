// CPU kernel of mmturbox::draw_gaussians.
#include <algorithm>

#include "../common/draw_gaussians.h"
#include "../common/stable.h"

namespace mmturbox {
namespace {

// Raise `plane` (height x width) to the Gaussian of one box.
void draw_one(float* plane, int64_t height, int64_t width, int64_t x,
              int64_t y, int64_t radius) {
  const int64_t left = std::max<int64_t>(x - radius, 0);
  const int64_t right = std::min(x + radius + 1, width);
  const int64_t top = std::max<int64_t>(y - radius, 0);
  const int64_t bottom = std::min(y + radius + 1, height);
  for (int64_t row = top; row < bottom; ++row)
    for (int64_t col = left; col < right; ++col) {
      float& cell = plane[row * width + col];
      cell = std::max(cell, gaussian_cell(col - x, row - y, radius));
    }
}

Tensor draw_gaussians(const Tensor& planes_in, const Tensor& centers_in,
                      const Tensor& radii_in, int64_t num_planes,
                      int64_t height, int64_t width) {
  Tensor planes = torch::stable::contiguous(planes_in);
  Tensor centers = torch::stable::contiguous(centers_in);
  Tensor radii = torch::stable::contiguous(radii_in);
  Tensor out = torch::stable::new_zeros(planes, {num_planes, height, width},
                                        ScalarType::Float);
  float* maps = out.mutable_data_ptr<float>();
  const int64_t* plane = planes.const_data_ptr<int64_t>();
  const int32_t* center = centers.const_data_ptr<int32_t>();
  const int64_t* radius = radii.const_data_ptr<int64_t>();
  for (int64_t n = 0; n < planes.size(0); ++n) {
    if (plane[n] < 0) continue;
    STD_TORCH_CHECK(plane[n] < num_planes, "draw_gaussians: plane ", plane[n],
                    " of box ", n, " is not below ", num_planes);
    draw_one(maps + plane[n] * height * width, height, width, center[2 * n],
             center[2 * n + 1], radius[n]);
  }
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("draw_gaussians", TORCH_BOX(&draw_gaussians));
}

}  // namespace mmturbox
