// Which rows belong to a sample of a stacked batch; shared by the CPU and the
// CUDA kernels.
#pragma once

#include "host_device.h"

namespace mmturbox {

struct RowRange {
  int64_t begin, end;
};

// Of `num_rows` rows, counts[b] of sample b: those of the sample that holds
// item `i`, of which sample b has items[b]. Counts that claim more than there
// is are cut; an item that no sample claims has no rows.
MMTURBOX_HD RowRange rows_of_item(const int32_t* counts, const int32_t* items,
                                  int64_t samples, int64_t num_rows,
                                  int64_t i) {
  int64_t row = 0, item = 0;
  for (int64_t b = 0; b < samples; ++b) {
    int64_t end = row + (counts[b] > 0 ? counts[b] : 0);
    if (end > num_rows) end = num_rows;
    item += items[b] > 0 ? items[b] : 0;
    if (i < item) return {row, end};
    row = end;
  }
  return {0, 0};
}

}  // namespace mmturbox
