// Focal losses of one element and their slopes; shared by CPU and CUDA.
#pragma once

#include <cmath>

#include "host_device.h"

namespace mmturbox {

// mmdet's guard of a division by avg_factor: float32's machine epsilon.
constexpr double kNormalizerEps = 1.1920928955078125e-07;

// Elementary functions; the CPU has vectorised ones of the same names.
template <typename T>
struct LibraryMath {
  // exp(-a) for a >= 0.
  static MMTURBOX_HD T exp_negative(T a) { return std::exp(-a); }
  // log(1 + e) for 0 <= e <= 1.
  static MMTURBOX_HD T log_one_plus(T e) { return std::log1p(e); }
  static MMTURBOX_HD T log(T value) { return std::log(value); }
};

// base ** exponent, without a call to pow for the exponent that the caller
// knows at compile time (0: not known).
template <int kExponent, typename T>
MMTURBOX_HD T power(T base, T exponent) {
  const T squared = base * base;
  if (kExponent == 2) return squared;
  if (kExponent == 4) return squared * squared;
  return std::pow(base, exponent);
}

template <typename T>
struct LossAndSlope {
  T loss, slope;
};

// Sigmoid focal loss of the logit `x` with target `t` in [0, 1]. Everything
// follows from exp(-|x|), which never overflows, without cancellation.
// `kGamma` is gamma where that is 2, else 0.
template <int kGamma, typename Math, typename T>
MMTURBOX_HD LossAndSlope<T> sigmoid_focal(T x, T t, T gamma, T alpha) {
  const T e = Math::exp_negative(std::fabs(x));
  const T large = 1 / (1 + e), small = e * large;
  const T p = x >= 0 ? large : small;
  const T q = x >= 0 ? small : large;
  const T entropy = (x > 0 ? x : T(0)) - x * t + Math::log_one_plus(e);
  const T miss = q * t + p * (1 - t);
  const T balance = alpha * t + (1 - alpha) * (1 - t);
  // The slope of miss ** gamma by x.
  const T factor = power<kGamma>(miss, gamma);
  const T turn = p * q * (1 - 2 * t);
  const T bend = kGamma == 2 ? 2 * miss * turn
                 : miss > 0  ? gamma * factor * (turn / miss)
                             : T(0);
  return {balance * factor * entropy,
          balance * (bend * entropy + factor * (p * (1 - t) - q * t))};
}

// Gaussian focal loss of the probability `p` with target `t`, positive where
// that is 1. `kAlpha` and `kGamma` are alpha and gamma where those are 2 and
// 4, else 0.
template <int kAlpha, int kGamma, typename Math, typename T>
MMTURBOX_HD LossAndSlope<T> gaussian_focal(T p, T t, T alpha, T gamma,
                                           T positive, T negative) {
  const T eps = T(1e-12);
  const T q = 1 - p;
  const T log_p = Math::log(p + eps), log_q = Math::log(q + eps);
  const T weight_p = t == 1 ? positive : T(0);
  const T weight_q = negative * power<kGamma>(1 - t, gamma);
  const T q_alpha = power<kAlpha>(q, alpha), p_alpha = power<kAlpha>(p, alpha);
  const T q_less = kAlpha == 2 ? q : power<0>(q, alpha - 1);
  const T p_less = kAlpha == 2 ? p : power<0>(p, alpha - 1);
  return {-weight_p * log_p * q_alpha - weight_q * log_q * p_alpha,
          weight_p * (alpha * q_less * log_p - q_alpha / (p + eps)) +
              weight_q * (p_alpha / (q + eps) - alpha * p_less * log_q)};
}

// Softmax focal loss from the label's log-probability, and its slope: the
// gradient for class k is the slope times ([k is the label] - p_k).
template <typename T>
MMTURBOX_HD LossAndSlope<T> softmax_focal(T log_p, T gamma, T alpha) {
  const T p = std::exp(log_p);
  const T q = 1 - p;
  const T factor = gamma == 2 ? q * q : std::pow(q, gamma);
  const T bend = q > 0 ? gamma * (factor / q) * p * log_p : T(0);
  return {-alpha * factor * log_p, alpha * (bend - factor)};
}

}  // namespace mmturbox
