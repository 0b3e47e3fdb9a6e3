// CPU kernels of mmturbox::roi_align and its backward.
#include "../common/roi_align.h"

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

// All reads of a region, bin after bin; they serve every channel.
template <typename T>
struct Reads {
  std::vector<Bilinear<T>> reads;
  std::vector<T> ys, xs;
  int64_t per_bin;

  Reads(const Region<T>& r, const Options& o, const Shape& s)
      : per_bin(r.y.samples * r.x.samples) {
    for (int64_t ph = 0; ph < o.bins_h; ++ph)
      for (int64_t pw = 0; pw < o.bins_w; ++pw)
        for (int64_t iy = 0; iy < r.y.samples; ++iy)
          for (int64_t ix = 0; ix < r.x.samples; ++ix) {
            const T y = r.y.at(ph, iy), x = r.x.at(pw, ix);
            reads.emplace_back(y, x, s.height, s.width);
            if (!o.take_max) continue;
            ys.push_back(y);
            xs.push_back(x);
          }
  }
};

template <typename T>
void check_rois(const T* rois, int64_t num_rois, int64_t batch) {
  for (int64_t n = 0; n < num_rois; ++n)
    STD_TORCH_CHECK(rois[n * 5] >= 0 && rois[n * 5] < batch,
                    "roi_align: the batch index of a region is outside of "
                    "the batch");
}

template <typename T>
void forward_region(const T* input, const T* roi, const Options& o,
                    const Shape& s, T* out, T* arg_y, T* arg_x) {
  const Region<T> region(roi, o);
  const Reads<T> reads(region, o, s);
  const int64_t bins = o.bins_h * o.bins_w, n = reads.per_bin;
  for (int64_t c = 0; c < s.channels; ++c) {
    const T* map =
        input + (region.batch * s.channels + c) * s.height * s.width;
    for (int64_t bin = 0; bin < bins; ++bin) {
      const Bilinear<T>* read = reads.reads.data() + bin * n;
      const int64_t at = c * bins + bin;
      out[at] = 0;
      if (!o.take_max) {
        for (int64_t i = 0; i < n; ++i) out[at] += read[i].read(map);
        if (n > 0) out[at] /= static_cast<T>(n);
        continue;
      }
      arg_y[at] = arg_x[at] = -1;
      for (int64_t i = 0; i < n; ++i) {
        const T value = read[i].read(map);
        if (i > 0 && !(value > out[at])) continue;
        out[at] = value;
        arg_y[at] = reads.ys[bin * n + i];
        arg_x[at] = reads.xs[bin * n + i];
      }
    }
  }
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
  const int64_t R = rois.size(0), step = s.channels * height * width;
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
    torch::stable::parallel_for(0, R, 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const int64_t skip = o.take_max ? n * step : 0;
        forward_region(x, roi + n * 5, o, s, to + n * step, ay + skip,
                       ax + skip);
      }
    });
  });
  return {in_type(out, input_in.scalar_type()), arg_y, arg_x};
}

template <typename T>
void add_to(T* map, const Bilinear<T>& read, T value) {
  if (!read.inside) return;
  for (int k = 0; k < 4; ++k) map[read.position[k]] += value * read.weight[k];
}

// One region, for the channels [begin, end).
template <typename T>
void backward_region(const T* grad, const T* roi, const T* arg_y,
                     const T* arg_x, const Options& o, const Shape& s,
                     int64_t begin, int64_t end, T* out) {
  const Region<T> region(roi, o);
  const int64_t bins = o.bins_h * o.bins_w;
  T* maps = out + region.batch * s.channels * s.height * s.width;
  if (o.take_max) {
    for (int64_t at = begin * bins; at < end * bins; ++at) {
      if (arg_y[at] == -1 && arg_x[at] == -1) continue;
      add_to(maps + at / bins * s.height * s.width,
             Bilinear<T>(arg_y[at], arg_x[at], s.height, s.width), grad[at]);
    }
    return;
  }
  const Reads<T> reads(region, o, s);
  const int64_t n = reads.per_bin;
  for (int64_t c = begin; c < end; ++c)
    for (int64_t bin = 0; bin < bins; ++bin)
      for (int64_t i = 0; i < n; ++i)
        add_to(maps + c * s.height * s.width, reads.reads[bin * n + i],
               grad[c * bins + bin] / static_cast<T>(n));
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
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    check_rois(roi, rois.size(0), s.batch);
    torch::stable::parallel_for(
        0, s.channels, 16, [&](int64_t begin, int64_t end) {
          for (int64_t n = 0; n < rois.size(0); ++n) {
            const int64_t skip = o.take_max ? n * step : 0;
            backward_region(from + n * step, roi + n * 5, ay + skip,
                            ax + skip, o, s, begin, end, to);
          }
        });
  });
  return in_type(out, grad_in.scalar_type());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("roi_align", TORCH_BOX(&roi_align));
  m.impl("roi_align_backward", TORCH_BOX(&roi_align_backward));
}

}  // namespace mmturbox
