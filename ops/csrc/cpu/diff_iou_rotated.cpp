// CPU kernels of mmturbox::rotated_overlap, its gradient and sort_vertices.
#include "../common/diff_iou_rotated.h"

#include <tuple>

#include "../common/stable.h"

namespace mmturbox {
namespace {

Tensor overlap_forward(const Tensor& boxes1_in, const Tensor& boxes2_in) {
  Tensor boxes1 = torch::stable::contiguous(boxes1_in);
  Tensor boxes2 = torch::stable::contiguous(boxes2_in);
  const int64_t n = boxes1.size(0);
  Tensor out = torch::stable::new_empty(boxes1, {n});
  MMTURBOX_DISPATCH_FLOAT(boxes1.scalar_type(), "rotated_overlap", {
    const scalar_t* first = boxes1.const_data_ptr<scalar_t>();
    const scalar_t* second = boxes2.const_data_ptr<scalar_t>();
    scalar_t* area = out.mutable_data_ptr<scalar_t>();
    torch::stable::parallel_for(0, n, 256, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        area[i] = static_cast<scalar_t>(
            rotated_overlap(load_rotated_box<double>(first + i * 5),
                            load_rotated_box<double>(second + i * 5)));
    });
  });
  return out;
}

std::tuple<Tensor, Tensor> overlap_backward(const Tensor& grad_in,
                                            const Tensor& boxes1_in,
                                            const Tensor& boxes2_in) {
  Tensor grad = torch::stable::contiguous(grad_in);
  Tensor boxes1 = torch::stable::contiguous(boxes1_in);
  Tensor boxes2 = torch::stable::contiguous(boxes2_in);
  const int64_t n = boxes1.size(0);
  Tensor grad1 = torch::stable::new_empty(boxes1, {n, 5});
  Tensor grad2 = torch::stable::new_empty(boxes1, {n, 5});
  MMTURBOX_DISPATCH_FLOAT(boxes1.scalar_type(), "rotated_overlap", {
    const scalar_t* first = boxes1.const_data_ptr<scalar_t>();
    const scalar_t* second = boxes2.const_data_ptr<scalar_t>();
    const scalar_t* weight = grad.const_data_ptr<scalar_t>();
    scalar_t* out1 = grad1.mutable_data_ptr<scalar_t>();
    scalar_t* out2 = grad2.mutable_data_ptr<scalar_t>();
    torch::stable::parallel_for(0, n, 256, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        overlap_gradients(first + i * 5, second + i * 5, weight[i],
                          out1 + i * 5, out2 + i * 5);
    });
  });
  return {grad1, grad2};
}

Tensor sort_vertices(const Tensor& vertices_in, const Tensor& mask_in) {
  Tensor vertices = torch::stable::contiguous(vertices_in);
  Tensor mask = torch::stable::contiguous(mask_in);
  const int64_t n = vertices.size(0);
  Tensor out = torch::stable::new_empty(vertices, {n, kCorners + 1},
                                        ScalarType::Int);
  MMTURBOX_DISPATCH_FLOAT(vertices.scalar_type(), "sort_vertices", {
    const scalar_t* data = vertices.const_data_ptr<scalar_t>();
    const bool* valid = mask.const_data_ptr<bool>();
    int32_t* order = out.mutable_data_ptr<int32_t>();
    torch::stable::parallel_for(0, n, 256, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        order_vertices(data + i * kVertices * 2, valid + i * kVertices,
                       order + i * (kCorners + 1));
    });
  });
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("rotated_overlap", TORCH_BOX(&overlap_forward));
  m.impl("rotated_overlap_backward", TORCH_BOX(&overlap_backward));
  m.impl("sort_vertices", TORCH_BOX(&sort_vertices));
}

}  // namespace mmturbox
