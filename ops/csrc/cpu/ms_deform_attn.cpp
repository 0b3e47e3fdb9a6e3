// CPU kernels of mmturbox::ms_deform_attn and its backward.
#include <optional>
#include <tuple>
#include <vector>

#include "../common/stable.h"
#include "attention.h"
#include "compute.h"
#include "gather.h"

namespace mmturbox {
namespace {

template <typename T>
struct Samples {
  const T *value, *locations, *weights;
  Levels levels;
  Hits hits;
  int64_t heads, channels, points;
  bool softmax;

  int64_t per_head() const { return levels.count * points; }
};

// What a thread works with: taps, their weights and indices for one head of
// one hit, and rows for corners outside of the map.
template <typename T>
struct Workspace {
  std::vector<Tap<T>> taps;
  std::vector<T> weights, used, slopes, zeros, waste;
  std::vector<int64_t> index;

  explicit Workspace(const Samples<T>& s)
      : taps(s.per_head()), weights(s.per_head()), used(s.per_head()),
        slopes(s.per_head()), zeros(s.channels), waste(s.channels),
        index(s.per_head()) {}
};

// Weights of one head of hit t, times `scale`, and its taps that are not
// zero: their number. `used` and `index` go with the taps. Fetches what the
// taps read, and the same of `grad`, the head's first gradient of the map.
template <typename T>
MMTURBOX_INLINE int64_t prepare(const Samples<T>& s, int64_t t, int64_t head,
                                T scale, Workspace<T>& w,
                                const T* grad = nullptr) {
  const int64_t n = s.per_head(), stride = s.heads * s.channels;
  const T* given = s.weights + (t * s.heads + head) * n;
  if (s.softmax)
    softmax_row(given, n, scale, w.weights.data());
  else
    for (int64_t i = 0; i < n; ++i) w.weights[i] = given[i] * scale;
  const T* at = s.locations + (t * s.heads + head) * n * 2;
  const int64_t first = s.hits.image(t) * s.levels.cells;
  const T* map = s.value + head * s.channels;
  int64_t num = 0;
  for (int64_t level = 0, i = 0; level < s.levels.count; ++level) {
    const int64_t height = s.levels.shapes[level * 2];
    const int64_t width = s.levels.shapes[level * 2 + 1];
    const int64_t start = first + s.levels.starts[level];
    for (int64_t p = 0; p < s.points; ++p, ++i) {
      const T x = at[i * 2] * static_cast<T>(width) - T(0.5);
      const T y = at[i * 2 + 1] * static_cast<T>(height) - T(0.5);
      if (!make_tap(x, y, height, width, start, stride, &w.taps[num]))
        continue;
      for (int k = 0; k < 4; ++k)
        if (w.taps[num].at[k] >= 0) {
          prefetch_row(map + w.taps[num].at[k], s.channels);
          if (grad) prefetch_row(grad + w.taps[num].at[k], s.channels);
        }
      w.index[num] = i;
      w.used[num++] = w.weights[i];
    }
  }
  return num;
}

template <typename T>
MMTURBOX_INLINE void forward_loop(const Samples<T>& s, int64_t begin,
                                  int64_t end, Workspace<T>& w, T* out) {
  for (int64_t n = begin; n < end; ++n) {
    T* row = out + n * s.heads * s.channels;
    std::memset(row, 0, s.heads * s.channels * sizeof(T));
    const int64_t from = s.hits.begin(n), to = s.hits.end(n);
    const T scale = 1 / static_cast<T>(to > from ? to - from : 1);
    for (int64_t t = from; t < to; ++t)
      for (int64_t h = 0; h < s.heads; ++h) {
        const int64_t num = prepare(s, t, h, scale, w);
        gather(s.value + h * s.channels, w.zeros.data(), w.taps.data(), num,
               w.used.data(), 1, s.channels, row + h * s.channels);
      }
  }
}

template <typename T>
struct Gradients {
  const T* out;
  T *value, *locations, *weights;
};

// One head of one hit whose share in its row is `scale`.
template <typename T>
MMTURBOX_INLINE void backward_hit(const Samples<T>& s, int64_t row, int64_t t,
                                  int64_t head, T scale, Workspace<T>& w,
                                  const Gradients<T>& grad) {
  const int64_t per_head = s.per_head(), at = (t * s.heads + head) * per_head;
  const int64_t C = s.channels;
  T* grad_map = grad.value + head * C;
  const int64_t num = prepare(s, t, head, scale, w, grad_map);
  const T* above = grad.out + (row * s.heads + head) * C;
  T* by_weight = grad.weights + at;
  T* by_location = grad.locations + at * 2;
  T inner = 0;
  for (int64_t j = 0; j < num; ++j) {
    const Tap<T>& tap = w.taps[j];
    const int64_t i = w.index[j], level = i / s.points;
    T dot[4];
    scatter(s.value + head * C, grad_map, w.zeros.data(), w.waste.data(),
            tap, w.used[j], above, C, dot);
    T slope = 0;
    for (int k = 0; k < 4; ++k) slope += tap.weight[k] * dot[k];
    by_weight[i] = slope * scale;
    inner += slope * w.used[j];
    by_location[i * 2] = w.used[j] * bilinear_slope_x(tap.ly, dot) *
                         static_cast<T>(s.levels.shapes[level * 2 + 1]);
    by_location[i * 2 + 1] = w.used[j] * bilinear_slope_y(tap.lx, dot) *
                             static_cast<T>(s.levels.shapes[level * 2]);
  }
  if (!s.softmax) return;
  // Weights are p * scale, slopes d * scale: the gradient of a logit is
  // p * (d - sum of p d) * scale.
  for (int64_t i = 0; i < per_head; ++i)
    by_weight[i] = w.weights[i] * (by_weight[i] / scale - inner / scale);
}

// Units are (group, head); a unit's part of the map's gradient is summed by
// one thread in the order of hits.
template <typename T>
MMTURBOX_INLINE void backward_loop(const Samples<T>& s, int64_t begin,
                                   int64_t end, Workspace<T>& w,
                                   const Gradients<T>& grad) {
  for (int64_t unit = begin; unit < end;) {
    const int64_t group = unit / s.heads, head = unit % s.heads;
    const int64_t stop = end - group * s.heads < s.heads
                             ? end - group * s.heads : s.heads;
    for (int64_t n = s.hits.group_begin(group);
         n < s.hits.group_begin(group + 1); ++n) {
      const int64_t from = s.hits.begin(n), to = s.hits.end(n);
      const T scale = 1 / static_cast<T>(to > from ? to - from : 1);
      for (int64_t t = from; t < to; ++t)
        for (int64_t h = head; h < stop; ++h)
          backward_hit(s, n, t, h, scale, w, grad);
    }
    unit += stop - head;
  }
}

// Function templates cannot be cloned for instruction sets.
#define MMTURBOX_ATTENTION_LOOPS(T)                                         \
  MMTURBOX_CLONES void forward(const Samples<T>& s, int64_t begin,          \
                               int64_t end, Workspace<T>& w, T* out) {      \
    forward_loop(s, begin, end, w, out);                                    \
  }                                                                         \
  MMTURBOX_CLONES void backward(const Samples<T>& s, int64_t begin,         \
                                int64_t end, Workspace<T>& w,               \
                                const Gradients<T>& grad) {                 \
    backward_loop(s, begin, end, w, grad);                                  \
  }
MMTURBOX_ATTENTION_LOOPS(float)
MMTURBOX_ATTENTION_LOOPS(double)
#undef MMTURBOX_ATTENTION_LOOPS

// The tensors of a call, contiguous and in the type that sums are made in.
struct Inputs {
  Tensor value, shapes, starts, locations, weights;
  MapLevels levels;
  HitList hits;
  bool softmax;

  Inputs(const Tensor& value_in, const Tensor& shapes_in,
         const Tensor& starts_in, const Tensor& locations_in,
         const Tensor& weights_in, const std::optional<Tensor>& images,
         const std::optional<Tensor>& offsets, bool softmax_in)
      : value(compute_tensor(value_in)),
        locations(torch::stable::contiguous(
            in_type(locations_in, value.scalar_type()))),
        weights(torch::stable::contiguous(
            in_type(weights_in, value.scalar_type()))),
        levels(shapes_in, starts_in, value.size(1)),
        hits(locations.size(0), value.size(0), images, offsets),
        softmax(softmax_in) {}

  template <typename T>
  Samples<T> samples() const {
    return {value.const_data_ptr<T>(),
            locations.const_data_ptr<T>(),
            weights.const_data_ptr<T>(),
            levels.view(),
            hits.view(),
            value.size(2),
            value.size(3),
            locations.size(3),
            softmax};
  }
};

Tensor ms_deform_attn(const Tensor& value, const Tensor& shapes,
                      const Tensor& starts, const Tensor& locations,
                      const Tensor& weights, std::optional<Tensor> images,
                      std::optional<Tensor> offsets, bool softmax) {
  const Inputs in(value, shapes, starts, locations, weights, images, offsets,
                  softmax);
  Tensor out = torch::stable::new_empty(
      in.value, {in.hits.view().rows, value.size(2) * value.size(3)});
  MMTURBOX_DISPATCH_FLOAT(in.value.scalar_type(), "ms_deform_attn", {
    const Samples<scalar_t> s = in.samples<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    torch::stable::parallel_for(
        0, s.hits.rows, 64, [&](int64_t begin, int64_t end) {
          Workspace<scalar_t> w(s);
          forward(s, begin, end, w, to);
        });
  });
  return in_type(out, value.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> ms_deform_attn_backward(
    const Tensor& grad_in, const Tensor& value, const Tensor& shapes,
    const Tensor& starts, const Tensor& locations, const Tensor& weights,
    std::optional<Tensor> images, std::optional<Tensor> offsets,
    bool softmax) {
  const Inputs in(value, shapes, starts, locations, weights, images, offsets,
                  softmax);
  const ScalarType type = in.value.scalar_type();
  Tensor grad = torch::stable::contiguous(in_type(grad_in, type));
  Tensor grad_value = torch::stable::new_zeros(in.value, in.value.sizes());
  Tensor grad_at =
      torch::stable::new_zeros(in.locations, in.locations.sizes());
  Tensor grad_weights =
      torch::stable::new_zeros(in.weights, in.weights.sizes());
  MMTURBOX_DISPATCH_FLOAT(type, "ms_deform_attn_backward", {
    const Samples<scalar_t> s = in.samples<scalar_t>();
    const Gradients<scalar_t> to{
        grad.const_data_ptr<scalar_t>(),
        grad_value.mutable_data_ptr<scalar_t>(),
        grad_at.mutable_data_ptr<scalar_t>(),
        grad_weights.mutable_data_ptr<scalar_t>()};
    torch::stable::parallel_for(
        0, s.hits.groups * s.heads, 1, [&](int64_t begin, int64_t end) {
          Workspace<scalar_t> w(s);
          backward(s, begin, end, w, to);
        });
  });
  return {in_type(grad_value, value.scalar_type()),
          in_type(grad_at, locations.scalar_type()),
          in_type(grad_weights, weights.scalar_type())};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("ms_deform_attn", TORCH_BOX(&ms_deform_attn));
  m.impl("ms_deform_attn_backward", TORCH_BOX(&ms_deform_attn_backward));
}

}  // namespace mmturbox
