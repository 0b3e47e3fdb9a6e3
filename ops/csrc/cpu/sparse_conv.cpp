// CPU kernels of mmturbox::sparse_conv{,_weight_grad}. Of the former, tiles of
// output rows stay in the cache while all taps add to their sums.
#include "sparse_blocks.h"
#include "sparse_weight_grad.h"

namespace mmturbox {
namespace {

constexpr int64_t kPanel = 256;  // bytes of output channels read together
constexpr int64_t kDepth = 128;  // input channels of a block
// From one row to the next: addresses that differ by 4096 bytes get in the way
// of one another.
constexpr int64_t kPitch = kDepth + 16;
constexpr int64_t kTileBytes = 128 << 10;  // sums of a tile

template <typename T>
struct ConvTask {
  Reads<T> in;
  const T* weight;  // (taps, panels, channels, columns of the panel)
  int64_t stride;   // out_channels, padded
  int64_t out_channels;
  const T* bias;    // (stride,)
  bool relu;
  T* out;           // (outputs, out_channels)
};

// out[r] += a[r] @ weight, R rows and V vectors wide.
template <typename T, int kBytes, int R, int V>
MMTURBOX_INLINE void multiply(const T* a, int64_t depth, const T* weight,
                              int64_t columns, int64_t stride, T* sums,
                              const int32_t* to) {
  using Vec = typename Lanes<T, kBytes>::Vec;
  constexpr int L = Lanes<T, kBytes>::count;
  Vec acc[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      acc[r][v] = *reinterpret_cast<const Vec*>(sums + to[r] * stride + v * L);
  for (int64_t i = 0; i < depth; ++i) {
    Vec w[V];
    for (int v = 0; v < V; ++v)
      w[v] = *reinterpret_cast<const Vec*>(weight + i * columns + v * L);
    for (int r = 0; r < R; ++r) {
      const T x = a[r * kPitch + i];
      for (int v = 0; v < V; ++v) acc[r][v] += x * w[v];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      *reinterpret_cast<Vec*>(sums + to[r] * stride + v * L) = acc[r][v];
}

// One tap over the `count` pairs of a tile, V vectors from column `first`.
template <typename T, int kBytes, int R, int V>
MMTURBOX_INLINE void conv_columns(const ConvTask<T>& task, int64_t tap,
                                  int64_t first, int64_t count,
                                  Scratch<T>& scratch) {
  const int64_t channels = task.in.channels, stride = task.stride;
  const int64_t panel = first - first % (kPanel / sizeof(T));
  const int64_t columns =
      std::min<int64_t>(kPanel / sizeof(T), stride - panel);
  const T* weight = task.weight + (tap * stride + panel) * channels + first -
                    panel;
  T* rows = scratch.rows.data();
  const int32_t *from = scratch.from.data(), *to = scratch.to.data();
  for (int64_t i = 0; i < count; i += R) {
    for (int64_t c = 0; c < channels; c += kDepth) {
      const int64_t depth = std::min(kDepth, channels - c);
      for (int r = 0; r < R; ++r)
        copy_row<T, kBytes>(task.in.rows, from[i + r], channels, c, depth,
                            task.in.chain_of(tap), rows + r * kPitch);
      multiply<T, kBytes, R, V>(rows, depth, weight + c * columns, columns,
                                stride, scratch.sums.data() + first, to + i);
    }
  }
}

// Output rows [begin, end). A row adds up its taps in order and each tap's
// channels in order, wherever the tile begins.
template <typename T, int kBytes>
MMTURBOX_INLINE void conv_tile(const ConvTask<T>& task, int64_t begin,
                               int64_t end, Scratch<T>& scratch) {
  constexpr int L = Lanes<T, kBytes>::count;
  constexpr int kWide = kBytes == 64 ? 4 : 2;
  constexpr int kNarrowRows = kBytes == 64 ? 12 : 6;
  const int64_t stride = task.stride;
  T* sums = scratch.sums.data();
  for (int64_t m = 0; m <= end - begin; ++m)
    std::copy(task.bias, task.bias + stride, sums + m * stride);
  for (int64_t tap = 0; tap < task.in.taps; ++tap) {
    const int64_t count =
        collect<kBytes>(task.in.table + tap * task.in.outputs, begin, end,
                scratch.from.data(), scratch.to.data());
    for (int64_t c = 0; count > 0 && c < stride;) {
      if (kWide == 4 && stride - c >= 4 * L) {
        conv_columns<T, kBytes, 6, kWide>(task, tap, c, count, scratch);
        c += 4 * L;
      } else if (stride - c >= 2 * L) {
        conv_columns<T, kBytes, kNarrowRows, 2>(task, tap, c, count, scratch);
        c += 2 * L;
      } else {
        conv_columns<T, kBytes, 12, 1>(task, tap, c, count, scratch);
        c += L;
      }
    }
  }
  for (int64_t m = begin; m < end; ++m) {
    const T* sum = sums + (m - begin) * stride;
    T* out = task.out + m * task.out_channels;
    for (int64_t c = 0; c < task.out_channels; ++c)
      out[c] = task.relu && sum[c] < 0 ? T(0) : sum[c];
  }
}

#ifdef MMTURBOX_V4
template <typename T>
MMTURBOX_V4 void conv_tile_v4(const ConvTask<T>& task, int64_t begin,
                              int64_t end, Scratch<T>& scratch) {
  conv_tile<T, 64>(task, begin, end, scratch);
}
template <typename T>
MMTURBOX_V3 void conv_tile_v3(const ConvTask<T>& task, int64_t begin,
                              int64_t end, Scratch<T>& scratch) {
  conv_tile<T, 32>(task, begin, end, scratch);
}
#endif
template <typename T>
void conv_tile_plain(const ConvTask<T>& task, int64_t begin, int64_t end,
                     Scratch<T>& scratch) {
  conv_tile<T, 16>(task, begin, end, scratch);
}
template <typename T>
void convolve(const ConvTask<T>& task) {
  const int64_t row_bytes = task.stride * sizeof(T);
  const int64_t tile =
      std::clamp<int64_t>(kTileBytes / row_bytes, 64, 1024);
#ifdef MMTURBOX_V4
  const auto run =
      for_this_cpu(conv_tile_v4<T>, conv_tile_v3<T>, conv_tile_plain<T>);
#else
  const auto run = conv_tile_plain<T>;
#endif
  for_each<T>((task.in.outputs + tile - 1) / tile,
              [&](int64_t i, Scratch<T>& scratch) {
                scratch.sums.resize((tile + 1) * task.stride);
                scratch.rows.resize(kMaxRows * kPitch);
                scratch.from.resize(tile + kMaxRows);
                scratch.to.resize(tile + kMaxRows);
                run(task, i * tile, std::min((i + 1) * tile, task.in.outputs),
                    scratch);
              });
}

// (taps, channels, width) as ConvTask wants it, filled up with zeros.
template <typename T>
std::vector<T> pack_weight(const T* weight, int64_t taps, int64_t channels,
                           int64_t width) {
  const int64_t stride = padded<T>(width), most = kPanel / sizeof(T);
  std::vector<T> out(taps * channels * stride, T(0));
  for (int64_t tap = 0; tap < taps; ++tap)
    for (int64_t panel = 0; panel < width; panel += most) {
      const int64_t columns = std::min(most, stride - panel);
      T* to = out.data() + (tap * stride + panel) * channels;
      for (int64_t c = 0; c < channels; ++c)
        std::copy_n(weight + (tap * channels + c) * width + panel,
                    std::min(columns, width - panel), to + c * columns);
    }
  return out;
}

Tensor sparse_conv(const Tensor& features_in, const Tensor& weight_in,
                   const std::optional<Tensor>& bias_in,
                   const Tensor& table_in, const std::optional<Tensor>&,
                   const std::optional<Tensor>& chain_in,
                   const std::optional<Tensor>&, int64_t unchained,
                   bool relu) {
  const Tensor features = compute_tensor(features_in);
  const Tensor weight = compute_tensor(weight_in);
  const Tensor table = torch::stable::contiguous(table_in);
  const std::optional<Tensor> chain = dense(chain_in);
  const int64_t M = table.size(1), C = weight.size(2);
  Tensor out = torch::stable::new_empty(features, {M, C});
  MMTURBOX_DISPATCH_FLOAT(features.scalar_type(), "sparse_conv", {
    const int64_t stride = padded<scalar_t>(C);
    std::vector<scalar_t> bias(stride, scalar_t(0));
    const std::vector<scalar_t> packed = pack_weight(
        weight.const_data_ptr<scalar_t>(), table.size(0), weight.size(1), C);
    if (bias_in) {
      const Tensor b = compute_tensor(*bias_in);
      std::copy(b.const_data_ptr<scalar_t>(),
                b.const_data_ptr<scalar_t>() + C, bias.begin());
    }
    convolve<scalar_t>({reads<scalar_t>(features, table, chain, unchained),
                        packed.data(), stride, C, bias.data(), relu,
                        out.mutable_data_ptr<scalar_t>()});
  });
  return in_type(out, features_in.scalar_type());
}

Tensor sparse_conv_weight_grad(const Tensor& features_in,
                               const Tensor& grad_in, const Tensor& table_in,
                               const std::optional<Tensor>& chain_in,
                               int64_t unchained) {
  const Tensor features = compute_tensor(features_in);
  const Tensor grad = compute_tensor(grad_in);
  const Tensor table = torch::stable::contiguous(table_in);
  const std::optional<Tensor> chain = dense(chain_in);
  const int64_t C = grad.size(1);
  Tensor out = torch::stable::new_empty(
      features, {table.size(0), features.size(1), C});
  MMTURBOX_DISPATCH_FLOAT(features.scalar_type(), "sparse_conv_weight_grad", {
    weight_grad<scalar_t>({reads<scalar_t>(features, table, chain, unchained),
                           grad.const_data_ptr<scalar_t>(), C,
                           padded<scalar_t>(C),
                           out.mutable_data_ptr<scalar_t>()});
  });
  return in_type(out, features_in.scalar_type());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("sparse_conv", TORCH_BOX(&sparse_conv));
  m.impl("sparse_conv_weight_grad", TORCH_BOX(&sparse_conv_weight_grad));
}

}  // namespace mmturbox
