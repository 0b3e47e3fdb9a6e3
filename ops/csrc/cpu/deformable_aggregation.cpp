// CPU kernels of mmturbox::deformable_aggregation, with given weights and
// with weights that are a softmax of split logits, and their backward.
#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "../common/deformable_aggregation.h"
#include "../common/stable.h"
#include "compute.h"
#include "gather.h"

namespace mmturbox {
namespace {

// `weights` is null where the weights come from logits.
template <typename T>
struct Points {
  AggregationShape shape;
  const T *feats, *locations, *weights;
  SplitLogits<T> split;
  const int64_t *shapes, *starts;
};

// Pointers are null where there is no such gradient. `by_logit` holds the
// gradients of the logits of visible points, L x G each; `rank` is the place
// of a point in it, counted from first[n] for anchor n, or -1.
template <typename T>
struct Gradients {
  const T* out;
  T *feats, *locations, *weights;
  T *by_logit, *anchors, *cameras, *norm;
  const int32_t* rank;
  const int64_t* first;
};

template <typename T>
struct Workspace {
  std::vector<Tap<T>> taps;
  std::vector<T> weights, zeros, waste;

  explicit Workspace(const AggregationShape& s)
      : taps(s.points * s.cameras * s.levels),
        weights(s.points * s.cameras * s.levels * s.groups),
        zeros(s.channels()), waste(s.channels()) {}
};

// The weights of one read, in memory of the caller where they are computed.
template <typename T>
MMTURBOX_INLINE const T* weights_at(const Points<T>& p, int64_t b, int64_t n,
                                    int64_t k, int64_t m, int64_t level,
                                    T* memory) {
  const AggregationShape& s = p.shape;
  if (p.weights) return p.weights + s.weight_at(b, n, k, m, level);
  for (int64_t g = 0; g < s.groups; ++g)
    memory[g] = split_weight(p.split, s, b, n, k, m, level, g);
  return memory;
}

template <typename T>
MMTURBOX_INLINE bool level_tap(const Points<T>& p, int64_t b, int64_t m,
                               int64_t level, const T* location,
                               Tap<T>* tap) {
  const AggregationShape& s = p.shape;
  const int64_t map = m * s.levels + level;
  const int64_t height = p.shapes[map * 2], width = p.shapes[map * 2 + 1];
  return make_tap(location[0] * static_cast<T>(width) - T(0.5),
                  location[1] * static_cast<T>(height) - T(0.5), height,
                  width, b * s.cells + p.starts[map], s.width, tap);
}

// Anchors [begin, end) of the flat (B, N).
template <typename T>
MMTURBOX_INLINE void forward_loop(const Points<T>& p, int64_t begin,
                                  int64_t end, Workspace<T>& w, T* out) {
  const AggregationShape& s = p.shape;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t b = row / s.anchors, n = row % s.anchors;
    int64_t num = 0;
    for (int64_t k = 0; k < s.points; ++k)
      for (int64_t m = 0; m < s.cameras; ++m) {
        const T* location = p.locations + s.location_at(b, n, k, m);
        if (!point_visible(location[0], location[1])) continue;
        for (int64_t level = 0; level < s.levels; ++level) {
          if (!level_tap(p, b, m, level, location, &w.taps[num])) continue;
          T* memory = w.weights.data() + num++ * s.groups;
          const T* given = weights_at(p, b, n, k, m, level, memory);
          if (given != memory)
            std::memcpy(memory, given, s.groups * sizeof(T));
        }
      }
    T* to = out + row * s.width;
    std::memset(to, 0, s.width * sizeof(T));
    for (int64_t g = 0; g < s.groups; ++g) {
      const int64_t c = g * s.channels();
      gather(p.feats + c, w.zeros.data(), w.taps.data(), num,
             w.weights.data() + g, s.groups, s.channels(), to + c);
    }
  }
}

// One visible point: all of its levels.
template <typename T>
MMTURBOX_INLINE void backward_point(const Points<T>& p, int64_t b, int64_t n,
                                    int64_t k, int64_t m, const T* location,
                                    Workspace<T>& w,
                                    const Gradients<T>& grad) {
  const AggregationShape& s = p.shape;
  const int64_t C = s.channels(), row = b * s.anchors + n;
  T* by_location = grad.locations + s.location_at(b, n, k, m);
  T* by_weight = grad.weights;
  if (!by_weight) {
    const int64_t at = (row * s.points + k) * s.cameras + m;
    by_weight = grad.by_logit +
                (grad.first[row] + grad.rank[at]) * s.levels * s.groups;
  } else {
    by_weight += s.weight_at(b, n, k, m, 0);
  }
  for (int64_t level = 0; level < s.levels; ++level) {
    T* slopes = by_weight + level * s.groups;
    Tap<T>& tap = w.taps[0];
    if (!level_tap(p, b, m, level, location, &tap)) {
      std::fill(slopes, slopes + s.groups, T(0));
      continue;
    }
    const T* weights =
        weights_at(p, b, n, k, m, level, w.weights.data());
    T slope_x = 0, slope_y = 0;
    for (int64_t g = 0; g < s.groups; ++g) {
      T dot[4];
      scatter(p.feats + g * C, grad.feats + g * C, w.zeros.data(),
              w.waste.data(), tap, weights[g],
              grad.out + row * s.width + g * C, C, dot);
      T slope = 0;
      for (int i = 0; i < 4; ++i) slope += tap.weight[i] * dot[i];
      slopes[g] = p.weights ? slope : slope * weights[g];
      slope_x += weights[g] * bilinear_slope_x(tap.ly, dot);
      slope_y += weights[g] * bilinear_slope_y(tap.lx, dot);
      if (grad.cameras)
        grad.cameras[s.camera_logit_at(b, m, level, k) + g] += slopes[g];
    }
    const int64_t map = m * s.levels + level;
    by_location[0] += slope_x * static_cast<T>(p.shapes[map * 2 + 1]);
    by_location[1] += slope_y * static_cast<T>(p.shapes[map * 2]);
  }
}

// Cameras [begin, end) of the flat (B, M): nobody else writes their maps.
template <typename T>
MMTURBOX_INLINE void camera_loop(const Points<T>& p, int64_t begin,
                                 int64_t end, Workspace<T>& w,
                                 const Gradients<T>& grad) {
  const AggregationShape& s = p.shape;
  for (int64_t camera = begin; camera < end; ++camera) {
    const int64_t b = camera / s.cameras, m = camera % s.cameras;
    for (int64_t n = 0; n < s.anchors; ++n)
      for (int64_t k = 0; k < s.points; ++k) {
        const T* location = p.locations + s.location_at(b, n, k, m);
        if (point_visible(location[0], location[1]))
          backward_point(p, b, n, k, m, location, w, grad);
      }
  }
}

// Function templates cannot be cloned for instruction sets.
#define MMTURBOX_AGGREGATION_LOOPS(T)                                       \
  MMTURBOX_CLONES void forward(const Points<T>& p, int64_t begin,           \
                               int64_t end, Workspace<T>& w, T* out) {      \
    forward_loop(p, begin, end, w, out);                                    \
  }                                                                         \
  MMTURBOX_CLONES void backward(const Points<T>& p, int64_t begin,          \
                                int64_t end, Workspace<T>& w,               \
                                const Gradients<T>& grad) {                 \
    camera_loop(p, begin, end, w, grad);                                    \
  }
MMTURBOX_AGGREGATION_LOOPS(float)
MMTURBOX_AGGREGATION_LOOPS(double)
#undef MMTURBOX_AGGREGATION_LOOPS

// Gradients of the logits of visible points to those of anchors.
template <typename T>
void anchor_logits(const AggregationShape& s, int64_t row,
                   const Gradients<T>& grad) {
  const T* from = grad.by_logit + grad.first[row] * s.levels * s.groups;
  for (int64_t k = 0; k < s.points; ++k)
    for (int64_t m = 0; m < s.cameras; ++m) {
      if (grad.rank[(row * s.points + k) * s.cameras + m] < 0) continue;
      for (int64_t level = 0; level < s.levels; ++level) {
        T* to = grad.anchors + s.anchor_logit_at(row, level, k);
        for (int64_t g = 0; g < s.groups; ++g, ++from) {
          to[g] += *from;
          grad.norm[row * s.groups + g] -= *from;
        }
      }
    }
}

// Visible points of each anchor: their ranks, and how many came before.
template <typename T>
void rank_points(const AggregationShape& s, const T* locations,
                 std::vector<int32_t>* rank, std::vector<int64_t>* first) {
  const int64_t rows = s.batch * s.anchors, each = s.points * s.cameras;
  rank->assign(rows * each, -1);
  first->assign(rows + 1, 0);
  for (int64_t row = 0; row < rows; ++row) {
    int32_t count = 0;
    for (int64_t i = row * each; i < (row + 1) * each; ++i)
      if (point_visible(locations[i * 2], locations[i * 2 + 1]))
        (*rank)[i] = count++;
    (*first)[row + 1] = (*first)[row] + count;
  }
}

// The tensors of a call, contiguous and in the type that sums are made in.
struct Inputs {
  Tensor feats, shapes, starts, locations;
  std::vector<Tensor> rest;
  AggregationShape shape;
  ScalarType type;

  Inputs(const Tensor& feats_in, const Tensor& shapes_in,
         const Tensor& starts_in, const Tensor& locations_in, int64_t groups)
      : feats(compute_tensor(feats_in)),
        shapes(torch::stable::contiguous(shapes_in)),
        starts(torch::stable::contiguous(starts_in)),
        type(feats.scalar_type()) {
    locations = cast(locations_in);
    shape = {locations.size(0), locations.size(1), locations.size(2),
             locations.size(3), starts.size(1),    groups,
             feats.size(1),     feats.size(2)};
    for (int64_t i = 0; i < starts.numel(); ++i) {
      const int64_t h = extent(i, 0), w = extent(i, 1);
      STD_TORCH_CHECK(h >= 0 && w >= 0 && start(i) >= 0 &&
                          start(i) <= shape.cells &&
                          (w == 0 || h <= (shape.cells - start(i)) / w),
                      "deformable_aggregation: map ", i, " of ", h, " x ", w,
                      " cells from ", start(i), " reaches out of the ",
                      shape.cells, " cells of feats");
    }
  }

  Tensor cast(const Tensor& tensor) const {
    return torch::stable::contiguous(in_type(tensor, type));
  }
  int64_t extent(int64_t map, int axis) const {
    return shapes.const_data_ptr<int64_t>()[map * 2 + axis];
  }
  int64_t start(int64_t map) const {
    return starts.const_data_ptr<int64_t>()[map];
  }
  int64_t stop(int64_t map) const {
    return start(map) + extent(map, 0) * extent(map, 1);
  }

  // Whether no two cameras share a cell.
  bool cameras_apart() const {
    const int64_t maps = starts.numel(), levels = shape.levels;
    for (int64_t i = 0; i < maps; ++i)
      for (int64_t j = 0; j < maps; ++j)
        if (i / levels != j / levels && start(i) < stop(j) &&
            start(j) < stop(i))
          return false;
    return true;
  }

  template <typename T>
  Points<T> points(bool split) const {
    Points<T> p{shape,
                feats.const_data_ptr<T>(),
                locations.const_data_ptr<T>(),
                split ? nullptr : rest[0].const_data_ptr<T>(),
                {},
                shapes.const_data_ptr<int64_t>(),
                starts.const_data_ptr<int64_t>()};
    if (split)
      p.split = {rest[0].const_data_ptr<T>(), rest[1].const_data_ptr<T>(),
                 rest[2].const_data_ptr<T>(),
                 rest.size() > 3 ? rest[3].const_data_ptr<T>() : nullptr};
    return p;
  }
};

Tensor run_forward(const Inputs& in, bool split, ScalarType like) {
  const AggregationShape& s = in.shape;
  Tensor out =
      torch::stable::new_empty(in.feats, {s.batch, s.anchors, s.width});
  MMTURBOX_DISPATCH_FLOAT(in.type, "deformable_aggregation", {
    const Points<scalar_t> p = in.points<scalar_t>(split);
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    torch::stable::parallel_for(0, s.batch * s.anchors, 8,
                                [&](int64_t begin, int64_t end) {
                                  Workspace<scalar_t> w(s);
                                  forward(p, begin, end, w, to);
                                });
  });
  return in_type(out, like);
}

template <typename T>
void run_backward(const Inputs& in, const Points<T>& p,
                  const Gradients<T>& grad) {
  const int64_t units = in.shape.batch * in.shape.cameras;
  torch::stable::parallel_for(
      0, units, in.cameras_apart() ? 1 : std::max<int64_t>(units, 1),
      [&](int64_t begin, int64_t end) {
        Workspace<T> w(in.shape);
        backward(p, begin, end, w, grad);
      });
}

Tensor zeros_like(const Tensor& tensor) {
  return torch::stable::new_zeros(tensor, tensor.sizes());
}

Tensor deformable_aggregation(const Tensor& feats, const Tensor& shapes,
                              const Tensor& starts, const Tensor& locations,
                              const Tensor& weights) {
  Inputs in(feats, shapes, starts, locations, weights.size(5));
  in.rest = {in.cast(weights)};
  return run_forward(in, false, feats.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> deformable_aggregation_backward(
    const Tensor& grad_in, const Tensor& feats, const Tensor& shapes,
    const Tensor& starts, const Tensor& locations, const Tensor& weights) {
  Inputs in(feats, shapes, starts, locations, weights.size(5));
  in.rest = {in.cast(weights)};
  Tensor above = in.cast(grad_in), grad_feats = zeros_like(in.feats);
  Tensor grad_at = zeros_like(in.locations);
  Tensor grad_weights = zeros_like(in.rest[0]);
  MMTURBOX_DISPATCH_FLOAT(in.type, "deformable_aggregation_backward", {
    Gradients<scalar_t> to{};
    to.out = above.const_data_ptr<scalar_t>();
    to.feats = grad_feats.mutable_data_ptr<scalar_t>();
    to.locations = grad_at.mutable_data_ptr<scalar_t>();
    to.weights = grad_weights.mutable_data_ptr<scalar_t>();
    run_backward(in, in.points<scalar_t>(false), to);
  });
  return {in_type(grad_feats, feats.scalar_type()),
          in_type(grad_at, locations.scalar_type()),
          in_type(grad_weights, weights.scalar_type())};
}

void add_split(Inputs* in, const Tensor& anchors, const Tensor& cameras,
               const Tensor& norm, const std::optional<Tensor>& scale) {
  in->rest = {in->cast(anchors), in->cast(cameras), in->cast(norm)};
  if (scale.has_value()) in->rest.push_back(in->cast(*scale));
}

Tensor deformable_aggregation_split(
    const Tensor& feats, const Tensor& shapes, const Tensor& starts,
    const Tensor& locations, const Tensor& anchors, const Tensor& cameras,
    const Tensor& norm, std::optional<Tensor> scale) {
  Inputs in(feats, shapes, starts, locations, norm.size(2));
  add_split(&in, anchors, cameras, norm, scale);
  return run_forward(in, true, feats.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>
deformable_aggregation_split_backward(
    const Tensor& grad_in, const Tensor& feats, const Tensor& shapes,
    const Tensor& starts, const Tensor& locations, const Tensor& anchors,
    const Tensor& cameras, const Tensor& norm, std::optional<Tensor> scale) {
  Inputs in(feats, shapes, starts, locations, norm.size(2));
  add_split(&in, anchors, cameras, norm, scale);
  const AggregationShape& s = in.shape;
  Tensor above = in.cast(grad_in), grad_feats = zeros_like(in.feats);
  Tensor grad_at = zeros_like(in.locations);
  Tensor grad_anchors = zeros_like(in.rest[0]);
  Tensor grad_cameras = zeros_like(in.rest[1]);
  Tensor grad_norm = zeros_like(in.rest[2]);
  MMTURBOX_DISPATCH_FLOAT(in.type, "deformable_aggregation_split_backward", {
    std::vector<int32_t> rank;
    std::vector<int64_t> first;
    rank_points(s, in.locations.const_data_ptr<scalar_t>(), &rank, &first);
    std::vector<scalar_t> by_logit(first.back() * s.levels * s.groups);
    const Gradients<scalar_t> to{above.const_data_ptr<scalar_t>(),
                                 grad_feats.mutable_data_ptr<scalar_t>(),
                                 grad_at.mutable_data_ptr<scalar_t>(),
                                 nullptr,
                                 by_logit.data(),
                                 grad_anchors.mutable_data_ptr<scalar_t>(),
                                 grad_cameras.mutable_data_ptr<scalar_t>(),
                                 grad_norm.mutable_data_ptr<scalar_t>(),
                                 rank.data(),
                                 first.data()};
    run_backward(in, in.points<scalar_t>(true), to);
    torch::stable::parallel_for(0, s.batch * s.anchors, 64,
                                [&](int64_t begin, int64_t end) {
                                  for (int64_t row = begin; row < end; ++row)
                                    anchor_logits(s, row, to);
                                });
  });
  return {in_type(grad_feats, feats.scalar_type()),
          in_type(grad_at, locations.scalar_type()),
          in_type(grad_anchors, anchors.scalar_type()),
          in_type(grad_cameras, cameras.scalar_type()),
          in_type(grad_norm, norm.scalar_type())};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("deformable_aggregation", TORCH_BOX(&deformable_aggregation));
  m.impl("deformable_aggregation_backward",
         TORCH_BOX(&deformable_aggregation_backward));
  m.impl("deformable_aggregation_split",
         TORCH_BOX(&deformable_aggregation_split));
  m.impl("deformable_aggregation_split_backward",
         TORCH_BOX(&deformable_aggregation_split_backward));
}

}  // namespace mmturbox
