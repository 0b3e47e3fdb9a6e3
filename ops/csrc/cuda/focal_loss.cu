// CUDA kernels of the sigmoid and the softmax focal loss.
#include "focal_loss.h"

#include "loss_kernels.h"

namespace mmturbox {
namespace {

// Reads 4 bytes an element (2 in half precision, and 4 more with dense
// targets) and writes 4: 49 MB at 76,800 x 80 with labels and slope.
template <int kGamma, typename T, typename C>
struct SigmoidElement {
  const T* input;
  const int64_t* labels;
  const C* dense;
  C gamma, alpha;
  int64_t columns, count;

  MMTURBOX_HD LossAndSlope<C> operator()(int64_t i) const {
    C target;
    if (labels == nullptr) {
      target = dense[i];
    } else if (count < 0xffffffffLL) {
      const uint32_t row =
          static_cast<uint32_t>(i) / static_cast<uint32_t>(columns);
      target = labels[row] == i - row * columns;
    } else {
      target = labels[i / columns] == i % columns;
    }
    return sigmoid_focal<kGamma, LibraryMath<C>>(static_cast<C>(input[i]),
                                                 target, gamma, alpha);
  }
};

template <typename T>
__device__ T warp_sum(T value) {
  for (int lanes = 16; lanes > 0; lanes /= 2)
    value += __shfl_xor_sync(kFullWarp, value, lanes);
  return value;
}

// A warp takes a row. Reads 4 bytes an element three times, twice of them
// from the cache, and writes 4.
template <typename T, typename C>
__global__ void __launch_bounds__(kThreads)
    softmax_kernel(const T* input, const int64_t* labels, C gamma, C alpha,
                   int64_t rows, LossOptions<C> options, C* loss, C* slope,
                   C* sums) {
  MMTURBOX_SHARED(C, shared, kThreads / 32);
  const int64_t row = blockIdx.x * kSoftmaxRows + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int64_t columns = row < rows ? options.columns : 0;
  const T* x = input + row * options.columns;
  C top = -INFINITY;
  for (int64_t k = lane; k < columns; k += 32) {
    const C value = static_cast<C>(x[k]);
    top = value > top ? value : top;
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const C other = __shfl_xor_sync(kFullWarp, top, lanes);
    top = other > top ? other : top;
  }
  C sum = 0;
  for (int64_t k = lane; k < columns; k += 32)
    sum += std::exp(static_cast<C>(x[k]) - top);
  sum = warp_sum(sum);
  const int64_t label = columns > 0 ? labels[row] : -1;
  const bool known = label >= 0 && label < columns;
  LossAndSlope<C> of{0, 0};
  if (known) {
    of = softmax_focal(static_cast<C>(x[label]) - top - std::log(sum), gamma,
                       alpha);
    C weight = loss_scale(options);
    if (options.weight != nullptr) weight *= options.weight[row];
    of.loss *= weight;
    of.slope *= weight;
  }
  if (slope != nullptr)
    for (int64_t k = lane; k < columns; k += 32)
      slope[row * columns + k] =
          known ? of.slope * ((k == label) -
                              std::exp(static_cast<C>(x[k]) - top) / sum)
                : C(0);
  if (sums == nullptr) {
    if (row < rows && lane == 0) loss[row] = of.loss;
    return;
  }
  const C total = block_sum(lane == 0 ? of.loss : C(0), shared);
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

}  // namespace

template <typename T, typename C>
void sigmoid_focal_loss_cuda(const T* input, const int64_t* labels,
                             const C* dense, double gamma, double alpha,
                             const LossOptions<C>& options, C* loss, C* slope,
                             C* sums, Stream stream) {
  const C g = static_cast<C>(gamma), a = static_cast<C>(alpha);
  if (gamma == 2)
    run_elementwise(
        SigmoidElement<2, T, C>{input, labels, dense, g, a, options.columns,
                                options.count},
        options, loss, slope, sums, stream);
  else
    run_elementwise(
        SigmoidElement<0, T, C>{input, labels, dense, g, a, options.columns,
                                options.count},
        options, loss, slope, sums, stream);
}

template <typename T, typename C>
void softmax_focal_loss_cuda(const T* input, const int64_t* labels,
                             double gamma, double alpha, int64_t rows,
                             const LossOptions<C>& options, C* loss, C* slope,
                             C* sums, Stream stream) {
  static_assert(kSoftmaxRows * 32 == kThreads, "a warp a row");
  const int64_t blocks = ceil_div(rows, kSoftmaxRows);
  MMTURBOX_LAUNCH((softmax_kernel<T, C>), grid_of(blocks), kThreads, 0,
                  stream, input, labels, static_cast<C>(gamma),
                  static_cast<C>(alpha), rows, options, loss, slope, sums);
  if (sums != nullptr)
    MMTURBOX_LAUNCH((sum_kernel<C>), 1u, kThreads, 0, stream, sums, blocks,
                    loss);
}

#define MMTURBOX_INSTANCE(T, C)                                             \
  template void sigmoid_focal_loss_cuda(                                    \
      const T*, const int64_t*, const C*, double, double,                   \
      const LossOptions<C>&, C*, C*, C*, Stream);                           \
  template void softmax_focal_loss_cuda(                                    \
      const T*, const int64_t*, double, double, int64_t,                    \
      const LossOptions<C>&, C*, C*, C*, Stream);
MMTURBOX_INSTANCE(float, float)
MMTURBOX_INSTANCE(double, double)
MMTURBOX_INSTANCE(Half, float)
MMTURBOX_INSTANCE(BFloat16, float)
#undef MMTURBOX_INSTANCE

}  // namespace mmturbox
