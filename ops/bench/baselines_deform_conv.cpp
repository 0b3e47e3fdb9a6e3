// What mmcv's CPU kernel of modulated deformable convolution does before its
// product: one column value after the other, each with corners of its own.
// 3 x 3 taps, stride, padding and dilation of one, one group of offsets.
#include <cmath>
#include <cstdint>

namespace {

float read(const float* map, int64_t height, int64_t width, float y,
           float x) {
  const int64_t y0 = static_cast<int64_t>(std::floor(y));
  const int64_t x0 = static_cast<int64_t>(std::floor(x));
  const float ly = y - y0, lx = x - x0;
  float total = 0;
  for (int64_t dy = 0; dy < 2; ++dy)
    for (int64_t dx = 0; dx < 2; ++dx) {
      const int64_t cy = y0 + dy, cx = x0 + dx;
      if (cy < 0 || cx < 0 || cy >= height || cx >= width) continue;
      total += map[cy * width + cx] * (dy ? ly : 1 - ly) * (dx ? lx : 1 - lx);
    }
  return total;
}

}  // namespace

extern "C" void modulated_columns(const float* input, const float* offset,
                                  const float* mask, int64_t channels,
                                  int64_t height, int64_t width,
                                  float* columns) {
  const int64_t map = height * width;
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < height; ++i)
      for (int64_t j = 0; j < width; ++j)
        for (int64_t k = 0; k < 9; ++k) {
          const int64_t at = i * width + j;
          const float y = i - 1 + k / 3 + offset[2 * k * map + at];
          const float x = j - 1 + k % 3 + offset[(2 * k + 1) * map + at];
          const bool inside = y > -1 && x > -1 && y < height && x < width;
          columns[(c * 9 + k) * map + at] =
              inside ? read(input + c * map, height, width, y, x) *
                           mask[k * map + at]
                     : 0;
        }
}
