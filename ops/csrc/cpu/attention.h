// What attention to maps of several scales is given, checked, on the CPU.
#pragma once

#include <cstdint>
#include <optional>

#include "../common/stable.h"

namespace mmturbox {

// Maps one after the other: (height, width) and first cell of each.
struct Levels {
  const int64_t *shapes, *starts;
  int64_t count, cells;
};

struct MapLevels {
  Tensor shapes, starts;
  int64_t cells;

  MapLevels(const Tensor& shapes_in, const Tensor& starts_in,
            int64_t cells_in)
      : shapes(torch::stable::contiguous(shapes_in)),
        starts(torch::stable::contiguous(starts_in)),
        cells(cells_in) {
    const Levels levels = view();
    for (int64_t i = 0; i < levels.count; ++i) {
      const int64_t h = levels.shapes[i * 2], w = levels.shapes[i * 2 + 1];
      const int64_t start = levels.starts[i];
      STD_TORCH_CHECK(h >= 0 && w >= 0 && start >= 0 && start <= cells &&
                          (w == 0 || h <= (cells - start) / w),
                      "attention: level ", i, " of ", h, " x ", w,
                      " cells from ", start, " reaches out of the ", cells,
                      " cells of value");
    }
  }

  Levels view() const {
    return {shapes.const_data_ptr<int64_t>(),
            starts.const_data_ptr<int64_t>(), starts.numel(), cells};
  }
};

// The images that hits read and the rows that they count for: row n has the
// hits from begin(n) to end(n). Without lists each hit is a row, and images
// have equally many. Rows of a group may share parts of a map, rows of two
// groups do not.
struct Hits {
  const int64_t *images, *offsets;
  int64_t rows, per_image, groups;

  int64_t image(int64_t t) const { return images ? images[t] : t / per_image; }
  int64_t begin(int64_t row) const { return offsets ? offsets[row] : row; }
  int64_t end(int64_t row) const {
    return offsets ? offsets[row + 1] : row + 1;
  }
  int64_t group_begin(int64_t group) const {
    return groups > 0 ? rows / groups * group : 0;
  }
};

class HitList {
 public:
  HitList(int64_t hits, int64_t images, const std::optional<Tensor>& image,
          const std::optional<Tensor>& offsets) {
    if (!offsets.has_value()) {
      view_ = {nullptr, nullptr, hits, images > 0 ? hits / images : 0,
               images};
      return;
    }
    image_ = torch::stable::contiguous(*image);
    offsets_ = torch::stable::contiguous(*offsets);
    view_ = {image_->const_data_ptr<int64_t>(),
             offsets_->const_data_ptr<int64_t>(), offsets_->numel() - 1, 0,
             1};
    const int64_t* at = view_.offsets;
    STD_TORCH_CHECK(at[0] >= 0 && at[view_.rows] <= hits,
                    "attention: offsets reach out of the ", hits, " hits");
    for (int64_t n = 0; n < view_.rows; ++n)
      STD_TORCH_CHECK(at[n] <= at[n + 1],
                      "attention: offsets go down after row ", n);
    for (int64_t t = at[0]; t < at[view_.rows]; ++t)
      STD_TORCH_CHECK(view_.images[t] >= 0 && view_.images[t] < images,
                      "attention: hit ", t, " reads image ", view_.images[t],
                      " of ", images);
  }

  Hits view() const { return view_; }

 private:
  std::optional<Tensor> image_, offsets_;
  Hits view_{};
};

}  // namespace mmturbox
