// CPU kernels of mmturbox::{bev_cells,bev_pool_intervals,bev_pool} and the
// gradient of the last.
#include "../common/bev_pool.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "../common/stable.h"
#include "compute.h"

namespace mmturbox {
namespace {

// Independent pieces of a sample in the sort by cell.
constexpr int64_t kParts = 4;
// Pieces of the forward sum; each holds about as many points.
constexpr int64_t kChunks = 256;

template <typename T>
struct Lanes {
  static constexpr int64_t width = 64 / sizeof(T);
  typedef T type __attribute__((vector_size(64), aligned(sizeof(T))));
};

// out[c] += sum over points of depth * context[pixel][c], points in order.
template <typename T>
inline __attribute__((always_inline)) void pool_loop(
    const T* depth, const T* context, const int32_t* points,
    const int32_t* pixels, int64_t count, int64_t C, T* __restrict out) {
  int64_t p = 0;
  for (; p + 4 <= count; p += 4) {
    const T* r0 = context + pixels[p] * C;
    const T* r1 = context + pixels[p + 1] * C;
    const T* r2 = context + pixels[p + 2] * C;
    const T* r3 = context + pixels[p + 3] * C;
    const T d0 = depth[points[p]], d1 = depth[points[p + 1]],
            d2 = depth[points[p + 2]], d3 = depth[points[p + 3]];
    for (int64_t c = 0; c < C; ++c)
      out[c] = (((out[c] + d0 * r0[c]) + d1 * r1[c]) + d2 * r2[c]) +
               d3 * r3[c];
  }
  for (; p < count; ++p) {
    const T* row = context + pixels[p] * C;
    const T d = depth[points[p]];
    for (int64_t c = 0; c < C; ++c) out[c] += d * row[c];
  }
}

// grad_row += depth * grad; returns the inner product of grad and row. The
// lanes of the sum are fixed, whatever the instruction set.
template <typename T>
inline __attribute__((always_inline)) T point_gradient(
    const T* __restrict grad, const T* __restrict row, T depth, int64_t C,
    T* __restrict grad_row) {
  using Vec = typename Lanes<T>::type;
  constexpr int64_t W = Lanes<T>::width;
  Vec sum = {};
  int64_t c = 0;
  for (; c + W <= C; c += W) {
    const Vec g = *reinterpret_cast<const Vec*>(grad + c);
    sum += g * *reinterpret_cast<const Vec*>(row + c);
    *reinterpret_cast<Vec*>(grad_row + c) += g * depth;
  }
  T total = 0;
  for (int64_t k = 0; k < W; ++k) total += sum[k];
  for (; c < C; ++c) {
    total += grad[c] * row[c];
    grad_row[c] += grad[c] * depth;
  }
  return total;
}

struct Shape {
  int64_t images, D, H, W, C;
};

// The gradients of one column of pixels, `at` = its first (image, 0, w).
// Points of a column at one depth mostly lie in one cell, whose row of the
// gradient then stays in the first cache, as the column's rows do.
template <typename T>
inline __attribute__((always_inline)) void column_loop(
    const T* grad, const T* depth, const T* context, const int32_t* cells,
    int64_t num_cells, const Shape& s, int64_t image, int64_t w,
    T* grad_depth, T* grad_context) {
  for (int64_t d = 0; d < s.D; ++d)
    for (int64_t h = 0; h < s.H; ++h) {
      const int64_t point = ((image * s.D + d) * s.H + h) * s.W + w;
      const int64_t pixel = (image * s.H + h) * s.W + w;
      const int64_t cell = cells[point];
      grad_depth[point] =
          cell < 0 || cell >= num_cells
              ? T(0)
              : point_gradient(grad + cell * s.C, context + pixel * s.C,
                               depth[point], s.C, grad_context + pixel * s.C);
    }
}

#define MMTURBOX_LOOPS(T)                                                   \
  MMTURBOX_CLONES void pool_cells(                                          \
      const T* depth, const T* context, const int32_t* points,              \
      const int32_t* pixels, const int32_t* starts, int64_t begin,          \
      int64_t end, int64_t C, T* out) {                                     \
    std::fill(out + begin * C, out + end * C, T(0));                        \
    for (int64_t cell = begin; cell < end; ++cell)                          \
      pool_loop(depth, context, points + starts[cell],                      \
                pixels + starts[cell], starts[cell + 1] - starts[cell], C,  \
                out + cell * C);                                            \
  }                                                                         \
  MMTURBOX_CLONES void column_gradients(                                    \
      const T* grad, const T* depth, const T* context,                      \
      const int32_t* cells, int64_t num_cells, const Shape& s,              \
      int64_t image, int64_t w, T* grad_depth, T* grad_context) {           \
    column_loop(grad, depth, context, cells, num_cells, s, image, w,        \
                grad_depth, grad_context);                                  \
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
  Tensor grad_depth = torch::stable::empty_like(depth);
  Tensor grad_context = torch::stable::new_zeros(
      context, {B, N, s.H, s.W, s.C});
  MMTURBOX_DISPATCH_FLOAT(context.scalar_type(), "bev_pool_backward", {
    torch::stable::parallel_for(
        0, s.images * s.W, 16, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            const int64_t image = k / s.W, sample = image / N;
            column_gradients(
                grad.const_data_ptr<scalar_t>() + sample * num_cells * s.C,
                depth.const_data_ptr<scalar_t>(),
                context.const_data_ptr<scalar_t>(),
                cells.const_data_ptr<int32_t>(), num_cells, s, image, k % s.W,
                grad_depth.mutable_data_ptr<scalar_t>(),
                grad_context.mutable_data_ptr<scalar_t>());
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
