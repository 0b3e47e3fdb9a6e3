// CPU kernels of mmturbox::nms, mmturbox::nms_match and mmturbox::soft_nms.
#include "../common/nms.h"

#include <tuple>

#include "greedy_nms.h"

namespace mmturbox {
namespace {

// Boxes by rank, one array a coordinate so that the loop below vectorises.
template <typename T>
struct Columns {
  std::vector<T> x1, y1, x2, y2, area;

  Columns(const T* boxes, int64_t stride, const std::vector<int64_t>& order,
          T offset) {
    for (auto* column : {&x1, &y1, &x2, &y2, &area})
      column->reserve(order.size());
    for (const int64_t i : order) {
      const auto box = load_corner_box(boxes + i * stride, offset);
      x1.push_back(box.x1);
      y1.push_back(box.y1);
      x2.push_back(box.x2);
      y2.push_back(box.y2);
      area.push_back(box.area);
    }
  }

  CornerBox<T> operator[](int64_t i) const {
    return {x1[i], y1[i], x2[i], y2[i], area[i]};
  }
};

template <typename T>
struct Pointers {
  const T *x1, *y1, *x2, *y2, *area;
};

template <typename T>
inline __attribute__((always_inline)) void iou_loop(
    const Pointers<T> p, const CornerBox<T> box, T offset, int64_t begin,
    int64_t end, T* iou) {
  for (int64_t i = begin; i < end; ++i)
    iou[i - begin] = corner_iou(
        box, CornerBox<T>{p.x1[i], p.y1[i], p.x2[i], p.y2[i], p.area[i]},
        offset);
}

MMTURBOX_CLONES
void iou_row(const Pointers<float>& p, const CornerBox<float>& box,
             float offset, int64_t begin, int64_t end, float* iou) {
  iou_loop(p, box, offset, begin, end, iou);
}

MMTURBOX_CLONES
void iou_row(const Pointers<double>& p, const CornerBox<double>& box,
             double offset, int64_t begin, int64_t end, double* iou) {
  iou_loop(p, box, offset, begin, end, iou);
}

// Call `use(r, iou)` for each rank r in [begin, end).
template <typename T, typename Use>
void each_iou(const Columns<T>& boxes, int64_t rank, T offset, int64_t begin,
              int64_t end, Use use) {
  constexpr int64_t kBlock = 256;
  T iou[kBlock];
  const Pointers<T> p{boxes.x1.data(), boxes.y1.data(), boxes.x2.data(),
                      boxes.y2.data(), boxes.area.data()};
  for (int64_t b = begin; b < end; b += kBlock) {
    const int64_t e = std::min(b + kBlock, end);
    iou_row(p, boxes[rank], offset, b, e, iou);
    for (int64_t r = b; r < e; ++r) use(r, iou[r - b]);
  }
}

template <typename T>
std::vector<int64_t> nms_keep(const T* data, const T* scores, int64_t n,
                              T threshold, T offset) {
  const auto order = score_order(scores, n, 1);
  const Columns<T> boxes(data, 4, order, offset);
  std::vector<int64_t> keep;
  greedy_nms(
      n, 8192, [&](int64_t rank) { keep.push_back(order[rank]); },
      [&](int64_t rank, int64_t begin, int64_t end, uint8_t* removed) {
        each_iou(boxes, rank, offset, begin, end, [=](int64_t r, T iou) {
          removed[r] |= iou > threshold;
        });
      });
  return keep;
}

Tensor nms(const Tensor& boxes_in, const Tensor& scores_in, double threshold,
           int64_t offset) {
  Tensor boxes = torch::stable::contiguous(boxes_in);
  Tensor scores = torch::stable::contiguous(scores_in);
  MMTURBOX_DISPATCH_FLOAT(boxes.scalar_type(), "nms", {
    return to_tensor(
        nms_keep(boxes.const_data_ptr<scalar_t>(),
                 scores.const_data_ptr<scalar_t>(), boxes.size(0),
                 static_cast<scalar_t>(threshold),
                 static_cast<scalar_t>(offset)),
        boxes);
  });
}

// members: the boxes, group after group, the kept one first; sizes: how many
// each group has.
template <typename T>
void match_groups(const T* dets, int64_t n, T threshold,
                  std::vector<int64_t>& members, std::vector<int64_t>& sizes) {
  const auto order = score_order(dets + 4, n, 5);
  const Columns<T> boxes(dets, 5, order, T(0));
  std::vector<int64_t> owner(n, -1);
  // One range at a time (grain n): `owner` tells who suppressed a box.
  greedy_nms(
      n, n + 1,
      [&](int64_t rank) {
        owner[rank] = static_cast<int64_t>(sizes.size());
        sizes.push_back(1);
      },
      [&](int64_t rank, int64_t begin, int64_t end, uint8_t* removed) {
        each_iou(boxes, rank, T(0), begin, end, [&](int64_t r, T iou) {
          if (removed[r] || !(iou >= threshold)) return;
          removed[r] = 1;
          owner[r] = owner[rank];
          ++sizes[owner[r]];
        });
      });
  std::vector<int64_t> next(sizes.size(), 0);
  for (size_t g = 1; g < sizes.size(); ++g)
    next[g] = next[g - 1] + sizes[g - 1];
  members.resize(n);
  for (int64_t r = 0; r < n; ++r) members[next[owner[r]]++] = order[r];
}

std::tuple<Tensor, Tensor> nms_match(const Tensor& dets_in, double threshold) {
  Tensor dets = torch::stable::contiguous(dets_in);
  std::vector<int64_t> members, sizes;
  MMTURBOX_DISPATCH_FLOAT(dets.scalar_type(), "nms_match", {
    match_groups(dets.const_data_ptr<scalar_t>(), dets.size(0),
                 static_cast<scalar_t>(threshold), members, sizes);
  });
  return {to_tensor(members, dets), to_tensor(sizes, dets)};
}

template <typename T>
struct Scored {
  CornerBox<T> box;
  T score;
  int64_t index;
};

template <typename T>
MMTURBOX_HD T soft_weight(T iou, int64_t method, T threshold, T sigma) {
  if (method == 2) return std::exp(-(iou * iou) / sigma);
  if (!(iou >= threshold)) return 1;
  return method == 1 ? 1 - iou : T(0);
}

// Reorders `boxes` so that the kept ones stand first, by falling score.
template <typename T>
void soften(std::vector<Scored<T>>& boxes, T threshold, T sigma, T min_score,
            int64_t method, T offset) {
  for (size_t done = 0; done < boxes.size(); ++done) {
    size_t best = done;
    for (size_t i = done + 1; i < boxes.size(); ++i)
      if (boxes[best].score < boxes[i].score) best = i;
    // A rotation, not a swap: the others keep their order, so that among
    // equal scores the lower index goes on winning.
    std::rotate(boxes.begin() + done, boxes.begin() + best,
                boxes.begin() + best + 1);
    size_t out = done + 1;
    for (size_t i = done + 1; i < boxes.size(); ++i) {
      Scored<T> other = boxes[i];
      const T iou = corner_iou(boxes[done].box, other.box, offset);
      other.score *= soft_weight(iou, method, threshold, sigma);
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
    soften(all, static_cast<scalar_t>(threshold),
           static_cast<scalar_t>(sigma), static_cast<scalar_t>(min_score),
           method, static_cast<scalar_t>(offset));
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
