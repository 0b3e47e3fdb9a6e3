// Bindings of bev_pool.cu.
#include "bev_pool.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "../cpu/compute.h"
#include "binding.h"

namespace mmturbox {
namespace {

// `body(T(), Sum())` for the storage type and the type of its sums.
template <typename Body>
void dispatch(ScalarType type, const Body& body) {
  switch (type) {
    case ScalarType::Float:
      return body(float(), float());
    case ScalarType::Double:
      return body(double(), double());
    case ScalarType::Half:
      return body(torch::headeronly::Half(), float());
    case ScalarType::BFloat16:
      return body(torch::headeronly::BFloat16(), float());
    default:
      STD_TORCH_CHECK(false, "bev_pool: expected floating point");
  }
}

Tensor bev_cells(const Tensor& points_in, std::vector<double> lower,
                 std::vector<double> size, std::vector<int64_t> cells) {
  const Launch launch(points_in);
  Tensor points = compute_tensor(points_in);
  BevGrid grid;
  for (int k = 0; k < 3; ++k) {
    grid.lower[k] = lower[k];
    grid.size[k] = size[k];
    grid.cells[k] = cells[k];
  }
  std::vector<int64_t> shape;
  for (int64_t k = 0; k + 1 < points.dim(); ++k)
    shape.push_back(points.size(k));
  Tensor out = torch::stable::new_empty(points, shape, ScalarType::Int);
  MMTURBOX_DISPATCH_FLOAT(points.scalar_type(), "bev_cells", {
    bev_cells_cuda(points.const_data_ptr<scalar_t>(), out.numel(), grid,
                   out.mutable_data_ptr<int32_t>(), launch);
  });
  return out;
}

std::tuple<Tensor, Tensor, Tensor> bev_pool_intervals(const Tensor& cells_in,
                                                      int64_t num_cells) {
  const Launch launch(cells_in);
  Tensor cells = torch::stable::contiguous(cells_in);
  const int64_t B = cells.size(0), count = cells.numel();
  const int64_t map = std::max<int64_t>(cells.size(3) * cells.size(4), 1);
  const int64_t rows = B * num_cells;
  Tensor keys = torch::stable::new_empty(cells, {count});
  bev_pool_keys_cuda(cells.const_data_ptr<int32_t>(), count,
                     B == 0 ? 1 : std::max<int64_t>(count / B, 1), num_cells,
                     rows, keys.mutable_data_ptr<int32_t>(), launch);
  const auto sorted = stable_sort(keys);
  Tensor points = torch::stable::empty_like(keys);
  Tensor pixels = torch::stable::empty_like(keys);
  Tensor starts = torch::stable::new_empty(cells, {rows + 1});
  bev_pool_lists_cuda(sorted.first.const_data_ptr<int32_t>(),
                      sorted.second.const_data_ptr<int64_t>(), count,
                      std::max<int64_t>(cells.size(2) * map, 1), map, rows,
                      points.mutable_data_ptr<int32_t>(),
                      pixels.mutable_data_ptr<int32_t>(),
                      starts.mutable_data_ptr<int32_t>(), launch);
  return {points, pixels, starts};
}

Tensor bev_pool(const Tensor& depth_in, const Tensor& context_in,
                const Tensor& /*cells*/, const Tensor& points_in,
                const Tensor& pixels_in, const Tensor& starts_in) {
  const Launch launch(context_in);
  Tensor depth = torch::stable::contiguous(depth_in);
  Tensor context = torch::stable::contiguous(context_in);
  Tensor points = torch::stable::contiguous(points_in);
  Tensor pixels = torch::stable::contiguous(pixels_in);
  Tensor starts = torch::stable::contiguous(starts_in);
  const int64_t rows = starts.numel() - 1, C = context.size(4);
  Tensor out = torch::stable::new_empty(context, {rows, C});
  dispatch(context.scalar_type(), [&](auto type, auto) {
    using T = decltype(type);
    bev_pool_cuda(depth.const_data_ptr<T>(), context.const_data_ptr<T>(),
                  points.const_data_ptr<int32_t>(),
                  pixels.const_data_ptr<int32_t>(),
                  starts.const_data_ptr<int32_t>(), rows, C,
                  out.mutable_data_ptr<T>(), launch);
  });
  return out;
}

std::tuple<Tensor, Tensor> bev_pool_backward(const Tensor& grad_in,
                                             const Tensor& depth_in,
                                             const Tensor& context_in,
                                             const Tensor& cells_in) {
  const Launch launch(context_in);
  Tensor grad = torch::stable::contiguous(grad_in);
  Tensor depth = torch::stable::contiguous(depth_in);
  Tensor context = torch::stable::contiguous(context_in);
  Tensor cells = torch::stable::contiguous(cells_in);
  const int64_t B = depth.size(0), N = depth.size(1);
  const BevPoolShape shape{B * N,
                           std::max<int64_t>(N, 1),
                           depth.size(2),
                           depth.size(3),
                           depth.size(4),
                           context.size(4),
                           B == 0 ? 0 : grad.size(0) / B};
  const bool wide = context.scalar_type() == ScalarType::Double;
  // No channels: no kernel writes it.
  Tensor grad_depth = torch::stable::new_zeros(
      depth, {B, N, shape.depth, shape.height, shape.width},
      wide ? ScalarType::Double : ScalarType::Float);
  Tensor grad_context = torch::stable::empty_like(context);
  dispatch(context.scalar_type(), [&](auto type, auto sum) {
    using T = decltype(type);
    bev_pool_backward_cuda(
        grad.const_data_ptr<T>(), depth.const_data_ptr<T>(),
        context.const_data_ptr<T>(), cells.const_data_ptr<int32_t>(), shape,
        grad_depth.mutable_data_ptr<decltype(sum)>(),
        grad_context.mutable_data_ptr<T>(), launch);
  });
  return {in_type(grad_depth, depth.scalar_type()), grad_context};
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("bev_cells", TORCH_BOX(&bev_cells));
  m.impl("bev_pool_intervals", TORCH_BOX(&bev_pool_intervals));
  m.impl("bev_pool", TORCH_BOX(&bev_pool));
  m.impl("bev_pool_backward", TORCH_BOX(&bev_pool_backward));
}

}  // namespace mmturbox
