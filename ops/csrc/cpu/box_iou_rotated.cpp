// CPU kernels of mmturbox::box_iou_rotated and mmturbox::nms_rotated.
//
// Geometry is done in double for every input type: it makes the float32
// result the correctly rounded one at no measurable cost.
#include "../common/box_iou_rotated.h"

#include "greedy_nms.h"

namespace mmturbox {
namespace {

using Box = RotatedBox<double>;

template <typename T>
std::vector<Box> load_boxes(const Tensor& boxes_in) {
  Tensor boxes = torch::stable::contiguous(boxes_in);
  const T* data = boxes.const_data_ptr<T>();
  std::vector<Box> out(boxes.size(0));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = load_rotated_box<double>(data + i * 5);
  return out;
}

template <typename T>
void fill_iou(const std::vector<Box>& boxes1, const std::vector<Box>& boxes2,
              int64_t mode, bool aligned, T* out) {
  const int64_t rows = boxes1.size(), cols = boxes2.size();
  torch::stable::parallel_for(
      0, aligned ? rows : rows * cols, 512, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          out[i] = static_cast<T>(rotated_iou(
              boxes1[aligned ? i : i / cols], boxes2[aligned ? i : i % cols],
              mode));
      });
}

Tensor box_iou_rotated(const Tensor& boxes1, const Tensor& boxes2,
                       int64_t mode, bool aligned) {
  const int64_t rows = boxes1.size(0), cols = boxes2.size(0);
  STD_TORCH_CHECK(!aligned || rows == cols,
                  "box_iou_rotated: aligned boxes differ in number");
  Tensor out = aligned ? torch::stable::new_empty(boxes1, {rows})
                       : torch::stable::new_empty(boxes1, {rows, cols});
  MMTURBOX_DISPATCH_FLOAT(boxes1.scalar_type(), "box_iou_rotated", {
    fill_iou(load_boxes<scalar_t>(boxes1), load_boxes<scalar_t>(boxes2), mode,
             aligned, out.mutable_data_ptr<scalar_t>());
  });
  return out;
}

template <typename T>
std::vector<int64_t> suppress(const Tensor& boxes_in, const Tensor& scores_in,
                              double threshold) {
  Tensor scores = torch::stable::contiguous(scores_in);
  const int64_t n = scores.size(0);
  const auto order = score_order(scores.const_data_ptr<T>(), n, 1);
  const std::vector<Box> boxes = load_boxes<T>(boxes_in);
  const T limit = static_cast<T>(threshold);
  std::vector<int64_t> keep;
  greedy_nms(
      n, 256, [&](int64_t rank) { keep.push_back(order[rank]); },
      [&](int64_t rank, int64_t begin, int64_t end, uint8_t* removed) {
        const Box& box = boxes[order[rank]];
        for (int64_t r = begin; r < end; ++r)
          if (!removed[r])
            removed[r] =
                static_cast<T>(rotated_iou(box, boxes[order[r]], kIou)) >
                limit;
      });
  return keep;
}

Tensor nms_rotated(const Tensor& boxes, const Tensor& scores,
                   double threshold) {
  MMTURBOX_DISPATCH_FLOAT(boxes.scalar_type(), "nms_rotated", {
    return to_tensor(suppress<scalar_t>(boxes, scores, threshold), boxes);
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("box_iou_rotated", TORCH_BOX(&box_iou_rotated));
  m.impl("nms_rotated", TORCH_BOX(&nms_rotated));
}

}  // namespace mmturbox
