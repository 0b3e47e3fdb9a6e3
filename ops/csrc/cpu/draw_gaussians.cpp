// CPU kernels of mmturbox::draw_gaussians and draw_box_gaussians.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "../common/draw_gaussians.h"
#include "../common/stable.h"

namespace mmturbox {
namespace {

MMTURBOX_CLONES void raise(float* cells, const float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    cells[i] = cells[i] < values[i] ? values[i] : cells[i];
}

// Draws onto planes of one size. Boxes of one radius share their values.
class Drawing {
 public:
  Drawing(float* maps, int64_t height, int64_t width)
      : maps_(maps), height_(height), width_(width), tables_(kTables) {}

  void draw(int64_t plane, int64_t x, int64_t y, int64_t radius) {
    const int64_t left = std::max<int64_t>(x - radius, 0);
    const int64_t right = std::min(x + radius + 1, width_);
    const int64_t top = std::max<int64_t>(y - radius, 0);
    const int64_t bottom = std::min(y + radius + 1, height_);
    if (right <= left) return;
    float* map = maps_ + plane * height_ * width_;
    for (int64_t row = top; row < bottom; ++row) {
      float* cells = map + row * width_ + left;
      raise(cells, values(radius, std::abs(row - y), left - x, right - x),
            right - left);
    }
  }

 private:
  static constexpr int64_t kTables = 64;

  // Values of the cells [begin, end) right of the peak, `dy` rows off it.
  const float* values(int64_t radius, int64_t dy, int64_t begin,
                      int64_t end) {
    if (radius < kTables) {
      std::vector<float>& table = tables_[radius];
      if (table.empty()) fill(radius, &table);
      return table.data() + dy * (2 * radius + 1) + radius + begin;
    }
    row_.resize(end - begin);
    for (int64_t dx = begin; dx < end; ++dx)
      row_[dx - begin] = gaussian_cell(dx, dy, radius);
    return row_.data();
  }

  // Rows 0 .. radius below the peak, each from -radius to radius.
  static void fill(int64_t radius, std::vector<float>* table) {
    const int64_t width = 2 * radius + 1;
    table->resize((radius + 1) * width);
    for (int64_t a = 0; a <= radius; ++a)
      for (int64_t b = 0; b <= a; ++b) {
        const float value = gaussian_cell(a, b, radius);
        float* middle = table->data() + radius;
        middle[a * width + b] = middle[a * width - b] = value;
        middle[b * width + a] = middle[b * width - a] = value;
      }
  }

  float* maps_;
  int64_t height_, width_;
  std::vector<std::vector<float>> tables_;
  std::vector<float> row_;
};

// radius_of(n) gives the radius of box n.
template <typename F>
Tensor draw(const Tensor& planes_in, const Tensor& centers_in,
            int64_t num_planes, int64_t height, int64_t width, F radius_of) {
  Tensor planes = torch::stable::contiguous(planes_in);
  Tensor centers = torch::stable::contiguous(centers_in);
  Tensor out = torch::stable::new_zeros(planes, {num_planes, height, width},
                                        ScalarType::Float);
  Drawing drawing(out.mutable_data_ptr<float>(), height, width);
  const int64_t* plane = planes.const_data_ptr<int64_t>();
  const int32_t* center = centers.const_data_ptr<int32_t>();
  for (int64_t n = 0; n < planes.size(0); ++n) {
    if (plane[n] < 0) continue;
    STD_TORCH_CHECK(plane[n] < num_planes, "draw_gaussians: plane ", plane[n],
                    " of box ", n, " is not below ", num_planes);
    drawing.draw(plane[n], center[2 * n], center[2 * n + 1], radius_of(n));
  }
  return out;
}

Tensor draw_gaussians(const Tensor& planes, const Tensor& centers,
                      const Tensor& radii_in, int64_t num_planes,
                      int64_t height, int64_t width) {
  Tensor radii = torch::stable::contiguous(radii_in);
  const int64_t* radius = radii.const_data_ptr<int64_t>();
  return draw(planes, centers, num_planes, height, width,
              [&](int64_t n) { return radius[n]; });
}

Tensor draw_box_gaussians(const Tensor& planes, const Tensor& centers,
                          const Tensor& sizes_in, int64_t num_planes,
                          int64_t height, int64_t width, double overlap,
                          int64_t min_radius) {
  Tensor sizes = torch::stable::contiguous(sizes_in);
  const float* size = sizes.const_data_ptr<float>();
  const GaussianRadius radius(overlap, min_radius);
  return draw(planes, centers, num_planes, height, width, [&](int64_t n) {
    return radius.of(size[2 * n], size[2 * n + 1]);
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("draw_gaussians", TORCH_BOX(&draw_gaussians));
  m.impl("draw_box_gaussians", TORCH_BOX(&draw_box_gaussians));
}

}  // namespace mmturbox
