// CPU kernels of mmturbox::deform_conv2d and its backward: samples go into a
// tile of columns that stays in the caches, then into a product.
#include "../common/deform_conv.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "../common/matmul.h"
#include "../common/stable.h"
#include "compute.h"
#include "gather.h"

namespace mmturbox {
namespace {

constexpr int64_t kTileBytes = 4 << 20;
// Runs of images whose gradients of the weight are summed apart.
constexpr int64_t kParts = 8;

template <typename T>
struct Inputs {
  const T *input, *offset, *mask;  // input: (B, H, W, C); mask may be null.
  DeformShape shape;
  const T* zeros;  // as many as there are channels
};

// Calls visit(first channel, channels, place in the columns) for the parts of
// a group of offsets that lie in one group of the convolution. A tile of `n`
// positions holds (groups, n, taps, channels of a group).
template <typename Visit>
MMTURBOX_INLINE void each_part(const DeformShape& s, int64_t shared,
                               int64_t tap, int64_t at, int64_t n,
                               const Visit& visit) {
  const int64_t width = s.group_width();
  const int64_t end = (shared + 1) * s.shared_width();
  for (int64_t c = shared * s.shared_width(); c < end;) {
    const int64_t group = c / width;
    const int64_t next = std::min(end, (group + 1) * width);
    visit(c, next - c,
          ((group * n + at) * s.taps() + tap) * width + c % width);
    c = next;
  }
}

template <typename T>
MMTURBOX_INLINE bool tap_at(const Inputs<T>& in, int64_t image,
                            int64_t shared, int64_t tap, int64_t position,
                            Tap<T>* out) {
  const DeformShape& s = in.shape;
  const T* offset = in.offset + s.offset_at(image, shared, tap, position);
  const BilinearRead<T> read =
      deform_read(s, tap, position, offset[0], offset[s.positions()]);
  if (!read.inside) return false;
  for (int k = 0; k < 4; ++k) {
    const int64_t cell = read.cell(k, s.height, s.width);
    out->at[k] = cell < 0 ? -1 : cell * s.channels;
    out->weight[k] = read.weight(k);
  }
  out->lx = read.lx;
  out->ly = read.ly;
  return true;
}

// Columns of the positions [first, first + n) of an image.
template <typename T>
MMTURBOX_INLINE void column_loop(const Inputs<T>& in, int64_t image,
                                 int64_t first, int64_t n, T* columns) {
  const DeformShape& s = in.shape;
  const T* map = in.input + image * s.height * s.width * s.channels;
  std::fill(columns, columns + n * s.taps() * s.channels, T(0));
  for (int64_t at = 0; at < n; ++at)
    for (int64_t d = 0; d < s.deform_groups; ++d)
      for (int64_t k = 0; k < s.taps(); ++k) {
        Tap<T> tap;
        if (!tap_at(in, image, d, k, first + at, &tap)) continue;
        const T share =
            in.mask ? in.mask[s.mask_at(image, d, k, first + at)] : T(1);
        each_part(s, d, k, at, n, [&](int64_t c, int64_t width, int64_t to) {
          gather(map + c, in.zeros, &tap, 1, &share, 1, width, columns + to);
        });
      }
}

template <typename T>
struct Gradients {
  T *input, *offset, *mask;  // input: (B, H, W, C)
};

// From the gradients of the columns; adds to that of the input.
template <typename T>
MMTURBOX_INLINE void gradient_loop(const Inputs<T>& in, int64_t image,
                                   int64_t first, int64_t n, const T* columns,
                                   const Gradients<T>& out, T* waste) {
  const DeformShape& s = in.shape;
  const int64_t start = image * s.height * s.width * s.channels;
  for (int64_t at = 0; at < n; ++at)
    for (int64_t d = 0; d < s.deform_groups; ++d)
      for (int64_t k = 0; k < s.taps(); ++k) {
        const int64_t m = s.mask_at(image, d, k, first + at);
        const T share = in.mask ? in.mask[m] : T(1);
        T dot[4] = {}, grad_mask = 0, grad_y = 0, grad_x = 0;
        Tap<T> tap;
        if (tap_at(in, image, d, k, first + at, &tap)) {
          each_part(s, d, k, at, n,
                    [&](int64_t c, int64_t width, int64_t from) {
                      T part[4];
                      scatter(in.input + start + c, out.input + start + c,
                              in.zeros, waste, tap, share, columns + from,
                              width, part);
                      for (int j = 0; j < 4; ++j) dot[j] += part[j];
                    });
          for (int j = 0; j < 4; ++j) grad_mask += tap.weight[j] * dot[j];
          grad_y = share * bilinear_slope_y(tap.lx, dot);
          grad_x = share * bilinear_slope_x(tap.ly, dot);
        }
        const int64_t o = s.offset_at(image, d, k, first + at);
        out.offset[o] = grad_y;
        out.offset[o + s.positions()] = grad_x;
        if (in.mask) out.mask[m] = grad_mask;
      }
}

#define MMTURBOX_LOOPS(T)                                                   \
  MMTURBOX_CLONES void fill_columns(const Inputs<T>& in, int64_t image,     \
                                    int64_t first, int64_t n, T* columns) { \
    column_loop(in, image, first, n, columns);                              \
  }                                                                         \
  MMTURBOX_CLONES void spread_columns(                                      \
      const Inputs<T>& in, int64_t image, int64_t first, int64_t n,         \
      const T* columns, const Gradients<T>& out, T* waste) {                \
    gradient_loop(in, image, first, n, columns, out, waste);                \
  }
MMTURBOX_LOOPS(float)
MMTURBOX_LOOPS(double)
#undef MMTURBOX_LOOPS

DeformShape make_shape(const Tensor& input, const Tensor& offset,
                       const Tensor& weight,
                       const std::vector<int64_t>& stride,
                       const std::vector<int64_t>& padding,
                       const std::vector<int64_t>& dilation, int64_t groups,
                       int64_t deform_groups) {
  return {input.size(0), input.size(1),  input.size(2),  input.size(3),
          weight.size(0), weight.size(2), weight.size(3), offset.size(2),
          offset.size(3), stride[0],      stride[1],      padding[0],
          padding[1],     dilation[0],    dilation[1],    groups,
          deform_groups};
}

int64_t tile_of(const DeformShape& s, int64_t element_size) {
  const int64_t row = s.taps() * s.channels * element_size;
  const int64_t rows = kTileBytes / std::max<int64_t>(row, 1);
  return std::min(s.positions(),
                  std::max<int64_t>(16, std::min<int64_t>(rows, 1024)));
}

Tensor channels_last(const Tensor& map) {
  using torch::stable::transpose;
  return torch::stable::contiguous(transpose(transpose(map, 1, 2), 2, 3));
}

// (O, C / groups, taps) -> (O, taps * (C / groups)).
Tensor tap_major(const Tensor& weight) {
  const int64_t taps = weight.size(2) * weight.size(3);
  const std::vector<int64_t> flat{weight.size(0), weight.size(1), taps};
  const std::vector<int64_t> rows{weight.size(0), weight.size(1) * taps};
  Tensor turned = torch::stable::contiguous(torch::stable::transpose(
      torch::stable::reshape(weight, flat), 1, 2));
  return torch::stable::reshape(turned, rows);
}

// All inputs in one floating type, as the kernels read them.
struct Prepared {
  Tensor input, offset, mask, weight, zeros;
  DeformShape shape;
  bool modulated;

  Prepared(const Tensor& input_in, const Tensor& offset_in,
           const std::optional<Tensor>& mask_in, const Tensor& weight_in,
           const DeformShape& shape)
      : input(channels_last(compute_tensor(input_in))),
        offset(compute_tensor(offset_in)),
        mask(compute_tensor(mask_in ? *mask_in : offset_in)),
        weight(detached(tap_major(compute_tensor(weight_in)))),
        zeros(torch::stable::new_zeros(input, {shape.channels})),
        shape(shape),
        modulated(mask_in.has_value()) {}

  template <typename T>
  Inputs<T> get() const {
    return {input.const_data_ptr<T>(), offset.const_data_ptr<T>(),
            modulated ? mask.const_data_ptr<T>() : nullptr, shape,
            zeros.const_data_ptr<T>()};
  }
};

// Rows [start, start + count) of a matrix.
Tensor rows_of(Tensor matrix, int64_t start, int64_t count) {
  return torch::stable::narrow(matrix, 0, start, count);
}

Tensor block_of(Tensor matrix, int64_t row, int64_t rows, int64_t column,
                int64_t columns) {
  Tensor part = rows_of(matrix, row, rows);
  return torch::stable::narrow(part, 1, column, columns);
}

Tensor deform_conv2d(const Tensor& input_in, const Tensor& offset_in,
                     std::optional<Tensor> mask_in, const Tensor& weight_in,
                     std::vector<int64_t> stride,
                     std::vector<int64_t> padding,
                     std::vector<int64_t> dilation, int64_t groups,
                     int64_t deform_groups) {
  const Prepared in(input_in, offset_in, mask_in, weight_in,
                    make_shape(input_in, offset_in, weight_in, stride,
                               padding, dilation, groups, deform_groups));
  const DeformShape& s = in.shape;
  const int64_t P = s.positions(), out_width = s.out_channels / groups;
  const int64_t depth = s.taps() * s.group_width();
  const int64_t tile =
      tile_of(s, in.input.scalar_type() == ScalarType::Double ? 8 : 4);
  Tensor out = torch::stable::new_empty(
      in.input, {s.batch, s.out_channels, s.out_h, s.out_w});
  if (out.numel() == 0) return in_type(out, input_in.scalar_type());
  const std::vector<int64_t> flat{s.batch * s.out_channels, P};
  Tensor rows = torch::stable::view(out, flat);
  const int64_t tiles = (P + tile - 1) / tile;
  MMTURBOX_DISPATCH_FLOAT(in.input.scalar_type(), "deform_conv2d", {
    const Inputs<scalar_t> inputs = in.get<scalar_t>();
    torch::stable::parallel_for(
        0, s.batch * tiles, 1, [&](int64_t begin, int64_t end) {
          Tensor columns =
              torch::stable::new_empty(in.input, {groups * tile, depth});
          for (int64_t k = begin; k < end; ++k) {
            const int64_t image = k / tiles, first = k % tiles * tile;
            const int64_t n = std::min(tile, P - first);
            fill_columns(inputs, image, first, n,
                         columns.mutable_data_ptr<scalar_t>());
            for (int64_t g = 0; g < groups; ++g)
              multiply(rows_of(in.weight, g * out_width, out_width),
                       torch::stable::transpose(
                           rows_of(columns, g * n, n), 0, 1),
                       block_of(rows, image * s.out_channels + g * out_width,
                                out_width, first, n));
          }
        });
  });
  return in_type(out, input_in.scalar_type());
}

// The gradients of a run of images; what it needs and where they go.
struct Backward {
  const Prepared& in;
  Tensor grad;  // (B * O, positions)
  Tensor grad_input, grad_offset, grad_mask;
  bool with_input, with_weight;
  int64_t tile;

  template <typename T>
  void add_weight(const Tensor& grads, const Tensor& columns, Tensor product,
                  T* sum) const {
    multiply(grads, columns, product);
    const T* values = product.const_data_ptr<T>();
    for (int64_t i = 0; i < product.numel(); ++i) sum[i] += values[i];
  }

  // `sum` is the gradient of the weight, (O, taps * (C / groups)).
  template <typename T>
  void run(int64_t begin, int64_t end, T* sum) const {
    const DeformShape& s = in.shape;
    const Inputs<T> inputs = in.get<T>();
    const int64_t P = s.positions(), width = s.out_channels / s.groups;
    const int64_t depth = s.taps() * s.group_width();
    Tensor columns =
        torch::stable::new_empty(in.input, {s.groups * tile, depth});
    Tensor product = torch::stable::new_empty(in.input, {width, depth});
    std::vector<T> waste(s.channels);
    Gradients<T> out{};
    if (with_input)
      out = {pointer<T>(grad_input), pointer<T>(grad_offset),
             in.modulated ? pointer<T>(grad_mask) : nullptr};
    for (int64_t image = begin; image < end; ++image)
      for (int64_t first = 0; first < P; first += tile) {
        const int64_t n = std::min(tile, P - first);
        const auto grads = [&](int64_t g) {
          return block_of(grad, image * s.out_channels + g * width, width,
                          first, n);
        };
        if (with_weight) {
          fill_columns(inputs, image, first, n, pointer<T>(columns));
          for (int64_t g = 0; g < s.groups; ++g)
            add_weight(grads(g), rows_of(columns, g * n, n), product,
                       sum + g * width * depth);
        }
        if (!with_input) continue;
        for (int64_t g = 0; g < s.groups; ++g)
          multiply(torch::stable::transpose(grads(g), 0, 1),
                   rows_of(in.weight, g * width, width),
                   rows_of(columns, g * n, n));
        spread_columns(inputs, image, first, n, pointer<T>(columns), out,
                       waste.data());
      }
  }

  template <typename T>
  static T* pointer(Tensor tensor) {
    return tensor.mutable_data_ptr<T>();
  }
};

// Adds the parts (kParts, O, taps * width), in order, into
// (O, width, taps).
template <typename T>
void sum_parts(const std::vector<T>& parts, int64_t num, int64_t out_channels,
               int64_t taps, int64_t width, T* out) {
  const int64_t size = out_channels * taps * width;
  for (int64_t o = 0; o < out_channels; ++o)
    for (int64_t k = 0; k < taps; ++k)
      for (int64_t c = 0; c < width; ++c) {
        T total = 0;
        for (int64_t p = 0; p < num; ++p)
          total += parts[p * size + (o * taps + k) * width + c];
        out[(o * width + c) * taps + k] = total;
      }
}

std::tuple<Tensor, Tensor, Tensor, Tensor> deform_conv2d_backward(
    const Tensor& grad_in, const Tensor& input_in, const Tensor& offset_in,
    std::optional<Tensor> mask_in, const Tensor& weight_in,
    std::vector<int64_t> stride, std::vector<int64_t> padding,
    std::vector<int64_t> dilation, int64_t groups, int64_t deform_groups,
    bool with_input, bool with_weight) {
  using torch::stable::new_empty;
  using torch::stable::new_zeros;
  using torch::stable::transpose;
  const Prepared in(input_in, offset_in, mask_in, weight_in,
                    make_shape(input_in, offset_in, weight_in, stride,
                               padding, dilation, groups, deform_groups));
  const DeformShape& s = in.shape;
  const std::vector<int64_t> flat{s.batch * s.out_channels, s.positions()};
  Tensor none = new_empty(in.input, {0});
  const Backward task{
      in,
      detached(torch::stable::reshape(compute_tensor(grad_in), flat)),
      with_input ? new_zeros(in.input, {s.batch, s.height, s.width,
                                        s.channels})
                 : none,
      with_input ? torch::stable::empty_like(in.offset) : none,
      with_input && in.modulated ? torch::stable::empty_like(in.mask) : none,
      with_input,
      with_weight,
      tile_of(s, in.input.scalar_type() == ScalarType::Double ? 8 : 4)};
  Tensor grad_weight =
      with_weight ? new_empty(in.weight, {s.out_channels, s.group_width(),
                                          s.kernel_h, s.kernel_w})
                  : none;
  MMTURBOX_DISPATCH_FLOAT(in.input.scalar_type(), "deform_conv2d_backward", {
    const int64_t parts = std::min(kParts, s.batch);
    const int64_t size = with_weight ? grad_weight.numel() : 0;
    std::vector<scalar_t> sums(parts * size, 0);
    torch::stable::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        task.run<scalar_t>(s.batch * p / parts, s.batch * (p + 1) / parts,
                           sums.data() + p * size);
    });
    if (with_weight)
      sum_parts(sums, parts, s.out_channels, s.taps(), s.group_width(),
                grad_weight.mutable_data_ptr<scalar_t>());
  });
  const ScalarType type = input_in.scalar_type();
  Tensor grad_input =
      with_input ? torch::stable::contiguous(transpose(
                       transpose(task.grad_input, 2, 3), 1, 2))
                 : none;
  return {in_type(grad_input, type), in_type(task.grad_offset, type),
          in_type(task.grad_mask, type), in_type(grad_weight, type)};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("deform_conv2d", TORCH_BOX(&deform_conv2d));
  m.impl("deform_conv2d_backward", TORCH_BOX(&deform_conv2d_backward));
}

}  // namespace mmturbox
