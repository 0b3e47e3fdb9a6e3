// CPU kernels of mmturbox::sparse_{max_pool,to_dense} and their gradients.
#include "../common/sparse_pool.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "../common/sparse_layers.h"
#include "compute.h"

namespace mmturbox {
namespace {

constexpr int64_t kGrain = 256;

// Output rows [begin, end) of a pooling of `channels` channels.
template <typename T>
MMTURBOX_CLONES void pool_rows(const T* rows, int64_t channels,
                               const int32_t* table, int64_t taps,
                               int64_t outputs, const int32_t* chain,
                               int64_t begin, int64_t end, T* out) {
  for (int64_t m = begin; m < end; ++m) {
    T* to = out + m * channels;
    bool any = false;
    for (int64_t k = 0; k < taps; ++k)
      for (int64_t r = table[k * outputs + m]; r >= 0;
           r = chain ? chain[r] : -1) {
        const T* row = rows + r * channels;
        if (!any) {
          for (int64_t c = 0; c < channels; ++c) to[c] = row[c];
        } else {
          for (int64_t c = 0; c < channels; ++c)
            to[c] = pool_takes(row[c], to[c]) ? row[c] : to[c];
        }
        any = true;
      }
    if (!any) std::fill(to, to + channels, T(0));
  }
}

template <typename T>
MMTURBOX_CLONES void pool_grad_rows(const T* rows, const T* output,
                                    const T* grad, int64_t channels,
                                    const int32_t* reached, int64_t taps,
                                    int64_t inputs, int64_t begin,
                                    int64_t end, T* out) {
  for (int64_t n = begin; n < end; ++n) {
    const T* row = rows + n * channels;
    T* to = out + n * channels;
    std::fill(to, to + channels, T(0));
    for (int64_t k = 0; k < taps; ++k) {
      const int64_t m = reached[k * inputs + n];
      if (m < 0) continue;
      const T *most = output + m * channels, *from = grad + m * channels;
      for (int64_t c = 0; c < channels; ++c)
        to[c] += most[c] == row[c] ? from[c] : T(0);
    }
  }
}

Tensor sparse_max_pool(const Tensor& features_in, const Tensor& table_in,
                       const Tensor&, const std::optional<Tensor>& chain_in) {
  const Tensor features = compute_tensor(features_in);
  const Tensor table = torch::stable::contiguous(table_in);
  std::optional<Tensor> chain;
  if (chain_in) chain = torch::stable::contiguous(*chain_in);
  const int64_t C = features.size(1), K = table.size(0), M = table.size(1);
  Tensor out = torch::stable::new_empty(features, {M, C});
  MMTURBOX_DISPATCH_FLOAT(features.scalar_type(), "sparse_max_pool", {
    const auto* rows = features.const_data_ptr<scalar_t>();
    const int32_t* next = chain ? chain->const_data_ptr<int32_t>() : nullptr;
    torch::stable::parallel_for(0, M, kGrain, [&](int64_t begin,
                                                  int64_t end) {
      pool_rows(rows, C, table.const_data_ptr<int32_t>(), K, M, next, begin,
                end, out.mutable_data_ptr<scalar_t>());
    });
  });
  return in_type(out, features_in.scalar_type());
}

Tensor sparse_max_pool_grad(const Tensor& features_in,
                            const Tensor& output_in, const Tensor& grad_in,
                            const Tensor& reached_in) {
  const Tensor features = compute_tensor(features_in);
  const Tensor output = compute_tensor(output_in);
  const Tensor grad = compute_tensor(grad_in);
  const Tensor reached = torch::stable::contiguous(reached_in);
  const int64_t C = features.size(1), K = reached.size(0);
  const int64_t N = features.size(0);
  Tensor out = torch::stable::new_empty(features, {N, C});
  MMTURBOX_DISPATCH_FLOAT(features.scalar_type(), "sparse_max_pool_grad", {
    torch::stable::parallel_for(0, N, kGrain, [&](int64_t begin,
                                                  int64_t end) {
      pool_grad_rows(features.const_data_ptr<scalar_t>(),
                     output.const_data_ptr<scalar_t>(),
                     grad.const_data_ptr<scalar_t>(), C,
                     reached.const_data_ptr<int32_t>(), K, N, begin, end,
                     out.mutable_data_ptr<scalar_t>());
    });
  });
  return in_type(out, features_in.scalar_type());
}

// A plane (sample, channel) of the dense form is a gather by `owner`; values
// are moved as integers of their size, whatever they stand for.
template <typename T>
void fill_planes(const T* features, const int32_t* owner, int64_t batch,
                 int64_t channels, int64_t cells, T* out) {
  torch::stable::parallel_for(
      0, batch * channels, 1, [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane) {
          const int32_t* mine = owner + plane / channels * cells;
          const int64_t c = plane % channels;
          T* to = out + plane * cells;
          for (int64_t v = 0; v < cells; ++v)
            to[v] = mine[v] < 0 ? T(0) : features[mine[v] * channels + c];
        }
      });
}

template <typename T>
void read_planes(const T* grad, const int64_t* keys, const int32_t* owner,
                 int64_t rows, int64_t channels, int64_t cells, T* out) {
  torch::stable::parallel_for(
      0, rows, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) {
          const int64_t key = keys[n];
          T* to = out + n * channels;
          if (key < 0 || owner[key] != n) {
            std::fill(to, to + channels, T(0));
            continue;
          }
          const T* from =
              grad + key / cells * channels * cells + key % cells;
          for (int64_t c = 0; c < channels; ++c) to[c] = from[c * cells];
        }
      });
}

// FUNCTION<integer of the size of TYPE>(...)
#define MMTURBOX_BY_SIZE(TYPE, FUNCTION, ...)        \
  do {                                               \
    if ((TYPE) == ScalarType::Double)                \
      FUNCTION<int64_t>(__VA_ARGS__);                \
    else if ((TYPE) == ScalarType::Float)            \
      FUNCTION<int32_t>(__VA_ARGS__);                \
    else                                             \
      FUNCTION<int16_t>(__VA_ARGS__);                \
  } while (0)

template <typename T>
void to_dense(const Tensor& features, const Tensor& owner, int64_t batch,
              int64_t cells, Tensor& out) {
  fill_planes(static_cast<const T*>(features.data_ptr()),
              owner.const_data_ptr<int32_t>(), batch, features.size(1), cells,
              static_cast<T*>(out.data_ptr()));
}

template <typename T>
void from_dense(const Tensor& grad, const std::vector<int64_t>& keys,
                const Tensor& owner, int64_t cells, Tensor& out) {
  read_planes(static_cast<const T*>(grad.data_ptr()), keys.data(),
              owner.const_data_ptr<int32_t>(), out.size(0), out.size(1),
              cells, static_cast<T*>(out.data_ptr()));
}

std::tuple<Tensor, Tensor> sparse_to_dense(const Tensor& features_in,
                                           const Tensor& coords_in,
                                           int64_t batch_size,
                                           std::vector<int64_t> shape) {
  const Tensor features = torch::stable::contiguous(features_in);
  const Tensor coords = torch::stable::contiguous(coords_in);
  const SparseGrid grid =
      make_grid(batch_size, shape.data(), shape.size());
  int64_t cells = 1;
  for (const int64_t size : shape) cells *= size;
  Tensor owner = torch::stable::new_empty(coords, {batch_size * cells});
  int32_t* rows = owner.mutable_data_ptr<int32_t>();
  std::fill(rows, rows + batch_size * cells, -1);
  for (int64_t n = coords.size(0) - 1; n >= 0; --n) {
    const int64_t key = grid.key_of_row(coords.const_data_ptr<int32_t>() +
                                        n * (grid.axes + 1));
    if (key >= 0) rows[key] = static_cast<int32_t>(n);
  }
  std::vector<int64_t> size{batch_size, features.size(1)};
  size.insert(size.end(), shape.begin(), shape.end());
  Tensor out = torch::stable::new_empty(features, size);
  MMTURBOX_BY_SIZE(features.scalar_type(), to_dense, features, owner,
                   batch_size, cells, out);
  return {out, owner};
}

Tensor sparse_to_dense_grad(const Tensor& grad_in, const Tensor& coords_in,
                            const Tensor& owner_in) {
  const Tensor grad = torch::stable::contiguous(grad_in);
  const Tensor coords = torch::stable::contiguous(coords_in);
  const Tensor owner = torch::stable::contiguous(owner_in);
  const int64_t N = coords.size(0);
  const SparseGrid grid =
      make_grid(grad.size(0), grad.sizes().data() + 2, grad.dim() - 2);
  int64_t cells = 1;
  for (int a = 0; a < grid.axes; ++a) cells *= grid.size[a];
  std::vector<int64_t> keys(N);
  for (int64_t n = 0; n < N; ++n)
    keys[n] = grid.key_of_row(coords.const_data_ptr<int32_t>() +
                              n * (grid.axes + 1));
  Tensor out = torch::stable::new_empty(grad, {N, grad.size(1)});
  MMTURBOX_BY_SIZE(grad.scalar_type(), from_dense, grad, keys, owner, cells,
                   out);
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("sparse_max_pool", TORCH_BOX(&sparse_max_pool));
  m.impl("sparse_max_pool_grad", TORCH_BOX(&sparse_max_pool_grad));
  m.impl("sparse_to_dense", TORCH_BOX(&sparse_to_dense));
  m.impl("sparse_to_dense_grad", TORCH_BOX(&sparse_to_dense_grad));
}

}  // namespace mmturbox
