// The algorithm of mmcv's CPU RoI align (average), sequential: weights of all
// samples of a region first, then channel by channel, bin by bin.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace {

struct Sample {
  int64_t at[4];
  float weight[4];
};

Sample bilinear(float y, float x, int64_t height, int64_t width) {
  Sample s{};
  if (y < -1 || y > height || x < -1 || x > width) return s;
  y = y > 0 ? y : 0;
  x = x > 0 ? x : 0;
  int64_t y0 = static_cast<int64_t>(y), x0 = static_cast<int64_t>(x);
  int64_t y1 = y0 + 1, x1 = x0 + 1;
  if (y0 >= height - 1) {
    y0 = y1 = height - 1;
    y = static_cast<float>(y0);
  }
  if (x0 >= width - 1) {
    x0 = x1 = width - 1;
    x = static_cast<float>(x0);
  }
  const float ly = y - y0, lx = x - x0;
  return {{y0 * width + x0, y0 * width + x1, y1 * width + x0, y1 * width + x1},
          {(1 - ly) * (1 - lx), (1 - ly) * lx, ly * (1 - lx), ly * lx}};
}

}  // namespace

extern "C" void roi_align_forward(const float* input, const float* rois,
                                  int64_t num_rois, int64_t channels,
                                  int64_t height, int64_t width, int64_t bins,
                                  float scale, int64_t ratio, float* out) {
  for (int64_t n = 0; n < num_rois; ++n) {
    const float* roi = rois + 5 * n;
    const float x_start = roi[1] * scale - 0.5f;
    const float y_start = roi[2] * scale - 0.5f;
    const float bin_w = (roi[3] * scale - 0.5f - x_start) / bins;
    const float bin_h = (roi[4] * scale - 0.5f - y_start) / bins;
    const int64_t grid_h = ratio > 0 ? ratio : std::ceil(bin_h);
    const int64_t grid_w = ratio > 0 ? ratio : std::ceil(bin_w);
    const float count = std::max<int64_t>(grid_h * grid_w, 1);
    std::vector<Sample> samples;
    samples.reserve(bins * bins * grid_h * grid_w);
    for (int64_t ph = 0; ph < bins; ++ph)
      for (int64_t pw = 0; pw < bins; ++pw)
        for (int64_t iy = 0; iy < grid_h; ++iy)
          for (int64_t ix = 0; ix < grid_w; ++ix)
            samples.push_back(bilinear(
                y_start + ph * bin_h + (iy + 0.5f) * bin_h / grid_h,
                x_start + pw * bin_w + (ix + 0.5f) * bin_w / grid_w, height,
                width));
    const int64_t batch = static_cast<int64_t>(roi[0]);
    for (int64_t c = 0; c < channels; ++c) {
      const float* map = input + (batch * channels + c) * height * width;
      const Sample* sample = samples.data();
      for (int64_t bin = 0; bin < bins * bins; ++bin) {
        float sum = 0;
        for (int64_t i = 0; i < grid_h * grid_w; ++i, ++sample)
          sum += sample->weight[0] * map[sample->at[0]] +
                 sample->weight[1] * map[sample->at[1]] +
                 sample->weight[2] * map[sample->at[2]] +
                 sample->weight[3] * map[sample->at[3]];
        *out++ = sum / count;
      }
    }
  }
}
