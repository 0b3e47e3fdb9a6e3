// CPU kernels of mmturbox::nms, mmturbox::nms_match and mmturbox::soft_nms.
#include "../common/nms.h"

#include <tuple>

#include "greedy_nms.h"

namespace mmturbox {
namespace {

Tensor nms(const Tensor& boxes_in, const Tensor& scores_in, double threshold,
           int64_t offset) {
  Tensor boxes = torch::stable::contiguous(boxes_in);
  Tensor scores = torch::stable::contiguous(scores_in);
  MMTURBOX_DISPATCH_FLOAT(boxes.scalar_type(), "nms", {
    return to_tensor(
        greedy_keep(AlignedTest<scalar_t>(threshold, offset),
                    boxes.const_data_ptr<scalar_t>(),
                    scores.const_data_ptr<scalar_t>(), boxes.size(0)),
        boxes);
  });
}

// members: the boxes, group after group, the kept one first; sizes: how many
// each group has.
template <typename T>
void match_groups(const T* dets, int64_t n, double threshold,
                  std::vector<int64_t>& members, std::vector<int64_t>& sizes) {
  const auto order = score_order(dets + 4, n, 5);
  std::vector<int64_t> owners(n), group(n), next;
  greedy_owners(AlignedTest<T>(threshold, 0, true), dets, 5, order.data(), n,
                owners.data());
  for (int64_t r = 0; r < n; ++r) {
    if (owners[r] == r) {
      group[r] = static_cast<int64_t>(sizes.size());
      sizes.push_back(0);
    }
    group[r] = group[owners[r]];
    ++sizes[group[r]];
  }
  next.assign(sizes.size(), 0);
  for (size_t g = 1; g < sizes.size(); ++g)
    next[g] = next[g - 1] + sizes[g - 1];
  members.resize(n);
  for (int64_t r = 0; r < n; ++r) members[next[group[r]]++] = order[r];
}

std::tuple<Tensor, Tensor> nms_match(const Tensor& dets_in, double threshold) {
  Tensor dets = torch::stable::contiguous(dets_in);
  std::vector<int64_t> members, sizes;
  MMTURBOX_DISPATCH_FLOAT(dets.scalar_type(), "nms_match", {
    match_groups(dets.const_data_ptr<scalar_t>(), dets.size(0),
                 threshold, members, sizes);
  });
  return {to_tensor(members, dets), to_tensor(sizes, dets)};
}

template <typename T>
struct Scored {
  CornerBox<T> box;
  T score;
  int64_t index;
};

// Reorders `boxes` so that the kept ones stand first, by falling score.
template <typename T>
void soften(std::vector<Scored<T>>& boxes, const SoftWeight<T>& weight,
            T min_score, T offset) {
  for (size_t done = 0; done < boxes.size(); ++done) {
    size_t best = done;
    for (size_t i = done + 1; i < boxes.size(); ++i)
      if (better_score(boxes[i].score, boxes[best].score)) best = i;
    // A rotation, not a swap: the others keep their order, so that among
    // equal scores the lower index goes on winning.
    std::rotate(boxes.begin() + done, boxes.begin() + best,
                boxes.begin() + best + 1);
    size_t out = done + 1;
    for (size_t i = done + 1; i < boxes.size(); ++i) {
      Scored<T> other = boxes[i];
      const T iou = corner_iou(boxes[done].box, other.box, offset);
      other.score *= weight(iou);
      if (!(other.score < min_score)) boxes[out++] = other;
    }
    boxes.resize(out);
  }
}

std::tuple<Tensor, Tensor> soft_nms(const Tensor& boxes_in,
                                    const Tensor& scores_in, double threshold,
                                    double sigma, double min_score,
                                    int64_t method, int64_t offset) {
  Tensor boxes = torch::stable::contiguous(boxes_in);
  Tensor scores = torch::stable::contiguous(scores_in);
  const int64_t n = boxes.size(0);
  MMTURBOX_DISPATCH_FLOAT(boxes.scalar_type(), "soft_nms", {
    const scalar_t* data = boxes.const_data_ptr<scalar_t>();
    const scalar_t* score = scores.const_data_ptr<scalar_t>();
    std::vector<Scored<scalar_t>> all;
    all.reserve(n);
    for (int64_t i = 0; i < n; ++i)
      all.push_back(
          {load_corner_box(data + i * 4, static_cast<scalar_t>(offset)),
           score[i], i});
    soften(all,
           SoftWeight<scalar_t>{method, static_cast<scalar_t>(threshold),
                                static_cast<scalar_t>(sigma)},
           static_cast<scalar_t>(min_score), static_cast<scalar_t>(offset));
    const int64_t kept = static_cast<int64_t>(all.size());
    Tensor dets = torch::stable::new_empty(boxes, {kept, 5});
    Tensor inds = torch::stable::new_empty(boxes, {kept}, ScalarType::Long);
    scalar_t* det = dets.mutable_data_ptr<scalar_t>();
    int64_t* ind = inds.mutable_data_ptr<int64_t>();
    for (const auto& item : all) {
      const auto& b = item.box;
      for (const scalar_t v : {b.x1, b.y1, b.x2, b.y2, item.score}) *det++ = v;
      *ind++ = item.index;
    }
    return {dets, inds};
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("nms", TORCH_BOX(&nms));
  m.impl("nms_match", TORCH_BOX(&nms_match));
  m.impl("soft_nms", TORCH_BOX(&soft_nms));
}

}  // namespace mmturbox
