// CPU kernels of the sigmoid and the softmax focal loss.
#include "../common/focal_loss.h"

#include <cmath>

#include "loss_chunks.h"
#include "vector_math.h"

namespace mmturbox {
namespace {

template <typename T>
struct Chunk {
  const T *input, *target, *weight;
  T *loss, *slope;  // slope may be null
  int64_t count;
  T gamma, alpha;
};

template <int kGamma, typename Math, typename T>
inline __attribute__((always_inline)) void run_chunk(const Chunk<T>& c) {
  if (c.slope == nullptr) {
    for (int64_t i = 0; i < c.count; ++i)
      c.loss[i] = c.weight[i] * sigmoid_focal<kGamma, Math>(
                                    c.input[i], c.target[i], c.gamma,
                                    c.alpha).loss;
    return;
  }
  for (int64_t i = 0; i < c.count; ++i) {
    const auto of = sigmoid_focal<kGamma, Math>(c.input[i], c.target[i],
                                                c.gamma, c.alpha);
    c.loss[i] = c.weight[i] * of.loss;
    c.slope[i] = c.weight[i] * of.slope;
  }
}

// Not templates, as clones have to be functions of their own.
MMTURBOX_CLONES void run_square(const Chunk<float>& c) {
  run_chunk<2, VectorMath>(c);
}

void run(const Chunk<float>& c) {
  if (c.gamma == 2)
    run_square(c);
  else
    run_chunk<0, LibraryMath<float>>(c);
}

void run(const Chunk<double>& c) { run_chunk<0, LibraryMath<double>>(c); }

// The targets of elements [begin, end) from the labels of their rows.
template <typename T>
void stage_labels(const int64_t* label, int64_t columns, int64_t begin,
                  int64_t end, T* staged) {
  std::fill(staged, staged + (end - begin), T(0));
  for (int64_t row = begin / columns; row * columns < end; ++row) {
    const int64_t at = row * columns + label[row];
    if (label[row] >= 0 && label[row] < columns && at >= begin && at < end)
      staged[at - begin] = 1;
  }
}

std::tuple<Tensor, Tensor> sigmoid_focal_loss(
    const Tensor& input_in, const Tensor& target_in,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& normalizer, double gamma, double alpha,
    double factor, bool reduce, bool with_slope) {
  const Tensor input = compute_tensor(input_in);
  const ScalarType type = input.scalar_type();
  const bool labels = target_in.dim() == 1;
  const Tensor target = torch::stable::contiguous(
      labels ? target_in : in_type(target_in, type));
  const LossOptions options(weight, normalizer, type, factor, reduce,
                            with_slope);
  std::tuple<Tensor, Tensor> result;
  MMTURBOX_DISPATCH_FLOAT(type, "sigmoid_focal_loss", {
    const scalar_t* x = input.const_data_ptr<scalar_t>();
    const int64_t* label = labels ? target.const_data_ptr<int64_t>() : nullptr;
    const scalar_t* dense =
        labels ? nullptr : target.const_data_ptr<scalar_t>();
    const int64_t columns = input.size(1);
    result = elementwise_loss<scalar_t>(
        input, options,
        [&](int64_t begin, int64_t end, const scalar_t* weights,
            scalar_t* loss, scalar_t* slope) {
          scalar_t staged[kLossChunk];
          if (labels) stage_labels(label, columns, begin, end, staged);
          run({x + begin, labels ? staged : dense + begin, weights, loss,
               slope, end - begin, static_cast<scalar_t>(gamma),
               static_cast<scalar_t>(alpha)});
        });
  });
  return result;
}

MMTURBOX_CLONES void exponentials(const float* x, int64_t count, float top,
                                  float* out) {
  for (int64_t k = 0; k < count; ++k)
    out[k] = VectorMath::exp_negative(top - x[k]);
}

MMTURBOX_CLONES void scale(float* values, int64_t count, float by) {
  for (int64_t k = 0; k < count; ++k) values[k] *= by;
}

void exponentials(const double* x, int64_t count, double top, double* out) {
  for (int64_t k = 0; k < count; ++k) out[k] = std::exp(x[k] - top);
}

void scale(double* values, int64_t count, double by) {
  for (int64_t k = 0; k < count; ++k) values[k] *= by;
}

// Loss of one row with its gradient in `slope`, which is scratch otherwise.
template <typename T>
T softmax_row(const T* x, int64_t columns, int64_t label, T weight, T gamma,
              T alpha, T* slope) {
  if (label < 0 || label >= columns) {
    std::fill(slope, slope + columns, T(0));
    return 0;
  }
  T top = x[0];
  for (int64_t k = 1; k < columns; ++k) top = x[k] > top ? x[k] : top;
  exponentials(x, columns, top, slope);
  const T sum = static_cast<T>(sum_of(slope, columns));
  const auto of = softmax_focal(x[label] - top - std::log(sum), gamma, alpha);
  scale(slope, columns, -of.slope * weight / sum);
  slope[label] += of.slope * weight;
  return of.loss * weight;
}

std::tuple<Tensor, Tensor> softmax_focal_loss(
    const Tensor& input_in, const Tensor& target_in,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& normalizer, double gamma, double alpha,
    double factor, bool reduce, bool with_slope) {
  const Tensor input = compute_tensor(input_in);
  const Tensor target = torch::stable::contiguous(target_in);
  const LossOptions options(weight, normalizer, input.scalar_type(), factor,
                            reduce, with_slope);
  const int64_t N = input.size(0), K = input.size(1);
  Tensor rows = torch::stable::new_zeros(input, {N});
  Tensor slope = with_slope ? torch::stable::empty_like(input)
                            : torch::stable::new_empty(input, {0});
  Tensor total = torch::stable::new_zeros(input, {});
  MMTURBOX_DISPATCH_FLOAT(input.scalar_type(), "softmax_focal_loss", {
    const scalar_t* x = input.const_data_ptr<scalar_t>();
    const int64_t* label = target.const_data_ptr<int64_t>();
    const scalar_t* w = options.weights<scalar_t>();
    scalar_t* losses = rows.mutable_data_ptr<scalar_t>();
    scalar_t* slopes = slope.mutable_data_ptr<scalar_t>();
    torch::stable::parallel_for(0, N, 128, [&](int64_t begin, int64_t end) {
      std::vector<scalar_t> scratch(with_slope ? 0 : K);
      for (int64_t n = begin; n < end; ++n)
        losses[n] = softmax_row(
            x + n * K, K, label[n],
            static_cast<scalar_t>(options.factor) * (w ? w[n] : 1),
            static_cast<scalar_t>(gamma), static_cast<scalar_t>(alpha),
            with_slope ? slopes + n * K : scratch.data());
    });
    *total.mutable_data_ptr<scalar_t>() =
        static_cast<scalar_t>(sum_of(losses, N));
  });
  return {reduce ? total : rows, slope};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("sigmoid_focal_loss", TORCH_BOX(&sigmoid_focal_loss));
  m.impl("softmax_focal_loss", TORCH_BOX(&softmax_focal_loss));
}

}  // namespace mmturbox
