// CPU kernel of mmturbox::transform_points.
#include "../common/transform_points.h"
#include "../common/stable.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "compute.h"

namespace mmturbox {
namespace {

constexpr int64_t kChunk = 4096;  // points

template <typename T>
struct Sweep {
  const T* points;
  int64_t number, width;
  std::array<double, 12> matrix;
  bool copied;  // the matrix is the identity
  T lag, radius;
};

template <typename T>
struct Output {
  std::vector<T> range;  // empty: no filter
  std::vector<int64_t> columns;
  int64_t time_column;
};

// Points [begin, end) of a sweep, one row after the other; returns how many
// were kept.
template <typename T>
int64_t move_chunk(const Sweep<T>& sweep, const Output<T>& output,
                   int64_t begin, int64_t end, T* out) {
  const int64_t width = output.columns.size();
  T* to = out;
  for (int64_t i = begin; i < end; ++i) {
    const T* point = sweep.points + i * sweep.width;
    if (is_close(point, sweep.radius)) continue;
    T moved[3] = {point[0], point[1], point[2]};
    if (!sweep.copied) move_point(point, sweep.matrix.data(), moved);
    if (!output.range.empty() && !in_range(moved, output.range.data()))
      continue;
    for (int64_t k = 0; k < width; ++k) {
      const int64_t column = output.columns[k];
      to[k] = column < 3                     ? moved[column]
              : column == output.time_column ? sweep.lag
                                             : point[column];
    }
    to += width;
  }
  return (to - out) / width;
}

template <typename T>
std::vector<Sweep<T>> load(const std::vector<Tensor>& clouds,
                           const Tensor& matrices,
                           const std::vector<double>& lags,
                           const std::vector<double>& radii) {
  std::vector<Sweep<T>> sweeps;
  for (size_t s = 0; s < clouds.size(); ++s) {
    Sweep<T> sweep;
    sweep.points = clouds[s].const_data_ptr<T>();
    sweep.number = clouds[s].size(0);
    sweep.width = clouds[s].size(1);
    std::copy_n(matrices.const_data_ptr<double>() + s * 12, 12,
                sweep.matrix.begin());
    sweep.copied = is_identity(sweep.matrix.data());
    sweep.lag = static_cast<T>(lags[s]);
    sweep.radius = static_cast<T>(radii[s]);
    sweeps.push_back(sweep);
  }
  return sweeps;
}

struct Chunk {
  size_t sweep;
  int64_t begin, end, row, kept;  // `row`: where its room starts
};

// A chunk has room for all of its points; the gaps are closed afterwards.
template <typename T>
int64_t merge(const std::vector<Sweep<T>>& sweeps, const Output<T>& output,
              T* out) {
  std::vector<Chunk> chunks;
  int64_t row = 0;
  for (size_t s = 0; s < sweeps.size(); ++s)
    for (int64_t i = 0; i < sweeps[s].number; i += kChunk) {
      const int64_t end = std::min(i + kChunk, sweeps[s].number);
      chunks.push_back({s, i, end, row, 0});
      row += end - i;
    }
  const int64_t width = output.columns.size();
  torch::stable::parallel_for(
      0, chunks.size(), 2, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) {
          Chunk& chunk = chunks[c];
          chunk.kept =
              move_chunk(sweeps[chunk.sweep], output, chunk.begin, chunk.end,
                         out + chunk.row * width);
        }
      });
  int64_t kept = 0;
  for (const Chunk& chunk : chunks) {
    if (kept != chunk.row)
      std::copy_n(out + chunk.row * width, chunk.kept * width,
                  out + kept * width);
    kept += chunk.kept;
  }
  return kept;
}

Tensor transform_points(const std::vector<Tensor> clouds_in,
                        const Tensor& matrices_in, std::vector<double> lags,
                        std::vector<double> radii, std::vector<double> bounds,
                        std::vector<int64_t> columns, int64_t time_column) {
  std::vector<Tensor> clouds;
  int64_t N = 0;
  for (const Tensor& cloud : clouds_in) {
    clouds.push_back(compute_tensor(cloud));
    N += cloud.size(0);
  }
  Tensor matrices = torch::stable::contiguous(matrices_in);
  const int64_t width = columns.size();
  Tensor out = torch::stable::new_empty(clouds[0], {N, width});
  int64_t kept = 0;
  MMTURBOX_DISPATCH_FLOAT(clouds[0].scalar_type(), "transform_points", {
    Output<scalar_t> output;
    for (double bound : bounds)
      output.range.push_back(static_cast<float>(bound));
    output.columns = columns;
    output.time_column = time_column;
    kept = merge(load<scalar_t>(clouds, matrices, lags, radii), output,
                 out.mutable_data_ptr<scalar_t>());
  });
  if (kept < N) {
    // A tensor of its own: a view would hold on to the room of all points.
    Tensor part = torch::stable::new_empty(out, {kept, width});
    torch::stable::copy_(part, torch::stable::narrow(out, 0, 0, kept));
    out = part;
  }
  return in_type(out, clouds_in[0].scalar_type());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("transform_points", TORCH_BOX(&transform_points));
}

}  // namespace mmturbox
