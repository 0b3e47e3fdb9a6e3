// CPU kernels of mmturbox::geometry_kernel_attn and its backward.
#include "../common/geometry_kernel_attn.h"

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
  const T *value, *references, *logits;
  Levels levels;
  Hits hits;
  KernelShape kernel;
  int64_t heads, channels;

  int64_t cells() const { return kernel.height * kernel.width; }
  int64_t per_head() const { return levels.count * cells(); }
};

template <typename T>
struct Workspace {
  std::vector<T> weights, slopes;
  std::vector<int64_t> at;

  explicit Workspace(const Samples<T>& s)
      : weights(s.per_head()), slopes(s.per_head()), at(s.per_head()) {}
};

// Weights of one head of hit t, times `scale`, and where its cells start.
template <typename T>
MMTURBOX_INLINE void prepare(const Samples<T>& s, int64_t t, int64_t head,
                             T scale, Workspace<T>& w) {
  const int64_t unit = t * s.heads + head, n = s.per_head();
  const int64_t stride = s.heads * s.channels, each = s.cells();
  softmax_row(s.logits + unit * n, n, scale, w.weights.data());
  const T x = s.references[unit * 2], y = s.references[unit * 2 + 1];
  const int64_t first = s.hits.image(t) * s.levels.cells;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t level = i / each;
    const int64_t cell =
        kernel_cell(x, y, i % each, s.kernel, s.levels.shapes[level * 2],
                    s.levels.shapes[level * 2 + 1]);
    w.at[i] = (first + s.levels.starts[level] + cell) * stride +
              head * s.channels;
  }
}

template <typename T>
MMTURBOX_INLINE void forward_loop(const Samples<T>& s, int64_t begin,
                                  int64_t end, Workspace<T>& w, T* out) {
  const int64_t C = s.channels;
  for (int64_t n = begin; n < end; ++n) {
    T* row = out + n * s.heads * C;
    std::memset(row, 0, s.heads * C * sizeof(T));
    const int64_t from = s.hits.begin(n), to = s.hits.end(n);
    const T scale = 1 / static_cast<T>(to > from ? to - from : 1);
    for (int64_t t = from; t < to; ++t)
      for (int64_t h = 0; h < s.heads; ++h) {
        prepare(s, t, h, scale, w);
        T* __restrict__ sum = row + h * C;
        for (int64_t i = 0; i < s.per_head(); ++i) {
          const T* value = s.value + w.at[i];
          const T weight = w.weights[i];
          for (int64_t c = 0; c < C; ++c) sum[c] += weight * value[c];
        }
      }
  }
}

template <typename T>
struct Gradients {
  const T* out;
  T *value, *logits;
};

// Sum of a[c] * b[c] in an order that vectors keep.
template <typename T>
MMTURBOX_INLINE T product(const T* a, const T* b, int64_t channels) {
  constexpr int kLanes = 16;
  T lane[kLanes] = {};
  int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes)
    for (int i = 0; i < kLanes; ++i) lane[i] += a[c + i] * b[c + i];
  for (int i = 0; c < channels; ++c, ++i) lane[i] += a[c] * b[c];
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  return lane[0];
}

template <typename T>
MMTURBOX_INLINE void backward_hit(const Samples<T>& s, int64_t row, int64_t t,
                                  int64_t head, T scale, Workspace<T>& w,
                                  const Gradients<T>& grad) {
  const int64_t n = s.per_head(), C = s.channels;
  prepare(s, t, head, scale, w);
  const T* above = grad.out + (row * s.heads + head) * C;
  T* by_logit = grad.logits + (t * s.heads + head) * n;
  T inner = 0;
  for (int64_t i = 0; i < n; ++i) {
    w.slopes[i] = product(s.value + w.at[i], above, C);
    T* __restrict__ to = grad.value + w.at[i];
    for (int64_t c = 0; c < C; ++c) to[c] += w.weights[i] * above[c];
    inner += w.weights[i] * w.slopes[i];
  }
  for (int64_t i = 0; i < n; ++i)
    by_logit[i] = w.weights[i] * (w.slopes[i] - inner / scale);
}

// Units are (group, head); a unit's part of the map's gradient is summed by
// one thread in the order of hits.
template <typename T>
MMTURBOX_INLINE void backward_loop(const Samples<T>& s, int64_t begin,
                                   int64_t end, Workspace<T>& w,
                                   const Gradients<T>& grad) {
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t group = unit / s.heads, head = unit % s.heads;
    for (int64_t n = s.hits.group_begin(group);
         n < s.hits.group_begin(group + 1); ++n) {
      const int64_t from = s.hits.begin(n), to = s.hits.end(n);
      const T scale = 1 / static_cast<T>(to > from ? to - from : 1);
      for (int64_t t = from; t < to; ++t)
        backward_hit(s, n, t, head, scale, w, grad);
    }
  }
}

// Function templates cannot be cloned for instruction sets.
#define MMTURBOX_KERNEL_LOOPS(T)                                            \
  MMTURBOX_CLONES void forward(const Samples<T>& s, int64_t begin,          \
                               int64_t end, Workspace<T>& w, T* out) {      \
    forward_loop(s, begin, end, w, out);                                    \
  }                                                                         \
  MMTURBOX_CLONES void backward(const Samples<T>& s, int64_t begin,         \
                                int64_t end, Workspace<T>& w,               \
                                const Gradients<T>& grad) {                 \
    backward_loop(s, begin, end, w, grad);                                  \
  }
MMTURBOX_KERNEL_LOOPS(float)
MMTURBOX_KERNEL_LOOPS(double)
#undef MMTURBOX_KERNEL_LOOPS

// The tensors of a call, contiguous and in the type that sums are made in.
struct Inputs {
  Tensor value, references, logits;
  MapLevels levels;
  HitList hits;
  KernelShape kernel;

  Inputs(const Tensor& value_in, const Tensor& shapes, const Tensor& starts,
         const Tensor& references_in, const Tensor& logits_in,
         const std::optional<Tensor>& images,
         const std::optional<Tensor>& offsets,
         const std::vector<int64_t>& kernel_in)
      : value(compute_tensor(value_in)),
        references(torch::stable::contiguous(
            in_type(references_in, value.scalar_type()))),
        logits(torch::stable::contiguous(
            in_type(logits_in, value.scalar_type()))),
        levels(shapes, starts, value.size(1)),
        hits(logits.size(0), value.size(0), images, offsets),
        kernel{kernel_in[0], kernel_in[1], kernel_in[2]} {
    const Levels view = levels.view();
    for (int64_t i = 0; i < view.count * 2; ++i)
      STD_TORCH_CHECK(view.shapes[i] > 0, "attention: level ", i / 2,
                      " has no cells");
  }

  template <typename T>
  Samples<T> samples() const {
    return {value.const_data_ptr<T>(),
            references.const_data_ptr<T>(),
            logits.const_data_ptr<T>(),
            levels.view(),
            hits.view(),
            kernel,
            value.size(2),
            value.size(3)};
  }
};

Tensor geometry_kernel_attn(const Tensor& value, const Tensor& shapes,
                            const Tensor& starts, const Tensor& references,
                            const Tensor& logits,
                            std::optional<Tensor> images,
                            std::optional<Tensor> offsets,
                            std::vector<int64_t> kernel) {
  const Inputs in(value, shapes, starts, references, logits, images, offsets,
                  kernel);
  Tensor out = torch::stable::new_empty(
      in.value, {in.hits.view().rows, value.size(2) * value.size(3)});
  MMTURBOX_DISPATCH_FLOAT(in.value.scalar_type(), "geometry_kernel_attn", {
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

std::tuple<Tensor, Tensor> geometry_kernel_attn_backward(
    const Tensor& grad_in, const Tensor& value, const Tensor& shapes,
    const Tensor& starts, const Tensor& references, const Tensor& logits,
    std::optional<Tensor> images, std::optional<Tensor> offsets,
    std::vector<int64_t> kernel) {
  const Inputs in(value, shapes, starts, references, logits, images, offsets,
                  kernel);
  const ScalarType type = in.value.scalar_type();
  Tensor grad = torch::stable::contiguous(in_type(grad_in, type));
  Tensor grad_value = torch::stable::new_zeros(in.value, in.value.sizes());
  Tensor grad_logits = torch::stable::new_zeros(in.logits, in.logits.sizes());
  MMTURBOX_DISPATCH_FLOAT(type, "geometry_kernel_attn_backward", {
    const Samples<scalar_t> s = in.samples<scalar_t>();
    const Gradients<scalar_t> to{grad.const_data_ptr<scalar_t>(),
                                 grad_value.mutable_data_ptr<scalar_t>(),
                                 grad_logits.mutable_data_ptr<scalar_t>()};
    torch::stable::parallel_for(
        0, s.hits.groups * s.heads, 1, [&](int64_t begin, int64_t end) {
          Workspace<scalar_t> w(s);
          backward(s, begin, end, w, to);
        });
  });
  return {in_type(grad_value, value.scalar_type()),
          in_type(grad_logits, logits.scalar_type())};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("geometry_kernel_attn", TORCH_BOX(&geometry_kernel_attn));
  m.impl("geometry_kernel_attn_backward",
         TORCH_BOX(&geometry_kernel_attn_backward));
}

}  // namespace mmturbox
