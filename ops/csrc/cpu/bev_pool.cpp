// CPU kernels of mmturbox::{bev_cells,bev_pool_intervals,bev_pool} and the
// gradient of the last.
#include "../common/bev_pool.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "../common/stable.h"
#include "compute.h"
#include "gather.h"

namespace mmturbox {
namespace {

// Independent pieces of a sample in the sort by cell.
constexpr int64_t kParts = 4;
// Pieces of the forward sum; each holds about as many points.
constexpr int64_t kChunks = 256;

// The sum over points, in order, of depth times N vectors of features, from
// channel `c` on.
template <typename T, typename V, int N>
MMTURBOX_INLINE void pool_lanes(const T* depth, const T* context,
                                const int32_t* points, const int32_t* pixels,
                                int64_t count, int64_t C, int64_t c, T* out) {
  constexpr int kLanes = sizeof(V) / sizeof(T);
  V sum[N] = {};
  for (int64_t p = 0; p < count; ++p) {
    const T* row = context + pixels[p] * C + c;
    const T d = depth[points[p]];
    for (int v = 0; v < N; ++v) {
      V values;
      load(row + v * kLanes, &values);
      sum[v] += values * d;
    }
  }
  for (int v = 0; v < N; ++v) store(sum[v], out + c + v * kLanes);
}

template <typename T>
MMTURBOX_INLINE void pool_loop(const T* depth, const T* context,
                               const int32_t* points, const int32_t* pixels,
                               int64_t count, int64_t C, T* out) {
  using V = typename Lanes<T>::Vector;
  constexpr int64_t kLanes = sizeof(V) / sizeof(T);
  const bool fives = C / kLanes % 5 == 0;
  int64_t c = 0;
  for (; fives && c + 5 * kLanes <= C; c += 5 * kLanes)
    pool_lanes<T, V, 5>(depth, context, points, pixels, count, C, c, out);
  for (; c + 4 * kLanes <= C; c += 4 * kLanes)
    pool_lanes<T, V, 4>(depth, context, points, pixels, count, C, c, out);
  for (; c + kLanes <= C; c += kLanes)
    pool_lanes<T, V, 1>(depth, context, points, pixels, count, C, c, out);
  for (; c < C; ++c)
    pool_lanes<T, T, 1>(depth, context, points, pixels, count, C, c, out);
}

struct Shape {
  int64_t images, D, H, W, C;
};

template <typename T>
struct Column {
  const T *grad, *depth, *context;  // of the whole sample and image
  const int32_t* cells;
  int64_t num_cells;
  T *grad_depth, *grad_context;
};

// The gradients of one pixel, given by its place in a map, for N vectors of
// channels from `c`: features and their gradient stay in registers for all
// bins. The lanes of sums are fixed, whatever the instruction set.
template <typename T, typename V, int N>
MMTURBOX_INLINE void pixel_lanes(const Column<T>& at, const Shape& s,
                                 int64_t pixel, int64_t c) {
  constexpr int kLanes = sizeof(V) / sizeof(T);
  V row[N], sum[N] = {};
  for (int v = 0; v < N; ++v)
    load(at.context + pixel * s.C + c + v * kLanes, &row[v]);
  for (int64_t d = 0; d < s.D; ++d) {
    const int64_t point = d * s.H * s.W + pixel;
    const int64_t cell = at.cells[point];
    if (cell < 0 || cell >= at.num_cells) {
      at.grad_depth[point] = 0;
      continue;
    }
    const T depth = at.depth[point];
    const T* grad = at.grad + cell * s.C + c;
    V dot = {};
    for (int v = 0; v < N; ++v) {
      V g;
      load(grad + v * kLanes, &g);
      dot += g * row[v];
      sum[v] += g * depth;
    }
    const T before = c == 0 ? T(0) : at.grad_depth[point];
    at.grad_depth[point] = before + sum_lanes<T, V>(dot);
  }
  for (int v = 0; v < N; ++v)
    store(sum[v], at.grad_context + pixel * s.C + c + v * kLanes);
}

// One column of pixels, from its first. At one depth its points mostly lie in
// one cell, so that the rows of the gradient stay in the first cache.
template <typename T>
MMTURBOX_INLINE void column_loop(const Column<T>& at, const Shape& s,
                                 int64_t w) {
  using V = typename Lanes<T>::Vector;
  constexpr int64_t kLanes = sizeof(V) / sizeof(T);
  const bool fives = s.C / kLanes % 5 == 0;
  for (int64_t h = 0; h < s.H; ++h) {
    const int64_t pixel = h * s.W + w;
    int64_t c = 0;
    for (; fives && c + 5 * kLanes <= s.C; c += 5 * kLanes)
      pixel_lanes<T, V, 5>(at, s, pixel, c);
    for (; c + 4 * kLanes <= s.C; c += 4 * kLanes)
      pixel_lanes<T, V, 4>(at, s, pixel, c);
    for (; c + kLanes <= s.C; c += kLanes)
      pixel_lanes<T, V, 1>(at, s, pixel, c);
    for (; c < s.C; ++c) pixel_lanes<T, T, 1>(at, s, pixel, c);
  }
}

#define MMTURBOX_LOOPS(T)                                                   \
  MMTURBOX_CLONES void pool_cells(                                          \
      const T* depth, const T* context, const int32_t* points,              \
      const int32_t* pixels, const int32_t* starts, int64_t begin,          \
      int64_t end, int64_t C, T* out) {                                     \
    for (int64_t cell = begin; cell < end; ++cell)                          \
      pool_loop(depth, context, points + starts[cell],                      \
                pixels + starts[cell], starts[cell + 1] - starts[cell], C,  \
                out + cell * C);                                            \
  }                                                                         \
  MMTURBOX_CLONES void column_gradients(const Column<T>& at,                \
                                        const Shape& s, int64_t w) {        \
    column_loop(at, s, w);                                                  \
  }
MMTURBOX_LOOPS(float)
MMTURBOX_LOOPS(double)
#undef MMTURBOX_LOOPS

Tensor bev_cells(const Tensor& points_in, std::vector<double> lower,
                 std::vector<double> size, std::vector<int64_t> grid_in) {
  Tensor points = compute_tensor(points_in);
  BevGrid grid;
  for (int k = 0; k < 3; ++k) {
    grid.lower[k] = lower[k];
    grid.size[k] = size[k];
    grid.cells[k] = grid_in[k];
  }
  std::vector<int64_t> shape;
  for (int64_t k = 0; k + 1 < points.dim(); ++k)
    shape.push_back(points.size(k));
  Tensor out = torch::stable::new_empty(points, shape, ScalarType::Int);
  int32_t* to = out.mutable_data_ptr<int32_t>();
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "bev_cells", {
    const scalar_t* from = points.const_data_ptr<scalar_t>();
    torch::stable::parallel_for(
        0, out.numel(), 8192, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            to[i] = bev_cell(from + i * 3, grid);
        });
  });
  return out;
}

struct Sort {
  const int32_t* cells;
  int64_t batch, per_sample, num_cells, per_image, per_map;

  int64_t row(int64_t i) const {
    const int64_t cell = cells[i];
    return cell < 0 || cell >= num_cells ? num_cells : cell;
  }

  std::pair<int64_t, int64_t> part(int64_t k) const {
    const int64_t start = k / kParts * per_sample, at = k % kParts;
    return {start + per_sample * at / kParts,
            start + per_sample * (at + 1) / kParts};
  }

  // Counts of each part become the first place of its points.
  void places(std::vector<int32_t>& count, int32_t* starts) const {
    const int64_t stride = num_cells + 1;
    int32_t running = 0;
    const auto advance = [&](int32_t& entry) {
      const int32_t here = entry;
      entry = running;
      running += here;
    };
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t cell = 0; cell < num_cells; ++cell) {
        starts[b * num_cells + cell] = running;
        for (int64_t k = b * kParts; k < (b + 1) * kParts; ++k)
          advance(count[k * stride + cell]);
      }
    starts[batch * num_cells] = running;
    for (int64_t k = 0; k < batch * kParts; ++k)
      advance(count[k * stride + num_cells]);
  }

  void run(int32_t* points, int32_t* pixels, int32_t* starts) const {
    const int64_t stride = num_cells + 1;
    std::vector<int32_t> count(batch * kParts * stride, 0);
    torch::stable::parallel_for(
        0, batch * kParts, 1, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k)
            for (int64_t i = part(k).first; i < part(k).second; ++i)
              ++count[k * stride + row(i)];
        });
    places(count, starts);
    torch::stable::parallel_for(
        0, batch * kParts, 1, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            int32_t* place = count.data() + k * stride;
            const auto [first, last] = part(k);
            int64_t image = first / per_image, pixel = first % per_map;
            int64_t next = (image + 1) * per_image;
            for (int64_t i = first; i < last; ++i) {
              const int32_t to = place[row(i)]++;
              points[to] = static_cast<int32_t>(i);
              pixels[to] = static_cast<int32_t>(image * per_map + pixel);
              if (++pixel == per_map) pixel = 0;
              if (i + 1 == next) {
                ++image;
                next += per_image;
              }
            }
          }
        });
  }
};

std::tuple<Tensor, Tensor, Tensor> bev_pool_intervals(const Tensor& cells_in,
                                                      int64_t num_cells) {
  Tensor cells = torch::stable::contiguous(cells_in);
  const int64_t B = cells.size(0), map = cells.size(3) * cells.size(4);
  Tensor points = torch::stable::new_empty(cells, {cells.numel()});
  Tensor pixels = torch::stable::empty_like(points);
  Tensor starts = torch::stable::new_empty(cells, {B * num_cells + 1});
  const Sort sort{cells.const_data_ptr<int32_t>(),
                  B,
                  B == 0 ? 0 : cells.numel() / B,
                  num_cells,
                  std::max<int64_t>(cells.size(2) * map, 1),
                  std::max<int64_t>(map, 1)};
  sort.run(points.mutable_data_ptr<int32_t>(),
           pixels.mutable_data_ptr<int32_t>(),
           starts.mutable_data_ptr<int32_t>());
  return {points, pixels, starts};
}

Tensor bev_pool(const Tensor& depth_in, const Tensor& context_in,
                const Tensor& /*cells*/, const Tensor& points_in,
                const Tensor& pixels_in, const Tensor& starts_in) {
  Tensor depth = compute_tensor(depth_in);
  Tensor context = compute_tensor(context_in);
  Tensor points = torch::stable::contiguous(points_in);
  Tensor pixels = torch::stable::contiguous(pixels_in);
  Tensor starts = torch::stable::contiguous(starts_in);
  const int64_t rows = starts.numel() - 1, C = context.size(4);
  Tensor out = torch::stable::new_empty(context, {rows, C});
  const int32_t* first = starts.const_data_ptr<int32_t>();
  // Chunk k starts at the first cell that begins at its share of the points.
  const auto cell_of = [&](int64_t k) {
    const int64_t share = static_cast<int64_t>(first[rows]) * k / kChunks;
    return k == 0         ? int64_t{0}
           : k == kChunks ? rows
                          : std::lower_bound(first, first + rows, share) -
                                first;
  };
  MMTURBOX_DISPATCH_FLOAT(context.scalar_type(), "bev_pool", {
    torch::stable::parallel_for(
        0, kChunks, 1, [&](int64_t begin, int64_t end) {
          pool_cells(depth.const_data_ptr<scalar_t>(),
                     context.const_data_ptr<scalar_t>(),
                     points.const_data_ptr<int32_t>(),
                     pixels.const_data_ptr<int32_t>(), first, cell_of(begin),
                     cell_of(end), C, out.mutable_data_ptr<scalar_t>());
        });
  });
  return in_type(out, context_in.scalar_type());
}

std::tuple<Tensor, Tensor> bev_pool_backward(const Tensor& grad_in,
                                             const Tensor& depth_in,
                                             const Tensor& context_in,
                                             const Tensor& cells_in) {
  Tensor grad = compute_tensor(grad_in);
  Tensor depth = compute_tensor(depth_in);
  Tensor context = compute_tensor(context_in);
  Tensor cells = torch::stable::contiguous(cells_in);
  const int64_t B = depth.size(0), N = depth.size(1);
  const Shape s{B * N, depth.size(2), depth.size(3), depth.size(4),
                context.size(4)};
  const int64_t num_cells = B == 0 ? 0 : grad.size(0) / B;
  // No channels: nothing writes it.
  Tensor grad_depth = s.C == 0
                          ? torch::stable::new_zeros(
                                depth, {B, N, s.D, s.H, s.W})
                          : torch::stable::empty_like(depth);
  Tensor grad_context = torch::stable::empty_like(context);
  MMTURBOX_DISPATCH_FLOAT(context.scalar_type(), "bev_pool_backward", {
    torch::stable::parallel_for(
        0, s.images * s.W, 16, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            const int64_t image = k / s.W, sample = image / N;
            const int64_t points = image * s.D * s.H * s.W;
            const int64_t pixels = image * s.H * s.W * s.C;
            column_gradients(
                Column<scalar_t>{
                    grad.const_data_ptr<scalar_t>() + sample * num_cells * s.C,
                    depth.const_data_ptr<scalar_t>() + points,
                    context.const_data_ptr<scalar_t>() + pixels,
                    cells.const_data_ptr<int32_t>() + points, num_cells,
                    grad_depth.mutable_data_ptr<scalar_t>() + points,
                    grad_context.mutable_data_ptr<scalar_t>() + pixels},
                s, k % s.W);
          }
        });
  });
  return {in_type(grad_depth, depth_in.scalar_type()),
          in_type(grad_context, context_in.scalar_type())};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("bev_cells", TORCH_BOX(&bev_cells));
  m.impl("bev_pool_intervals", TORCH_BOX(&bev_pool_intervals));
  m.impl("bev_pool", TORCH_BOX(&bev_pool));
  m.impl("bev_pool_backward", TORCH_BOX(&bev_pool_backward));
}

}  // namespace mmturbox
