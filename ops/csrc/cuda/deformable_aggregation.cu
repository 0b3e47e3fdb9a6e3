// CUDA kernels of deformable aggregation.
//
// Sparse4D v3 with ResNet-50: 1,220 anchors of 13 points, six cameras, four
// levels, 256 channels. About a fifth of the points are visible: 20,000 x 4
// reads of four corners of 1 kB are 330 MB through the second cache in
// float32 (54 us at 6 TB/s, half of it in half precision); of device memory
// forward must move what it touches of 92 MB of maps (at most 19 us at 4.8
// TB/s), 12 MB of weights of visible points at 32 bytes a read, 1 MB of
// locations and 1 MB of output. Backward reads the same, and adds 330 MB of
// float32 atomics to the maps' gradient.
#include "deformable_aggregation.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <stdexcept>

#include "../common/bilinear.h"
#include "attention_kernels.h"

namespace mmturbox {
namespace {

constexpr int kCandidates = 128;  // Points looked at before they are used.
constexpr int64_t kStageBytes = 24 << 10, kMostBytes = 47 << 10;

// Dynamic shared memory of a block, for `points` visible points at a time:
// taps, weights and, in backward, what threads and groups sum.
struct Stage {
  int64_t points, taps, groups, threads;

  MMTURBOX_HD int64_t weights() const { return taps * groups; }
  MMTURBOX_HD int64_t partials() const { return taps * 3 * threads; }
};

template <typename T>
struct Aggregation {
  using Sum = typename SumType<T>::type;
  using Tap = StagedTap<Sum, 4>;
  AggregationShape s;
  const T* feats;
  const Sum *locations, *weights;
  SplitLogits<Sum> split;
  const int64_t *shapes, *starts;
  Stage stage;

  // The visible ones of the candidates from `first` on, in order; the whole
  // block takes part.
  __device__ int list(int64_t row, int64_t first, int32_t* visible,
                      int* count) const {
    const int64_t all = s.points * s.cameras;
    __syncthreads();
    if (threadIdx.x < 32) {
      int found = 0;
      for (int j = threadIdx.x; j < kCandidates; j += 32) {
        const int64_t i = first + j;
        const Sum* at = locations + (row * all + (i < all ? i : 0)) * 2;
        const bool here = i < all && point_visible(at[0], at[1]);
        const unsigned ballot = __ballot_sync(kFullWarp, here);
        const unsigned before = ballot & ((1u << threadIdx.x) - 1);
        if (here) visible[found + __popc(before)] = static_cast<int32_t>(i);
        found += __popc(ballot);
      }
      if (threadIdx.x == 0) *count = found;
    }
    __syncthreads();
    return *count;
  }

  // Taps and weights of `count` visible points, level after level.
  __device__ void fill(int64_t row, const int32_t* visible, int64_t count,
                       Tap* taps, Sum* staged) const {
    const int64_t b = row / s.anchors, n = row % s.anchors;
    for (int64_t j = threadIdx.x; j < count * s.levels; j += blockDim.x) {
      const int64_t level = j % s.levels, at = visible[j / s.levels];
      const int64_t map = at % s.cameras * s.levels + level;
      const int64_t height = shapes[map * 2], width = shapes[map * 2 + 1];
      const Sum* location =
          locations + (row * s.points * s.cameras + at) * 2;
      const BilinearRead<Sum> read(
          location[0] * static_cast<Sum>(width) - Sum(0.5),
          location[1] * static_cast<Sum>(height) - Sum(0.5), height, width);
      taps[j].lx = read.inside ? read.lx : Sum(0);
      taps[j].ly = read.inside ? read.ly : Sum(0);
      for (int k = 0; k < 4; ++k) {
        int64_t cell = read.inside ? read.cell(k, height, width) : -1;
        if (cell >= 0) cell += starts[map];
        taps[j].cell[k] =
            static_cast<int32_t>(cell >= 0 && cell < s.cells ? cell : -1);
      }
    }
    const int64_t each = s.levels * s.groups;
    for (int64_t j = threadIdx.x; j < count * each; j += blockDim.x) {
      const int64_t at = visible[j / each], k = at / s.cameras;
      const int64_t m = at % s.cameras, level = j % each / s.groups;
      const int64_t g = j % s.groups;
      staged[j] = weights ? weights[s.weight_at(b, n, k, m, level) + g]
                          : split_weight(split, s, b, n, k, m, level, g);
    }
    __syncthreads();
  }
};

// A block owns an anchor, a thread V of its channels; one store each.
template <typename T, int V>
__global__ void __launch_bounds__(kMostChannelVectors)
    aggregate_kernel(Aggregation<T> a, T* __restrict__ out) {
  using Sum = typename SumType<T>::type;
  using Tap = typename Aggregation<T>::Tap;
  using Vec = Pack<T, V>;
  MMTURBOX_SHARED(int32_t, visible, kCandidates);
  MMTURBOX_SHARED(int, found, 1);
  MMTURBOX_DYNAMIC_SHARED(Tap, taps);
  Sum* weights = reinterpret_cast<Sum*>(taps + a.stage.taps);
  const AggregationShape& s = a.s;
  const int64_t c = static_cast<int64_t>(threadIdx.x) * V;
  const int64_t g = c < s.width ? c / s.channels() : 0;
  for (int64_t row = blockIdx.x; row < s.batch * s.anchors;
       row += gridDim.x) {
    const T* feats = a.feats + row / s.anchors * s.cells * s.width + c;
    Sum sum[V];
    for (int v = 0; v < V; ++v) sum[v] = 0;
    for (int64_t first = 0; first < s.points * s.cameras;
         first += kCandidates) {
      const int count = a.list(row, first, visible, found);
      for (int64_t p = 0; p < count; p += a.stage.points) {
        const int64_t some =
            count - p < a.stage.points ? count - p : a.stage.points;
        a.fill(row, visible + p, some, taps, weights);
        for (int64_t j = 0; c < s.width && j < some * s.levels; ++j) {
          const Tap tap = taps[j];
          const Sum weight = weights[j * s.groups + g];
          for (int k = 0; k < 4; ++k) {
            if (tap.cell[k] < 0) continue;
            const Vec read = *reinterpret_cast<const Vec*>(
                feats + tap.cell[k] * s.width);
            const Sum share = tap.corner(k) * weight;
            for (int v = 0; v < V; ++v)
              sum[v] += share * static_cast<Sum>(read.value[v]);
          }
        }
        __syncthreads();
      }
    }
    if (c >= s.width) continue;
    Vec result;
    for (int v = 0; v < V; ++v) result.value[v] = static_cast<T>(sum[v]);
    *reinterpret_cast<Vec*>(out + row * s.width + c) = result;
  }
}

template <typename T>
struct AggregationGradients {
  using Sum = typename SumType<T>::type;
  const T* out;
  Sum *feats, *locations, *weights, *anchors, *cameras, *norm;
};

// This thread's share of the slopes of one tap by its weight, x and y; what
// it adds to the gradient of the maps.
template <typename T, int V, typename Sum>
__device__ void tap_gradient(const StagedTap<Sum, 4>& tap, const T* feats,
                             const Pack<T, V>& above, Sum weight,
                             int64_t width, Sum* to, Sum* part) {
  Sum dot[4] = {0, 0, 0, 0};
  for (int k = 0; k < 4; ++k) {
    if (tap.cell[k] < 0) continue;
    const int64_t at = tap.cell[k] * width;
    const Pack<T, V> read =
        *reinterpret_cast<const Pack<T, V>*>(feats + at);
    const Sum share = tap.corner(k) * weight;
    for (int v = 0; v < V; ++v) {
      const Sum up = static_cast<Sum>(above.value[v]);
      dot[k] += up * static_cast<Sum>(read.value[v]);
      atomicAdd(to + at + v, share * up);
    }
  }
  part[0] = part[1] = part[2] = 0;
  for (int k = 0; k < 4; ++k) part[0] += tap.corner(k) * dot[k];
  part[1] = weight * bilinear_slope_x(tap.ly, dot);
  part[2] = weight * bilinear_slope_y(tap.lx, dot);
}

// Sums what threads found, in their order: `groups` has the slopes of each
// tap and group by weight, x and y.
template <typename Sum>
__device__ void sum_groups(const Sum* partials, int64_t taps,
                           const AggregationShape& s, int64_t threads,
                           int64_t vector, Sum* groups) {
  const int64_t each = s.channels() / vector;
  for (int64_t j = threadIdx.x; j < taps * 3 * s.groups; j += blockDim.x) {
    const Sum* from =
        partials + j / s.groups * threads + j % s.groups * each;
    Sum sum = 0;
    for (int64_t i = 0; i < each; ++i) sum += from[i];
    groups[j] = sum;
  }
  __syncthreads();
}

// Writes the gradients of `count` points. Sums over points are each one
// thread's, in order; only the cameras' logits are shared with other blocks.
template <typename T>
__device__ void write_gradients(const Aggregation<T>& a, int64_t row,
                                const int32_t* visible, int64_t count,
                                const typename SumType<T>::type* weights,
                                const typename SumType<T>::type* groups,
                                const AggregationGradients<T>& grad) {
  using Sum = typename SumType<T>::type;
  const AggregationShape& s = a.s;
  const int64_t b = row / s.anchors, n = row % s.anchors;
  for (int64_t j = threadIdx.x; j < count * 2; j += blockDim.x) {
    const int64_t at = visible[j / 2], axis = j % 2;
    Sum sum = 0;
    for (int64_t level = 0; level < s.levels; ++level) {
      const Sum* from =
          groups + ((j / 2 * s.levels + level) * 3 + 1 + axis) * s.groups;
      Sum slope = 0;
      for (int64_t g = 0; g < s.groups; ++g) slope += from[g];
      const int64_t map = at % s.cameras * s.levels + level;
      sum += slope * static_cast<Sum>(a.shapes[map * 2 + 1 - axis]);
    }
    grad.locations[(row * s.points * s.cameras + at) * 2 + axis] = sum;
  }
  for (int64_t i = threadIdx.x; i < s.levels * s.groups; i += blockDim.x) {
    const int64_t level = i / s.groups, g = i % s.groups;
    for (int64_t p = 0; p < count; ++p) {
      const int64_t at = visible[p], k = at / s.cameras, m = at % s.cameras;
      const int64_t tap = p * s.levels + level;
      const Sum slope = groups[tap * 3 * s.groups + g];
      if (a.weights) {
        grad.weights[s.weight_at(b, n, k, m, level) + g] = slope;
        continue;
      }
      const Sum by_logit = slope * weights[tap * s.groups + g];
      grad.anchors[s.anchor_logit_at(row, level, k) + g] += by_logit;
      atomicAdd(grad.cameras + s.camera_logit_at(b, m, level, k) + g,
                by_logit);
    }
  }
}

// The gradient of the norm is minus the sum of those of an anchor's logits.
template <typename Sum>
__device__ void write_norm(const AggregationShape& s, int64_t row,
                           const Sum* anchors, Sum* norm) {
  __syncthreads();
  for (int64_t g = threadIdx.x; g < s.groups; g += blockDim.x) {
    Sum sum = 0;
    for (int64_t i = 0; i < s.levels * s.points; ++i)
      sum += anchors[s.anchor_logit_at(row, 0, 0) + i * s.groups + g];
    norm[row * s.groups + g] = -sum;
  }
}

template <typename T, int V>
__global__ void __launch_bounds__(kMostChannelVectors)
    aggregate_backward_kernel(Aggregation<T> a,
                              AggregationGradients<T> grad) {
  using Sum = typename SumType<T>::type;
  using Tap = typename Aggregation<T>::Tap;
  using Vec = Pack<T, V>;
  MMTURBOX_SHARED(int32_t, visible, kCandidates);
  MMTURBOX_SHARED(int, found, 1);
  MMTURBOX_DYNAMIC_SHARED(Tap, taps);
  Sum* weights = reinterpret_cast<Sum*>(taps + a.stage.taps);
  Sum* partials = weights + a.stage.weights();
  Sum* groups = partials + a.stage.partials();
  const AggregationShape& s = a.s;
  const int64_t c = static_cast<int64_t>(threadIdx.x) * V;
  const int64_t g = c < s.width ? c / s.channels() : 0;
  for (int64_t row = blockIdx.x; row < s.batch * s.anchors;
       row += gridDim.x) {
    const int64_t base = row / s.anchors * s.cells * s.width + c;
    Vec above = {};
    if (c < s.width)
      above = *reinterpret_cast<const Vec*>(grad.out + row * s.width + c);
    for (int64_t first = 0; first < s.points * s.cameras;
         first += kCandidates) {
      const int count = a.list(row, first, visible, found);
      for (int64_t p = 0; p < count; p += a.stage.points) {
        const int64_t some =
            count - p < a.stage.points ? count - p : a.stage.points;
        const int64_t num = some * s.levels;
        a.fill(row, visible + p, some, taps, weights);
        for (int64_t j = 0; c < s.width && j < num; ++j) {
          Sum part[3];
          tap_gradient(taps[j], a.feats + base, above,
                       weights[j * s.groups + g], s.width, grad.feats + base,
                       part);
          for (int i = 0; i < 3; ++i)
            partials[(j * 3 + i) * blockDim.x + threadIdx.x] = part[i];
        }
        __syncthreads();
        sum_groups(partials, num, s, blockDim.x, V, groups);
        write_gradients(a, row, visible + p, some, weights, groups, grad);
        __syncthreads();
      }
    }
    if (grad.norm) write_norm(s, row, grad.anchors, grad.norm);
  }
}

template <typename T>
Aggregation<T> aggregation_of(const AggregationArgs& args) {
  using Sum = typename SumType<T>::type;
  return {args.shape,
          static_cast<const T*>(args.feats),
          static_cast<const Sum*>(args.locations),
          static_cast<const Sum*>(args.weights),
          {static_cast<const Sum*>(args.anchors),
           static_cast<const Sum*>(args.cameras),
           static_cast<const Sum*>(args.norm),
           static_cast<const Sum*>(args.scale)},
          args.shapes,
          args.starts,
          {}};
}

// Threads for all channels, points at a time, and bytes of shared memory.
template <typename T>
int64_t plan(Aggregation<T>* a, int vector, bool backward) {
  using Sum = typename SumType<T>::type;
  Stage& stage = a->stage;
  stage.threads = ceil_div(ceil_div(a->s.width, vector), 32) * 32;
  stage.groups = a->s.groups;
  int64_t bytes = sizeof(typename Aggregation<T>::Tap) +
                  sizeof(Sum) * stage.groups;
  if (backward) bytes += sizeof(Sum) * 3 * (stage.threads + stage.groups);
  const int64_t fit = kStageBytes / (bytes * (a->s.levels + !a->s.levels));
  stage.points = fit < 1 ? 1 : (fit < kCandidates ? fit : kCandidates);
  stage.taps = stage.points * a->s.levels;
  if (stage.taps * bytes > kMostBytes)
    throw std::runtime_error(
        "mmturbox: deformable_aggregation: channels, groups and levels do "
        "not fit into shared memory");
  return stage.taps * bytes;
}

// Whether a group of channels divides into vectors of 16 bytes.
template <typename T>
bool whole_groups(const AggregationArgs& args) {
  return whole_vectors<T>(args.shape.channels(),
                          static_cast<const T*>(args.feats),
                          static_cast<const T*>(args.out));
}

}  // namespace

template <typename T>
void deformable_aggregation_cuda(const AggregationArgs& args, Stream stream) {
  constexpr int kPack = 16 / sizeof(T);
  Aggregation<T> a = aggregation_of<T>(args);
  const bool whole = whole_groups<T>(args);
  const int64_t bytes = plan(&a, whole ? kPack : 1, false);
  const unsigned blocks = grid_of(a.s.batch * a.s.anchors);
  const unsigned threads = static_cast<unsigned>(a.stage.threads);
  T* out = static_cast<T*>(args.out);
  if (threads == 0) return;
  if (whole)
    MMTURBOX_LAUNCH((aggregate_kernel<T, kPack>), blocks, threads, bytes,
                    stream, a, out);
  else
    MMTURBOX_LAUNCH((aggregate_kernel<T, 1>), blocks, threads, bytes, stream,
                    a, out);
}

template <typename T>
void deformable_aggregation_backward_cuda(const AggregationArgs& args,
                                          Stream stream) {
  using Sum = typename SumType<T>::type;
  constexpr int kPack = 16 / sizeof(T);
  Aggregation<T> a = aggregation_of<T>(args);
  const bool whole = whole_groups<T>(args);
  const int64_t bytes = plan(&a, whole ? kPack : 1, true);
  const unsigned blocks = grid_of(a.s.batch * a.s.anchors);
  const unsigned threads = static_cast<unsigned>(a.stage.threads);
  const AggregationGradients<T> grad{static_cast<const T*>(args.out),
                                     static_cast<Sum*>(args.grad_feats),
                                     static_cast<Sum*>(args.grad_locations),
                                     static_cast<Sum*>(args.grad_weights),
                                     static_cast<Sum*>(args.grad_anchors),
                                     static_cast<Sum*>(args.grad_cameras),
                                     static_cast<Sum*>(args.grad_norm)};
  if (threads == 0) return;
  if (whole)
    MMTURBOX_LAUNCH((aggregate_backward_kernel<T, kPack>), blocks, threads,
                    bytes, stream, a, grad);
  else
    MMTURBOX_LAUNCH((aggregate_backward_kernel<T, 1>), blocks, threads,
                    bytes, stream, a, grad);
}

#define MMTURBOX_AGGREGATION(T)                                             \
  template void deformable_aggregation_cuda<T>(const AggregationArgs&,      \
                                               Stream);                     \
  template void deformable_aggregation_backward_cuda<T>(                    \
      const AggregationArgs&, Stream);
MMTURBOX_AGGREGATION(float)
MMTURBOX_AGGREGATION(double)
MMTURBOX_AGGREGATION(torch::headeronly::Half)
MMTURBOX_AGGREGATION(torch::headeronly::BFloat16)

}  // namespace mmturbox
