// CPU kernel of mmturbox::gaussian_focal_loss.
#include "loss_chunks.h"
#include "vector_math.h"

namespace mmturbox {
namespace {

template <typename T>
struct Chunk {
  const T *input, *target, *weight;
  T *loss, *slope;  // slope may be null
  int64_t count;
  T alpha, gamma, positive, negative;
};

template <int kAlpha, int kGamma, typename Math, typename T>
inline __attribute__((always_inline)) void run_chunk(const Chunk<T>& c) {
  for (int64_t i = 0; i < c.count; ++i) {
    const auto of = gaussian_focal<kAlpha, kGamma, Math>(
        c.input[i], c.target[i], c.alpha, c.gamma, c.positive, c.negative);
    c.loss[i] = c.weight[i] * of.loss;
    if (c.slope != nullptr) c.slope[i] = c.weight[i] * of.slope;
  }
}

// Not a template, as clones have to be functions of their own.
MMTURBOX_CLONES void run_usual(const Chunk<float>& c) {
  run_chunk<2, 4, VectorMath>(c);
}

void run(const Chunk<float>& c) {
  if (c.alpha == 2 && c.gamma == 4)
    run_usual(c);
  else
    run_chunk<0, 0, LibraryMath<float>>(c);
}

void run(const Chunk<double>& c) {
  run_chunk<0, 0, LibraryMath<double>>(c);
}

std::tuple<Tensor, Tensor> gaussian_focal_loss(
    const Tensor& input_in, const Tensor& target_in,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& normalizer, double alpha, double gamma,
    double positive, double negative, double factor, bool reduce,
    bool with_slope) {
  const Tensor input = compute_tensor(input_in);
  const ScalarType type = input.scalar_type();
  const Tensor target =
      torch::stable::contiguous(in_type(target_in, type));
  const LossOptions options(weight, normalizer, type, factor, reduce,
                            with_slope);
  std::tuple<Tensor, Tensor> result;
  MMTURBOX_DISPATCH_FLOAT(type, "gaussian_focal_loss", {
    const scalar_t* p = input.const_data_ptr<scalar_t>();
    const scalar_t* t = target.const_data_ptr<scalar_t>();
    result = elementwise_loss<scalar_t>(
        input, options,
        [&](int64_t begin, int64_t end, const scalar_t* weights,
            scalar_t* loss, scalar_t* slope) {
          run({p + begin, t + begin, weights, loss, slope, end - begin,
               static_cast<scalar_t>(alpha), static_cast<scalar_t>(gamma),
               static_cast<scalar_t>(positive),
               static_cast<scalar_t>(negative)});
        });
  });
  return result;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("gaussian_focal_loss", TORCH_BOX(&gaussian_focal_loss));
}

}  // namespace mmturbox
