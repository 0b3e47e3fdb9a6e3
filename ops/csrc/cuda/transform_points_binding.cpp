// Binding of transform_points.cu.
#include "transform_points.h"

#include <algorithm>
#include <vector>

#include "../cpu/compute.h"
#include "binding.h"

namespace mmturbox {
namespace {

template <typename T>
Tensor merge(const std::vector<Tensor>& clouds,
             std::vector<SweepTask<T>> tasks, bool filtered, Stream stream) {
  const int64_t width = tasks[0].num_columns;
  int64_t N = 0;
  for (const auto& task : tasks) N += task.number;
  Tensor keep, place;
  int64_t kept = N;
  if (filtered && N > 0) {
    keep = torch::stable::new_empty(clouds[0], {N}, ScalarType::Int);
    int32_t* flag = keep.mutable_data_ptr<int32_t>();
    for (const auto& task : tasks) {
      keep_points_cuda(task, flag, stream);
      flag += task.number;
    }
    place = cumsum(keep);
    kept = read_int64(torch::stable::narrow(place, 0, N - 1, 1));
  }
  Tensor out = torch::stable::new_empty(clouds[0], {kept, width});
  int64_t first = 0;
  for (const auto& task : tasks) {
    const bool placed = place.defined();
    write_points_cuda(
        task, placed ? keep.const_data_ptr<int32_t>() + first : nullptr,
        placed ? place.const_data_ptr<int64_t>() + first : nullptr, first,
        out.mutable_data_ptr<T>(), stream);
    first += task.number;
  }
  return out;
}

Tensor transform_points(const std::vector<Tensor> clouds_in,
                        const Tensor& matrices_in, std::vector<double> lags,
                        std::vector<double> radii, std::vector<double> bounds,
                        std::vector<int64_t> columns, int64_t time_column) {
  STD_TORCH_CHECK(columns.size() <= kMaxColumns,
                  "transform_points: at most 32 columns on CUDA");
  const Launch launch(clouds_in[0]);
  std::vector<Tensor> clouds;
  for (const Tensor& cloud : clouds_in)
    clouds.push_back(compute_tensor(cloud));
  Tensor matrices = torch::stable::contiguous(matrices_in);
  const bool filtered =
      !bounds.empty() || std::any_of(radii.begin(), radii.end(),
                                     [](double r) { return r > 0; });
  Tensor out;
  MMTURBOX_DISPATCH_FLOAT(clouds[0].scalar_type(), "transform_points", {
    std::vector<SweepTask<scalar_t>> tasks;
    for (size_t s = 0; s < clouds.size(); ++s) {
      SweepTask<scalar_t> task{};
      task.points = clouds[s].const_data_ptr<scalar_t>();
      task.number = clouds[s].size(0);
      task.width = clouds[s].size(1);
      task.matrix = matrices.const_data_ptr<double>() + s * 12;
      task.lag = static_cast<scalar_t>(lags[s]);
      task.radius = static_cast<scalar_t>(radii[s]);
      task.ranged = !bounds.empty();
      for (size_t k = 0; k < bounds.size(); ++k)
        task.range[k] = static_cast<float>(bounds[k]);
      std::copy(columns.begin(), columns.end(), task.columns);
      task.num_columns = columns.size();
      task.time_column = time_column;
      tasks.push_back(task);
    }
    out = merge(clouds, tasks, filtered, launch);
  });
  return in_type(out, clouds_in[0].scalar_type());
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("transform_points", TORCH_BOX(&transform_points));
}

}  // namespace mmturbox
