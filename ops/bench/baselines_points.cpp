// What mmcv's CUDA kernels for points compute, one point after the other on
// one thread: mmcv has no CPU form of them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

float distance2(const float* a, const float* b) {
  const float x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
  return x * x + y * y + z * z;
}

}  // namespace

extern "C" {

void stock_fps(const float* points, int64_t n, int64_t picks, int32_t* out) {
  std::vector<float> nearest(n, 1e10f);
  int64_t last = 0;
  out[0] = 0;
  for (int64_t j = 1; j < picks; ++j) {
    float best = -1;
    int64_t where = 0;
    for (int64_t i = 0; i < n; ++i) {
      nearest[i] = std::min(nearest[i],
                            distance2(points + i * 3, points + last * 3));
      if (nearest[i] > best) {
        best = nearest[i];
        where = i;
      }
    }
    out[j] = static_cast<int32_t>(where);
    last = where;
  }
}

void stock_ball_query(const float* points, const float* centers, int64_t n,
                      int64_t m, float radius, int64_t samples,
                      int32_t* out) {
  for (int64_t q = 0; q < m; ++q) {
    int32_t* own = out + q * samples;
    int64_t found = 0;
    for (int64_t i = 0; i < n && found < samples; ++i) {
      if (!(distance2(points + i * 3, centers + q * 3) < radius * radius))
        continue;
      if (found == 0) std::fill(own, own + samples, static_cast<int32_t>(i));
      own[found++] = static_cast<int32_t>(i);
    }
  }
}

void stock_knn(const float* points, const float* centers, int64_t n,
               int64_t m, int64_t k, int32_t* out) {
  for (int64_t q = 0; q < m; ++q) {
    std::vector<std::pair<float, int32_t>> heap(k, {1e10f, 0});
    for (int64_t i = 0; i < n; ++i) {
      const float d = distance2(points + i * 3, centers + q * 3);
      if (!(d < heap[0].first)) continue;
      std::pop_heap(heap.begin(), heap.end());
      heap.back() = {d, static_cast<int32_t>(i)};
      std::push_heap(heap.begin(), heap.end());
    }
    std::sort_heap(heap.begin(), heap.end());
    for (int64_t j = 0; j < k; ++j) out[q * k + j] = heap[j].second;
  }
}

// `lists` has `room` places a cell, the first of which counts.
void stock_roiaware(const float* rois, const float* points,
                    const float* features, int64_t num_rois, int64_t n,
                    int64_t channels, int64_t side, int64_t room,
                    int32_t* lists, float* out, int32_t* argmax) {
  const int64_t cells = side * side * side;
  for (int64_t r = 0; r < num_rois; ++r) {
    const float* box = rois + r * 7;
    for (int64_t i = 0; i < n; ++i) {
      const float* p = points + i * 3;
      const float z = p[2] - (box[2] + box[5] / 2);
      if (std::fabs(z) > box[5] / 2) continue;
      const float c = std::cos(-box[6]), s = std::sin(-box[6]);
      const float x = (p[0] - box[0]) * c - (p[1] - box[1]) * s;
      const float y = (p[0] - box[0]) * s + (p[1] - box[1]) * c;
      if (!(std::fabs(x) < box[3] / 2 && std::fabs(y) < box[4] / 2)) continue;
      const float along[3] = {x + box[3] / 2, y + box[4] / 2, p[2] - box[2]};
      int64_t cell = 0;
      for (int axis = 0; axis < 3; ++axis) {
        const auto bin = static_cast<int64_t>(
            along[axis] / (box[3 + axis] / static_cast<float>(side)));
        cell = cell * side + std::min(std::max<int64_t>(bin, 0), side - 1);
      }
      int32_t* list = lists + (r * cells + cell) * room;
      if (list[0] < room - 1) list[++list[0]] = static_cast<int32_t>(i);
    }
  }
  for (int64_t v = 0; v < num_rois * cells; ++v)
    for (int64_t c = 0; c < channels; ++c) {
      const int32_t* list = lists + v * room;
      float best = -INFINITY;
      argmax[v * channels + c] = -1;
      for (int32_t k = 1; k <= list[0]; ++k) {
        const float value = features[list[k] * channels + c];
        if (!(value > best)) continue;
        best = out[v * channels + c] = value;
        argmax[v * channels + c] = list[k];
      }
    }
}

}  // extern "C"
