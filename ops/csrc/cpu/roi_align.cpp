// CPU kernels of mmturbox::roi_align and its backward.
#include "../common/roi_align.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "../common/stable.h"
#include "compute.h"

namespace mmturbox {
namespace {

struct Options {
  int64_t bins_h, bins_w, ratio;
  double scale;
  bool take_max, aligned;
};

struct Shape {
  int64_t batch, channels, height, width;
};

template <typename T>
struct Region {
  int64_t batch;
  RoiAxis<T> y, x;

  Region(const T* roi, const Options& o)
      : batch(static_cast<int64_t>(roi[0])),
        y(roi[2], roi[4], static_cast<T>(o.scale), o.bins_h, o.ratio,
          o.aligned),
        x(roi[1], roi[3], static_cast<T>(o.scale), o.bins_w, o.ratio,
          o.aligned) {}
};

// The mean over a bin's samples as weights of pixels, along one axis. The
// weight of a pixel in a bin is the product of those of its row and column,
// as bilinear weights are.
template <typename T>
struct Taps {
  struct Tap {
    int64_t pixel;
    T weight;
  };
  std::vector<Tap> taps;
  std::vector<int64_t> starts{0};  // of each bin, and the end
  int64_t first, last = -1;        // pixels that any bin reads

  Taps(const RoiAxis<T>& axis, int64_t bins, int64_t size) : first(size) {
    for (int64_t bin = 0; bin < bins; ++bin) {
      for (int64_t i = 0; i < axis.samples; ++i) {
        const PixelPair<T> pair(axis.at(bin, i), size);
        if (!pair.inside) continue;
        add(pair.low, (1 - pair.weight) / static_cast<T>(axis.samples));
        add(pair.high, pair.weight / static_cast<T>(axis.samples));
      }
      starts.push_back(static_cast<int64_t>(taps.size()));
    }
  }

  int64_t width() const { return last < first ? 0 : last - first + 1; }

 private:
  void add(int64_t pixel, T weight) {
    first = std::min(first, pixel);
    last = std::max(last, pixel);
    for (size_t i = taps.size(); i > static_cast<size_t>(starts.back()); --i)
      if (taps[i - 1].pixel == pixel) {
        taps[i - 1].weight += weight;
        return;
      }
    taps.push_back({pixel, weight});
  }
};

// to[i] += weight * from[i]
MMTURBOX_CLONES void add_row(const float* from, float weight, int64_t count,
                             float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += weight * from[i];
}

void add_row(const double* from, double weight, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += weight * from[i];
}

// (rows, columns) -> (columns, rows), for the columns [first, last)
template <typename T>
void transpose_part(const T* from, int64_t rows, int64_t columns,
                    int64_t first, int64_t last, T* to) {
  constexpr int64_t kTile = 32;
  for (int64_t top = 0; top < rows; top += kTile)
    for (int64_t c = first; c < last; ++c)
      for (int64_t r = top; r < std::min(top + kTile, rows); ++r)
        to[c * rows + r] = from[r * columns + c];
}

// (batch, rows, columns) -> (batch, columns, rows)
template <typename T>
void transpose(const T* from, int64_t batch, int64_t rows, int64_t columns,
               T* to) {
  constexpr int64_t kTile = 32;
  const int64_t tiles = (columns + kTile - 1) / kTile;
  torch::stable::parallel_for(
      0, batch * tiles, 8, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = i % tiles * kTile;
          const int64_t last = std::min(first + kTile, columns);
          const int64_t skip = i / tiles * rows * columns;
          transpose_part(from + skip, rows, columns, first, last, to + skip);
        }
      });
}

// Pixels (y, x, channel) of a map, or of a part that begins at (top, left).
template <typename T>
struct Pixels {
  const T* data;
  int64_t top, left, width, channels;

  const T* at(int64_t y, int64_t x) const {
    return data + ((y - top) * width + x - left) * channels;
  }
};

// Averages of one region. Maps have their channels last, so that all loops
// over pixels are loops over contiguous channels.
template <typename T>
class MeanPool {
 public:
  MeanPool(const Region<T>& region, const Options& o, const Shape& s)
      : o_(o), s_(s), ys_(region.y, o.bins_h, s.height),
        xs_(region.x, o.bins_w, s.width) {
    const int64_t rows = static_cast<int64_t>(ys_.taps.size());
    const int64_t columns = static_cast<int64_t>(xs_.taps.size());
    // With few samples in a large region most pixels are not read.
    sums_rows_ = rows * xs_.width() + o.bins_h * columns <= rows * columns;
  }

  // Pixels of the box around all that are read.
  int64_t area() const { return ys_.width() * xs_.width(); }

  // That box from a map (C, H, W), copied to `tile`.
  Pixels<T> cut(const T* map, std::vector<T>* tile) const {
    const int64_t C = s_.channels, width = xs_.width();
    tile->resize(area() * C);
    for (int64_t y = 0; y < ys_.width(); ++y)
      transpose_part(map + (ys_.first + y) * s_.width + xs_.first, C,
                     s_.height * s_.width, 0, width,
                     tile->data() + y * width * C);
    return {tile->data(), ys_.first, xs_.first, width, C};
  }

  // out (bins, C)
  void forward(const Pixels<T>& map, T* out) {
    const int64_t C = s_.channels;
    for (int64_t ph = 0; ph < o_.bins_h; ++ph) {
      if (sums_rows_) sum_rows(map, ph);
      for (int64_t pw = 0; pw < o_.bins_w; ++pw, out += C) {
        std::fill(out, out + C, T(0));
        for (int64_t i = xs_.starts[pw]; i < xs_.starts[pw + 1]; ++i) {
          const auto [column, weight] = xs_.taps[i];
          if (sums_rows_)
            add_row(row_.data() + (column - xs_.first) * C, weight, C, out);
          else
            add_column(map, column, ph, weight, out);
        }
      }
    }
  }

  // Adds to the channels [begin, end) of map (H, W, C); grad is (C, bins).
  void backward(const T* grad, int64_t begin, int64_t end, T* map) {
    const int64_t C = s_.channels, bins = o_.bins_h * o_.bins_w;
    const int64_t count = end - begin;
    std::vector<T> bin(count);
    for (int64_t ph = 0; ph < o_.bins_h; ++ph) {
      row_.assign(xs_.width() * count, T(0));
      for (int64_t pw = 0; pw < o_.bins_w; ++pw) {
        for (int64_t c = 0; c < count; ++c)
          bin[c] = grad[(begin + c) * bins + ph * o_.bins_w + pw];
        for (int64_t i = xs_.starts[pw]; i < xs_.starts[pw + 1]; ++i)
          add_row(bin.data(), xs_.taps[i].weight, count,
                  row_.data() + (xs_.taps[i].pixel - xs_.first) * count);
      }
      for (int64_t i = ys_.starts[ph]; i < ys_.starts[ph + 1]; ++i)
        for (int64_t x = 0; x < xs_.width(); ++x)
          add_row(row_.data() + x * count, ys_.taps[i].weight, count,
                  map + (ys_.taps[i].pixel * s_.width + xs_.first + x) * C +
                      begin);
    }
  }

 private:
  // The rows of bins ph, for all columns that are read.
  void sum_rows(const Pixels<T>& map, int64_t ph) {
    row_.assign(xs_.width() * s_.channels, T(0));
    for (int64_t i = ys_.starts[ph]; i < ys_.starts[ph + 1]; ++i)
      add_row(map.at(ys_.taps[i].pixel, xs_.first), ys_.taps[i].weight,
              xs_.width() * s_.channels, row_.data());
  }

  void add_column(const Pixels<T>& map, int64_t column, int64_t ph, T weight,
                  T* bin) const {
    for (int64_t i = ys_.starts[ph]; i < ys_.starts[ph + 1]; ++i)
      add_row(map.at(ys_.taps[i].pixel, column), ys_.taps[i].weight * weight,
              s_.channels, bin);
  }

  const Options& o_;
  const Shape& s_;
  Taps<T> ys_, xs_;
  bool sums_rows_;
  std::vector<T> row_;
};

template <typename T>
void check_rois(const T* rois, int64_t num_rois, int64_t batch) {
  for (int64_t n = 0; n < num_rois; ++n)
    STD_TORCH_CHECK(rois[n * 5] >= 0 && rois[n * 5] < batch,
                    "roi_align: the batch index of a region is outside of "
                    "the batch");
}

// map (H, W, C), results (C, bins)
template <typename T>
void max_pool(const T* map, const Region<T>& region, const Options& o,
              const Shape& s, T* out, T* arg_y, T* arg_x) {
  const int64_t bins = o.bins_h * o.bins_w, C = s.channels;
  std::fill(out, out + C * bins, T(0));
  std::fill(arg_y, arg_y + C * bins, T(-1));
  std::fill(arg_x, arg_x + C * bins, T(-1));
  for (int64_t bin = 0; bin < bins; ++bin)
    for (int64_t iy = 0; iy < region.y.samples; ++iy)
      for (int64_t ix = 0; ix < region.x.samples; ++ix) {
        const T y = region.y.at(bin / o.bins_w, iy);
        const T x = region.x.at(bin % o.bins_w, ix);
        const Bilinear<T> read(y, x, s.height, s.width);
        for (int64_t c = 0; c < C; ++c) {
          const T value = read.read(map + c, C);
          const int64_t at = c * bins + bin;
          if ((iy > 0 || ix > 0) && !(value > out[at])) continue;
          out[at] = value;
          arg_y[at] = y;
          arg_x[at] = x;
        }
      }
}

// Regions read their pixels from a copy of the maps with the channels last
// or, where they are smaller than the maps together, of their own part.
template <typename T>
void forward_all(const T* input, const T* rois, int64_t num_rois,
                 const Options& o, const Shape& s, T* out, T* arg_y,
                 T* arg_x) {
  const int64_t plane = s.height * s.width, bins = o.bins_h * o.bins_w;
  const int64_t step = s.channels * bins;
  int64_t area = 0;
  for (int64_t n = 0; n < num_rois && !o.take_max; ++n)
    area += MeanPool<T>(Region<T>(rois + n * 5, o), o, s).area();
  const bool whole = num_rois > 0 && (o.take_max || area > s.batch * plane);
  // Not a vector, which would be cleared first.
  const std::unique_ptr<T[]> maps(
      new T[whole ? s.batch * s.channels * plane : 0]);
  if (whole) transpose(input, s.batch, s.channels, plane, maps.get());
  torch::stable::parallel_for(0, num_rois, 1, [&](int64_t begin,
                                                  int64_t end) {
    std::vector<T> pooled(step), tile;
    for (int64_t n = begin; n < end; ++n) {
      const Region<T> region(rois + n * 5, o);
      const int64_t skip = region.batch * s.channels * plane;
      if (o.take_max) {
        max_pool(maps.get() + skip, region, o, s, out + n * step,
                 arg_y + n * step, arg_x + n * step);
        continue;
      }
      MeanPool<T> pool(region, o, s);
      pool.forward(whole ? Pixels<T>{maps.get() + skip, 0, 0, s.width,
                                     s.channels}
                         : pool.cut(input + skip, &tile),
                   pooled.data());
      transpose_part(pooled.data(), bins, s.channels, 0, s.channels,
                     out + n * step);
    }
  });
}

std::tuple<Tensor, Tensor, Tensor> roi_align(
    const Tensor& input_in, const Tensor& rois_in, int64_t height,
    int64_t width, double spatial_scale, int64_t sampling_ratio,
    int64_t pool_mode, bool aligned) {
  Tensor input = compute_tensor(input_in);
  Tensor rois =
      torch::stable::contiguous(in_type(rois_in, input.scalar_type()));
  const Shape s{input.size(0), input.size(1), input.size(2), input.size(3)};
  const Options o{height,        width,          sampling_ratio,
                  spatial_scale, pool_mode == 0, aligned};
  const int64_t R = rois.size(0);
  Tensor out = torch::stable::new_empty(input, {R, s.channels, height, width});
  Tensor arg_y = o.take_max ? torch::stable::empty_like(out)
                            : torch::stable::new_empty(out, {0});
  Tensor arg_x = torch::stable::empty_like(arg_y);
  MMTURBOX_DISPATCH_FLOAT(input.scalar_type(), "roi_align", {
    const scalar_t* x = input.const_data_ptr<scalar_t>();
    const scalar_t* roi = rois.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    scalar_t* ay = arg_y.mutable_data_ptr<scalar_t>();
    scalar_t* ax = arg_x.mutable_data_ptr<scalar_t>();
    check_rois(roi, R, s.batch);
    forward_all(x, roi, R, o, s, to, ay, ax);
  });
  return {in_type(out, input_in.scalar_type()), arg_y, arg_x};
}

// One region, for the channels [begin, end) of out (C, H, W).
template <typename T>
void max_backward(const T* grad, const T* arg_y, const T* arg_x,
                  const Options& o, const Shape& s, int64_t begin,
                  int64_t end, T* out) {
  const int64_t bins = o.bins_h * o.bins_w;
  for (int64_t at = begin * bins; at < end * bins; ++at) {
    if (arg_y[at] == -1 && arg_x[at] == -1) continue;
    const Bilinear<T> read(arg_y[at], arg_x[at], s.height, s.width);
    T* map = out + at / bins * s.height * s.width;
    for (int k = 0; read.inside && k < 4; ++k)
      map[read.position[k]] += grad[at] * read.weight[k];
  }
}

// Threads split the channels and walk the regions in order, so that sums do
// not depend on the number of threads.
Tensor roi_align_backward(const Tensor& grad_in, const Tensor& rois_in,
                          const Tensor& arg_y_in, const Tensor& arg_x_in,
                          std::vector<int64_t> shape, double spatial_scale,
                          int64_t sampling_ratio, int64_t pool_mode,
                          bool aligned) {
  Tensor grad = compute_tensor(grad_in);
  const ScalarType type = grad.scalar_type();
  Tensor rois = torch::stable::contiguous(in_type(rois_in, type));
  Tensor arg_y = torch::stable::contiguous(in_type(arg_y_in, type));
  Tensor arg_x = torch::stable::contiguous(in_type(arg_x_in, type));
  const Shape s{shape[0], shape[1], shape[2], shape[3]};
  const Options o{grad.size(2),  grad.size(3),   sampling_ratio,
                  spatial_scale, pool_mode == 0, aligned};
  const int64_t step = s.channels * o.bins_h * o.bins_w;
  Tensor out = torch::stable::new_zeros(
      grad, {s.batch, s.channels, s.height, s.width});
  MMTURBOX_DISPATCH_FLOAT(type, "roi_align_backward", {
    const scalar_t* from = grad.const_data_ptr<scalar_t>();
    const scalar_t* roi = rois.const_data_ptr<scalar_t>();
    const scalar_t* ay = arg_y.const_data_ptr<scalar_t>();
    const scalar_t* ax = arg_x.const_data_ptr<scalar_t>();
    check_rois(roi, rois.size(0), s.batch);
    const int64_t map_size = s.channels * s.height * s.width;
    Tensor last = o.take_max ? out : torch::stable::new_zeros(out, {
                                         s.batch * map_size});
    scalar_t* maps = last.mutable_data_ptr<scalar_t>();
    torch::stable::parallel_for(
        0, s.channels, 64, [&](int64_t begin, int64_t end) {
          for (int64_t n = 0; n < rois.size(0); ++n) {
            const Region<scalar_t> region(roi + n * 5, o);
            scalar_t* map = maps + region.batch * map_size;
            if (o.take_max)
              max_backward(from + n * step, ay + n * step, ax + n * step, o,
                           s, begin, end, map);
            else
              MeanPool<scalar_t>(region, o, s)
                  .backward(from + n * step, begin, end, map);
          }
        });
    if (!o.take_max)
      transpose(maps, s.batch, s.height * s.width, s.channels,
                out.mutable_data_ptr<scalar_t>());
  });
  return in_type(out, grad_in.scalar_type());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("roi_align", TORCH_BOX(&roi_align));
  m.impl("roi_align_backward", TORCH_BOX(&roi_align_backward));
}

}  // namespace mmturbox
