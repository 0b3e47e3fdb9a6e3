// CPU kernel of mmturbox::box_iou_rotated.
//
// Geometry is done in double for every input type: it makes the float32
// result the correctly rounded one at no measurable cost.
// Vectors are passed between functions only inside of a clone.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "../common/box_iou_rotated.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "../common/stable.h"

namespace mmturbox {
namespace {

// Eight boxes at a time, in whatever registers the machine has.
constexpr int64_t kLanes = 8;
typedef double Lanes __attribute__((vector_size(kLanes * sizeof(double))));

// The fields of all boxes, one array a field, padded to whole vectors.
struct Fields {
  int64_t stride;
  std::vector<double> values;

  template <typename T>
  Fields(const T* boxes, int64_t n)
      : stride(n + kLanes), values(6 * stride, 0.0) {
    for (int64_t i = 0; i < n; ++i) {
      const auto box = load_rotated_box<double>(boxes + i * 5);
      const double row[6] = {box.x,      box.y,   box.half_w,
                             box.half_h, box.cos, box.sin};
      for (int k = 0; k < 6; ++k) values[k * stride + i] = row[k];
    }
  }
};

inline __attribute__((always_inline)) RotatedBox<Lanes> lanes_at(
    const double* fields, int64_t stride) {
  RotatedBox<Lanes> box;
  Lanes* const rows[6] = {&box.x,      &box.y,   &box.half_w,
                          &box.half_h, &box.cos, &box.sin};
  for (int k = 0; k < 6; ++k)
    std::memcpy(rows[k], fields + k * stride, sizeof(Lanes));
  return box;
}

// out[i] of the pairs [begin, end): box i of the first with box i of the
// second. With `row` >= 0 it is that one box of the first with all.
MMTURBOX_CLONES __attribute__((flatten)) void iou_row(
    const double* boxes1, int64_t stride1, int64_t row, const double* boxes2,
    int64_t stride2, int64_t begin, int64_t end, int64_t mode, double* out) {
  const Lanes zero{};
  RotatedBox<Lanes> box = lanes_at(boxes1 + begin, stride1);
  if (row >= 0)
    box = {zero + boxes1[row],
           zero + boxes1[stride1 + row],
           zero + boxes1[2 * stride1 + row],
           zero + boxes1[3 * stride1 + row],
           zero + boxes1[4 * stride1 + row],
           zero + boxes1[5 * stride1 + row]};
  for (int64_t i = begin; i < end; i += kLanes) {
    if (row < 0) box = lanes_at(boxes1 + i, stride1);
    const Lanes iou =
        rotated_iou(box, lanes_at(boxes2 + i, stride2), mode);
    std::memcpy(out + i, &iou,
                std::min(kLanes, end - i) * sizeof(double));
  }
}

template <typename T>
void fill_iou(const Tensor& boxes1, const Tensor& boxes2, int64_t mode,
              bool aligned, T* out) {
  const int64_t rows = boxes1.size(0), cols = boxes2.size(0);
  const Fields first(boxes1.const_data_ptr<T>(), rows);
  const Fields second(boxes2.const_data_ptr<T>(), cols);
  const double *data1 = first.values.data(), *data2 = second.values.data();
  // The double results of a row or of a stretch of pairs, then rounded.
  const auto run = [&](int64_t begin, int64_t end) {
    std::vector<double> iou(aligned ? end : cols);
    if (aligned) {
      iou_row(data1, first.stride, -1, data2, second.stride, begin, end, mode,
              iou.data());
      std::copy(iou.begin() + begin, iou.end(), out + begin);
      return;
    }
    for (int64_t row = begin; row < end; ++row) {
      iou_row(data1, first.stride, row, data2, second.stride, 0, cols, mode,
              iou.data());
      std::copy(iou.begin(), iou.end(), out + row * cols);
    }
  };
  const int64_t width = aligned ? 1 : std::max<int64_t>(1, cols);
  torch::stable::parallel_for(0, rows, std::max<int64_t>(1, 4096 / width),
                              run);
}

Tensor box_iou_rotated(const Tensor& boxes1_in, const Tensor& boxes2_in,
                       int64_t mode, bool aligned) {
  Tensor boxes1 = torch::stable::contiguous(boxes1_in);
  Tensor boxes2 = torch::stable::contiguous(boxes2_in);
  const int64_t rows = boxes1.size(0), cols = boxes2.size(0);
  STD_TORCH_CHECK(!aligned || rows == cols,
                  "box_iou_rotated: aligned boxes differ in number");
  Tensor out = aligned ? torch::stable::new_empty(boxes1, {rows})
                       : torch::stable::new_empty(boxes1, {rows, cols});
  MMTURBOX_DISPATCH_FLOAT(boxes1.scalar_type(), "box_iou_rotated", {
    fill_iou(boxes1, boxes2, mode, aligned,
             out.mutable_data_ptr<scalar_t>());
  });
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("box_iou_rotated", TORCH_BOX(&box_iou_rotated));
}

}  // namespace mmturbox
