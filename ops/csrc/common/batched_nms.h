// Which box suppresses which, one test a kind of box; CPU and CUDA kernels.
//
// A test has `load`, which prepares a box once; `near`, which is cheap and
// never false where the answer is yes; and `suppresses`, the answer.
#pragma once

#include <limits>

#include "box_iou_rotated.h"
#include "nms.h"

namespace mmturbox {

enum NmsKind : int64_t { kAligned = 0, kRotated = 1, kCircle = 2 };

// IoU of boxes given by corners; `inclusive` also drops a box at the
// threshold itself.
template <typename T>
struct AlignedTest {
  using Input = T;
  using Scalar = T;
  using Item = CornerBox<T>;
  static constexpr int kColumns = 4, kFields = 5;
  T threshold, low, offset;
  bool inclusive;

  explicit AlignedTest(double limit, int64_t sides = 0,
                       bool with_equal = false)
      : threshold(static_cast<T>(limit)),
        low(threshold * T(0.99999)),
        offset(static_cast<T>(sides)),
        inclusive(with_equal) {
    // Then an overlap of zero may suppress: `near` lets everything through.
    if (threshold < 0 || (inclusive && threshold == 0))
      low = std::numeric_limits<T>::quiet_NaN();
  }

  MMTURBOX_HD Item load(const T* box) const {
    return load_corner_box(box, offset);
  }

  MMTURBOX_HD static Item at(const T* const* fields, int64_t i) {
    return {fields[0][i], fields[1][i], fields[2][i], fields[3][i],
            fields[4][i]};
  }

  // Without a division, which only the few that pass need.
  MMTURBOX_HD bool near(const Item& a, const Item& b) const {
    const T overlap = corner_overlap(a, b, offset);
    return !(overlap <= low * (a.area + b.area - overlap));
  }

  MMTURBOX_HD bool suppresses(const Item& a, const Item& b) const {
    const T iou = corner_iou(a, b, offset);
    return iou > threshold || (inclusive && iou == threshold);
  }
};

// IoU of rotated boxes, in double whatever the input is.
template <typename T>
struct RotatedTest {
  using Input = T;
  using Scalar = double;
  struct Item {
    RotatedBox<double> box;
    double reach;
  };
  static constexpr int kColumns = 5, kFields = 7;
  T threshold;

  explicit RotatedTest(double limit) : threshold(static_cast<T>(limit)) {}

  MMTURBOX_HD Item load(const T* box) const {
    const RotatedBox<double> b = load_rotated_box<double>(box);
    // Half a diagonal, with room for its rounding. Below zero even boxes
    // that are apart suppress each other.
    const double half =
        std::sqrt(b.half_w * b.half_w + b.half_h * b.half_h) * (1 + 1e-9);
    return {b, threshold < 0 ? std::numeric_limits<double>::infinity() : half};
  }

  MMTURBOX_HD static Item at(const double* const* f, int64_t i) {
    return {{f[0][i], f[1][i], f[2][i], f[3][i], f[4][i], f[5][i]}, f[6][i]};
  }

  MMTURBOX_HD bool near(const Item& a, const Item& b) const {
    const double dx = a.box.x - b.box.x, dy = a.box.y - b.box.y;
    const double reach = a.reach + b.reach;
    return !(dx * dx + dy * dy > reach * reach);
  }

  MMTURBOX_HD bool suppresses(const Item& a, const Item& b) const {
    return static_cast<T>(rotated_iou(a.box, b.box, kIou)) > threshold;
  }
};

// Squared distance of centres, at most the threshold.
template <typename T>
struct CircleTest {
  using Input = T;
  using Scalar = T;
  struct Item {
    T x, y;
  };
  static constexpr int kColumns = 2, kFields = 2;
  T threshold;

  // The largest T that is not above `limit`: the same answers as comparing
  // in double.
  explicit CircleTest(double limit) : threshold(static_cast<T>(limit)) {
    if (static_cast<double>(threshold) > limit)
      threshold = std::nextafter(threshold,
                                 -std::numeric_limits<T>::infinity());
  }

  MMTURBOX_HD Item load(const T* box) const { return {box[0], box[1]}; }

  MMTURBOX_HD static Item at(const T* const* fields, int64_t i) {
    return {fields[0][i], fields[1][i]};
  }

  MMTURBOX_HD bool near(const Item& a, const Item& b) const {
    return suppresses(a, b);
  }

  MMTURBOX_HD bool suppresses(const Item& a, const Item& b) const {
    const T dx = a.x - b.x, dy = a.y - b.y;
    return rounded_product(dx, dx) + rounded_product(dy, dy) <= threshold;
  }
};

}  // namespace mmturbox
