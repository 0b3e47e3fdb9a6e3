// CPU kernel of mmturbox::batched_nms, and the greedy loop of all others.
//
// A box is compared with the boxes that were kept so far, not each kept box
// with all that follow: the first hit ends the search, and what was dropped
// costs nothing any more. The kept ones stand in one array a field, so that
// the cheap part of the test runs on whole vectors of them.
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>

#include "greedy_nms.h"

namespace mmturbox {
namespace {

constexpr int64_t kBlock = 256;  // boxes that wait for those before them
constexpr int64_t kTile = 64;    // kept boxes a look at the flags

// An integer as wide as the floating point it answers for.
template <typename T>
using Flag = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

// How many of `count` boxes are near `item`, and which.
template <typename Test>
inline __attribute__((always_inline)) int64_t near_loop(
    const Test test, const typename Test::Scalar* const* fields,
    const typename Test::Item item, int64_t count,
    Flag<typename Test::Scalar>* flags) {
  Flag<typename Test::Scalar> sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    flags[i] = test.near(Test::at(fields, i), item) ? 1 : 0;
    sum += flags[i];
  }
  return sum;
}

// Clones have to be plain functions: one a test.
#define MMTURBOX_NEAR(TEST)                                                  \
  MMTURBOX_CLONES int64_t near(const TEST& test,                             \
                               const TEST::Scalar* const* fields,            \
                               const TEST::Item& item, int64_t count,        \
                               Flag<TEST::Scalar>* flags) {                  \
    return near_loop<TEST>(test, fields, item, count, flags);                \
  }
MMTURBOX_NEAR(AlignedTest<float>)
MMTURBOX_NEAR(AlignedTest<double>)
MMTURBOX_NEAR(RotatedTest<float>)
MMTURBOX_NEAR(RotatedTest<double>)
MMTURBOX_NEAR(CircleTest<float>)
MMTURBOX_NEAR(CircleTest<double>)
#undef MMTURBOX_NEAR

template <typename Test>
class KeptBoxes {
 public:
  using Scalar = typename Test::Scalar;
  using Item = typename Test::Item;

  KeptBoxes(const Test& test, int64_t capacity)
      : test_(test), data_(new Scalar[Test::kFields * capacity]) {
    static_assert(sizeof(Item) == Test::kFields * sizeof(Scalar));
    for (int k = 0; k < Test::kFields; ++k)
      fields_[k] = data_.get() + k * capacity;
  }

  int64_t size() const { return size_; }

  void push(const Item& item) {
    const Scalar* values = reinterpret_cast<const Scalar*>(&item);
    for (int k = 0; k < Test::kFields; ++k) fields_[k][size_] = values[k];
    ++size_;
  }

  // The first box of [begin, size) that suppresses `item`, or -1.
  int64_t first(const Item& item, int64_t begin) const {
    Flag<Scalar> flags[kTile];
    for (int64_t tile = begin; tile < size_; tile += kTile) {
      const Scalar* fields[Test::kFields];
      for (int k = 0; k < Test::kFields; ++k) fields[k] = fields_[k] + tile;
      const int64_t count = std::min(kTile, size_ - tile);
      if (near(test_, fields, item, count, flags) == 0) continue;
      for (int64_t i = 0; i < count; ++i)
        if (flags[i] && test_.suppresses(Test::at(fields, i), item))
          return tile + i;
    }
    return -1;
  }

 private:
  const Test test_;
  std::unique_ptr<Scalar[]> data_;
  Scalar* fields_[Test::kFields];
  int64_t size_ = 0;
};

// A sample's class, and the place of a box in the order of scores.
struct Ranked {
  int64_t sample, group, rank;
};

bool same_group(const Ranked& a, const Ranked& b) {
  return a.sample == b.sample && a.group == b.group;
}

std::vector<Ranked> by_group(const std::vector<int64_t>& order,
                             const int64_t* classes, const int64_t* samples,
                             const bool* valid) {
  std::vector<Ranked> out;
  out.reserve(order.size());
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const int64_t i = order[rank];
    if (valid == nullptr || valid[i])
      out.push_back({samples ? samples[i] : 0, classes ? classes[i] : 0,
                     static_cast<int64_t>(rank)});
  }
  if (classes || samples)
    std::sort(out.begin(), out.end(), [](const Ranked& a, const Ranked& b) {
      return std::tie(a.sample, a.group, a.rank) <
             std::tie(b.sample, b.group, b.rank);
    });
  return out;
}

// kept[rank] = 1 for each box that stays.
template <typename Test>
void suppress_groups(const Test& test, const typename Test::Input* boxes,
                     const std::vector<int64_t>& order,
                     const std::vector<Ranked>& ranked, uint8_t* kept) {
  const int64_t n = static_cast<int64_t>(ranked.size());
  std::vector<int64_t> members(n), owners(n), starts;
  for (int64_t i = 0; i < n; ++i) {
    members[i] = order[ranked[i].rank];
    if (i == 0 || !same_group(ranked[i - 1], ranked[i])) starts.push_back(i);
  }
  starts.push_back(n);
  const int64_t groups = static_cast<int64_t>(starts.size()) - 1;
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      const int64_t start = starts[g], size = starts[g + 1] - start;
      greedy_owners(test, boxes, Test::kColumns, members.data() + start, size,
                    owners.data() + start);
      for (int64_t i = 0; i < size; ++i)
        kept[ranked[start + i].rank] = owners[start + i] == i;
    }
  };
  // A single group spreads its own boxes over the threads.
  if (groups == 1)
    run(0, 1);
  else
    torch::stable::parallel_for(0, groups, 1, run);
}

template <typename T, typename Test>
void keep_boxes(const Test& test, const T* boxes, const T* scores, int64_t n,
                const int64_t* classes, const int64_t* samples,
                const bool* valid, int64_t num_samples, int64_t max_out,
                int64_t* keep, int64_t* counts) {
  const std::vector<int64_t> order = score_order(scores, n, 1);
  std::vector<uint8_t> kept(n, 0);
  suppress_groups(test, boxes, order, by_group(order, classes, samples, valid),
                  kept.data());
  std::fill(keep, keep + num_samples * max_out, int64_t(-1));
  std::fill(counts, counts + num_samples, int64_t(0));
  for (int64_t rank = 0; rank < n; ++rank) {
    if (!kept[rank]) continue;
    const int64_t sample = samples ? samples[order[rank]] : 0;
    if (sample < 0 || sample >= num_samples || counts[sample] == max_out)
      continue;
    keep[sample * max_out + counts[sample]++] = order[rank];
  }
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
    const Tensor& boxes_in, const Tensor& scores_in,
    std::optional<Tensor> classes_in, std::optional<Tensor> samples_in,
    std::optional<Tensor> valid_in, int64_t kind, double threshold,
    int64_t offset, int64_t num_samples, int64_t max_out) {
  Tensor boxes = torch::stable::contiguous(boxes_in);
  Tensor scores = torch::stable::contiguous(scores_in);
  const Optional classes(classes_in), samples(samples_in), valid(valid_in);
  Tensor keep = torch::stable::new_empty(boxes, {num_samples, max_out},
                                         ScalarType::Long);
  Tensor counts =
      torch::stable::new_empty(boxes, {num_samples}, ScalarType::Long);
  MMTURBOX_DISPATCH_FLOAT(boxes.scalar_type(), "batched_nms", {
    const auto run = [&](const auto& test) {
      keep_boxes(test, boxes.const_data_ptr<scalar_t>(),
                 scores.const_data_ptr<scalar_t>(), boxes.size(0),
                 classes.pointer<int64_t>(), samples.pointer<int64_t>(),
                 valid.pointer<bool>(), num_samples, max_out,
                 keep.mutable_data_ptr<int64_t>(),
                 counts.mutable_data_ptr<int64_t>());
    };
    if (kind == kAligned)
      run(AlignedTest<scalar_t>(threshold, offset));
    else if (kind == kRotated)
      run(RotatedTest<scalar_t>(threshold));
    else
      run(CircleTest<scalar_t>(threshold));
  });
  return {keep, counts};
}

}  // namespace

template <typename Test>
void greedy_owners(const Test& test, const typename Test::Input* boxes,
                   int64_t stride, const int64_t* order, int64_t n,
                   int64_t* owners) {
  std::vector<typename Test::Item> items(std::min(n, kBlock));
  std::vector<int64_t> ranks;
  KeptBoxes<Test> kept(test, n);
  for (int64_t start = 0; start < n; start += kBlock) {
    const int64_t stop = std::min(start + kBlock, n), before = kept.size();
    // Too few kept boxes are not worth waking another thread.
    torch::stable::parallel_for(
        start, stop, before < 1024 ? kBlock : 32,
        [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) {
            items[r - start] = test.load(boxes + order[r] * stride);
            owners[r] = kept.first(items[r - start], 0);
          }
        });
    for (int64_t r = start; r < stop; ++r) {
      if (owners[r] < 0) owners[r] = kept.first(items[r - start], before);
      if (owners[r] < 0) {
        owners[r] = kept.size();
        kept.push(items[r - start]);
        ranks.push_back(r);
      }
      owners[r] = ranks[owners[r]];
    }
  }
}

#define MMTURBOX_GREEDY(TEST)                                                \
  template void greedy_owners(const TEST&, const TEST::Input*, int64_t,      \
                              const int64_t*, int64_t, int64_t*);
MMTURBOX_GREEDY(AlignedTest<float>)
MMTURBOX_GREEDY(AlignedTest<double>)
MMTURBOX_GREEDY(RotatedTest<float>)
MMTURBOX_GREEDY(RotatedTest<double>)
MMTURBOX_GREEDY(CircleTest<float>)
MMTURBOX_GREEDY(CircleTest<double>)
#undef MMTURBOX_GREEDY

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("batched_nms", TORCH_BOX(&batched_nms));
}

}  // namespace mmturbox
