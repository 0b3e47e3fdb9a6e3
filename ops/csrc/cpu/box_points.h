// The points of a cloud that lie in a box, in the order of the cloud.
#pragma once

#include <cstdint>
#include <vector>

#include "../common/roi_pool_box.h"

namespace mmturbox {

template <typename T>
class BoxPoints {
 public:
  BoxPoints(const T* points, int64_t n);

  // Up to `limit` of them.
  std::vector<int32_t> inside(const PoolBox<T>& box, int64_t limit) const;

 private:
  // Coordinates, filled up to whole steps by infinity.
  std::vector<T> x_, y_, z_;
};

}  // namespace mmturbox
