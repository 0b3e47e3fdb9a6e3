// CPU kernels of the focal losses and their backward.
#include "../common/focal_loss.h"

#include "../common/stable.h"
#include "compute.h"

namespace mmturbox {
namespace {

// The arguments that all four kernels share, in one type.
template <typename T>
struct Rows {
  const int64_t* target;
  const T* weight;
  int64_t num_weights;

  T weight_of(int64_t row) const {
    const int64_t t = target[row];
    return t >= 0 && t < num_weights ? weight[t] : T(1);
  }
};

struct Arguments {
  Tensor target, weight;

  Arguments(const Tensor& target_in, const Tensor& weight_in,
            ScalarType compute)
      : target(torch::stable::contiguous(target_in)),
        weight(torch::stable::contiguous(in_type(weight_in, compute))) {}

  template <typename T>
  Rows<T> rows() const {
    return {target.const_data_ptr<int64_t>(), weight.const_data_ptr<T>(),
            weight.size(0)};
  }
};

// body(row's weight, is_positive, index) for every element.
template <typename T, typename F>
void for_each(const Rows<T>& labels, int64_t rows, int64_t classes, F body) {
  const int64_t grain = 4096 / (classes + 1) + 1;
  torch::stable::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T weight = labels.weight_of(n);
      const int64_t label = labels.target[n];
      for (int64_t k = 0; k < classes; ++k)
        body(weight, label == k, n * classes + k);
    }
  });
}

Tensor sigmoid_focal_loss(const Tensor& input_in, const Tensor& target,
                          const Tensor& weight, double gamma, double alpha) {
  Tensor input = compute_tensor(input_in);
  const Arguments arguments(target, weight, input.scalar_type());
  Tensor out = torch::stable::empty_like(input);
  MMTURBOX_DISPATCH_FLOAT(input.scalar_type(), "sigmoid_focal_loss", {
    const Rows<scalar_t> rows = arguments.rows<scalar_t>();
    const scalar_t* x = input.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    const scalar_t g = gamma, pos = alpha, neg = 1 - alpha;
    for_each(rows, input.size(0), input.size(1),
             [&](scalar_t weight, bool positive, int64_t i) {
               to[i] = (positive ? pos : neg) *
                       sigmoid_focal(positive ? x[i] : -x[i], g) *
                       weight;
             });
  });
  return in_type(out, input_in.scalar_type());
}

Tensor sigmoid_focal_loss_backward(const Tensor& grad_in,
                                   const Tensor& input_in,
                                   const Tensor& target, const Tensor& weight,
                                   double gamma, double alpha) {
  Tensor input = compute_tensor(input_in);
  Tensor grad = torch::stable::contiguous(
      in_type(grad_in, input.scalar_type()));
  const Arguments arguments(target, weight, input.scalar_type());
  Tensor out = torch::stable::empty_like(input);
  MMTURBOX_DISPATCH_FLOAT(input.scalar_type(), "sigmoid_focal_loss_backward", {
    const Rows<scalar_t> rows = arguments.rows<scalar_t>();
    const scalar_t* x = input.const_data_ptr<scalar_t>();
    const scalar_t* from = grad.const_data_ptr<scalar_t>();
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    const scalar_t g = gamma, pos = alpha, neg = alpha - 1;
    for_each(rows, input.size(0), input.size(1),
             [&](scalar_t weight, bool positive, int64_t i) {
               to[i] = (positive ? pos : neg) *
                       sigmoid_focal_slope(positive ? x[i] : -x[i], g) *
                       weight * from[i];
             });
  });
  return in_type(out, input_in.scalar_type());
}

template <typename T>
void softmax_row(const T* x, int64_t classes, T* out) {
  T top = x[0], sum = 0;
  for (int64_t k = 1; k < classes; ++k) top = x[k] > top ? x[k] : top;
  for (int64_t k = 0; k < classes; ++k) sum += out[k] = std::exp(x[k] - top);
  for (int64_t k = 0; k < classes; ++k) out[k] /= sum;
}

std::tuple<Tensor, Tensor> softmax_focal_loss(const Tensor& input_in,
                                              const Tensor& target,
                                              const Tensor& weight,
                                              double gamma, double alpha) {
  Tensor input = compute_tensor(input_in);
  const int64_t N = input.size(0), K = input.size(1);
  const Arguments arguments(target, weight, input.scalar_type());
  Tensor probability = torch::stable::empty_like(input);
  Tensor loss = torch::stable::new_zeros(input, {N});
  MMTURBOX_DISPATCH_FLOAT(input.scalar_type(), "softmax_focal_loss", {
    const Rows<scalar_t> rows = arguments.rows<scalar_t>();
    const scalar_t* x = input.const_data_ptr<scalar_t>();
    scalar_t* p = probability.mutable_data_ptr<scalar_t>();
    scalar_t* to = loss.mutable_data_ptr<scalar_t>();
    torch::stable::parallel_for(0, N, 256, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        if (K > 0) softmax_row(x + n * K, K, p + n * K);
        const int64_t label = rows.target[n];
        if (label < 0 || label >= K) continue;
        to[n] = static_cast<scalar_t>(alpha) * rows.weight_of(n) *
                softmax_focal(p[n * K + label], static_cast<scalar_t>(gamma));
      }
    });
  });
  return {in_type(loss, input_in.scalar_type()), probability};
}

Tensor softmax_focal_loss_backward(const Tensor& grad_in,
                                   const Tensor& probability_in,
                                   const Tensor& target, const Tensor& weight,
                                   double gamma, double alpha) {
  Tensor probability = compute_tensor(probability_in);
  const int64_t N = probability.size(0), K = probability.size(1);
  Tensor grad = torch::stable::contiguous(
      in_type(grad_in, probability.scalar_type()));
  const Arguments arguments(target, weight, probability.scalar_type());
  Tensor out = torch::stable::new_zeros(probability, {N, K});
  MMTURBOX_DISPATCH_FLOAT(
      probability.scalar_type(), "softmax_focal_loss_backward", {
        const Rows<scalar_t> rows = arguments.rows<scalar_t>();
        const scalar_t* p = probability.const_data_ptr<scalar_t>();
        const scalar_t* from = grad.const_data_ptr<scalar_t>();
        scalar_t* to = out.mutable_data_ptr<scalar_t>();
        for (int64_t n = 0; n < N; ++n) {
          const int64_t label = rows.target[n];
          if (label < 0 || label >= K) continue;
          const scalar_t slope =
              static_cast<scalar_t>(alpha) * rows.weight_of(n) * from[n] *
              softmax_focal_slope(p[n * K + label],
                                  static_cast<scalar_t>(gamma));
          for (int64_t k = 0; k < K; ++k)
            to[n * K + k] = slope * ((k == label) - p[n * K + k]);
        }
      });
  return in_type(out, probability_in.scalar_type());
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("sigmoid_focal_loss", TORCH_BOX(&sigmoid_focal_loss));
  m.impl("sigmoid_focal_loss_backward",
         TORCH_BOX(&sigmoid_focal_loss_backward));
  m.impl("softmax_focal_loss", TORCH_BOX(&softmax_focal_loss));
  m.impl("softmax_focal_loss_backward",
         TORCH_BOX(&softmax_focal_loss_backward));
}

}  // namespace mmturbox
