// Bindings of the CUDA kernels of batched_nms, nms, nms_rotated, nms_match.
#include "batched_nms.h"

#include <algorithm>
#include <tuple>

#include "../common/batched_nms.h"
#include "binding.h"

namespace mmturbox {
namespace {

Tensor new_int64(const Tensor& like, int64_t count) {
  return torch::stable::new_empty(like, {count}, ScalarType::Long);
}

int64_t* data(Tensor& tensor) { return tensor.mutable_data_ptr<int64_t>(); }

// Indices by falling score, NaN first, equal ones in their order.
Tensor falling(const Tensor& scores) {
  using torch::stable::detail::from;
  using torch::stable::detail::to;
  std::array<StableIValue, 4> stack{from(scores),
                                    from(std::optional<bool>(true)),
                                    from(int64_t{-1}), from(true)};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(
      "aten::sort", "stable", stack.data(), TORCH_ABI_VERSION));
  (void)to<Tensor>(stack[0]);
  return to<Tensor>(stack[1]);
}

// Fill `task` with scratch memory, run it, and return `kept` by rank.
Tensor suppress(const Tensor& boxes, Suppression task, Stream stream) {
  const int64_t n = task.num_boxes, tiles = (n + kNmsTile - 1) / kNmsTile;
  Tensor kept = torch::stable::new_zeros(boxes, {n}, ScalarType::Byte);
  Tensor items = torch::stable::new_empty(boxes, {n * kNmsItemBytes},
                                          ScalarType::Byte);
  const int64_t rows = std::min(kNmsChunk, tiles * kNmsTile);
  Tensor words = new_int64(boxes, 1 + tiles + tiles * rows);
  task.kept = kept.mutable_data_ptr<uint8_t>();
  task.items = items.mutable_data_ptr();
  task.total = reinterpret_cast<unsigned long long*>(data(words));
  task.removed = task.total + 1;
  task.mask = task.removed + tiles;
  MMTURBOX_DISPATCH_FLOAT(boxes.scalar_type(), "nms",
                          { suppress_cuda<scalar_t>(task, stream); });
  return kept;
}

struct Optional {
  std::optional<Tensor> tensor;

  explicit Optional(const std::optional<Tensor>& input) {
    if (input) tensor = torch::stable::contiguous(*input);
  }

  template <typename T>
  const T* pointer() const {
    return tensor ? tensor->const_data_ptr<T>() : nullptr;
  }
};

std::tuple<Tensor, Tensor> batched_nms(
    const Tensor& boxes_in, const Tensor& scores,
    std::optional<Tensor> classes_in, std::optional<Tensor> samples_in,
    std::optional<Tensor> valid_in, int64_t kind, double threshold,
    int64_t offset, int64_t num_samples, int64_t max_out) {
  const Launch at(boxes_in);
  Tensor boxes = torch::stable::contiguous(boxes_in);
  const Optional classes(classes_in), samples(samples_in), valid(valid_in);
  const int64_t n = boxes.size(0);
  Tensor order = falling(scores), keys = order, places = order;
  Suppression task{};
  task.boxes = boxes.const_data_ptr();
  task.stride = boxes.size(1);
  task.num_boxes = n;
  task.kind = kind;
  task.offset = offset;
  task.max_out = num_samples > 0 ? max_out : 0;
  task.threshold = threshold;
  task.order = order.const_data_ptr<int64_t>();
  if (classes.tensor || samples.tensor || valid.tensor) {
    Tensor by_rank = new_int64(boxes, n);
    nms_keys_cuda(task.order, classes.pointer<int64_t>(),
                  samples.pointer<int64_t>(), valid.pointer<bool>(), n,
                  num_samples, data(by_rank), at);
    std::tie(keys, places) = stable_sort(by_rank);
    task.keys = keys.const_data_ptr<int64_t>();
    task.places = places.const_data_ptr<int64_t>();
  }
  Tensor kept = suppress(boxes, task, at);
  Tensor keep = torch::stable::new_empty(boxes, {num_samples, max_out},
                                         ScalarType::Long);
  Tensor counts = new_int64(boxes, num_samples);
  nms_emit_cuda(kept.const_data_ptr<uint8_t>(), task.order,
                samples.pointer<int64_t>(), n, num_samples, max_out,
                data(keep), data(counts), at);
  return {keep, counts};
}

Tensor keep_all(const Tensor& boxes, const Tensor& scores, int64_t kind,
                double threshold, int64_t offset) {
  const int64_t n = boxes.size(0);
  auto [keep, counts] = batched_nms(boxes, scores, {}, {}, {}, kind,
                                    threshold, offset, 1, n);
  Tensor row = torch::stable::reshape(keep, {n});
  return torch::stable::narrow(row, 0, 0, read_int64(counts));
}

Tensor nms(const Tensor& boxes, const Tensor& scores, double threshold,
           int64_t offset) {
  return keep_all(boxes, scores, kAligned, threshold, offset);
}

Tensor nms_rotated(const Tensor& boxes, const Tensor& scores,
                   double threshold) {
  return keep_all(boxes, scores, kRotated, threshold, 0);
}

std::tuple<Tensor, Tensor> nms_match(const Tensor& dets_in,
                                     double threshold) {
  const Launch at(dets_in);
  Tensor dets = torch::stable::contiguous(dets_in);
  const int64_t n = dets.size(0);
  Tensor order = falling(torch::stable::select(dets, 1, 4));
  Tensor members = new_int64(dets, n), starts = new_int64(dets, n);
  if (n == 0) return {members, starts};
  Tensor owners = new_int64(dets, n), heads = new_int64(dets, n);
  Suppression task{};
  task.boxes = dets.const_data_ptr();
  task.stride = 5;
  task.num_boxes = n;
  task.max_out = n + 1;  // to the end: the owners count
  task.kind = kAligned;
  task.threshold = threshold;
  task.inclusive = true;
  task.order = order.const_data_ptr<int64_t>();
  task.owners = data(owners);
  suppress(dets, task, at);
  auto [sorted, places] = stable_sort(owners);
  nms_heads_cuda(sorted.const_data_ptr<int64_t>(), n, data(heads), at);
  Tensor group = cumsum(heads);
  nms_members_cuda(task.order, places.const_data_ptr<int64_t>(),
                   sorted.const_data_ptr<int64_t>(),
                   group.const_data_ptr<int64_t>(), n, data(members),
                   data(starts), at);
  // The host needs to know how many groups there are.
  const int64_t count =
      read_int64(torch::stable::narrow(group, 0, n - 1, 1));
  Tensor sizes = new_int64(dets, count);
  nms_sizes_cuda(starts.const_data_ptr<int64_t>(), count, n, data(sizes), at);
  return {members, sizes};
}

}  // namespace

MMTURBOX_CUDA_IMPL(m) {
  m.impl("batched_nms", TORCH_BOX(&batched_nms));
  m.impl("nms", TORCH_BOX(&nms));
  m.impl("nms_rotated", TORCH_BOX(&nms_rotated));
  m.impl("nms_match", TORCH_BOX(&nms_match));
}

}  // namespace mmturbox
