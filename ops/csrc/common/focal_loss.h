// Focal loss of one logit or one probability; shared by CPU and CUDA.
#pragma once

#include <cmath>

#include "host_device.h"

namespace mmturbox {

// exp(-|x|) never overflows; sigmoid(x), sigmoid(-x) and log(sigmoid(x))
// follow from it without cancellation.
template <typename T>
struct Logistic {
  T p, q, log_p;

  MMTURBOX_HD explicit Logistic(T x) {
    const T e = std::exp(-std::fabs(x));
    const T large = 1 / (1 + e), small = e * large;
    p = x >= 0 ? large : small;
    q = x >= 0 ? small : large;
    // log1p(e), by way of the faster log (the quotient undoes the rounding).
    const T u = 1 + e;
    const T log_u = u == 1 ? e : std::log(u) * (e / (u - 1));
    log_p = (x < 0 ? x : T(0)) - log_u;
  }
};

// The usual exponents without a call to pow.
template <typename T>
MMTURBOX_HD T power(T base, T exponent) {
  if (exponent == 2) return base * base;
  if (exponent == 1) return base;
  return std::pow(base, exponent);
}

// Loss of a logit whose class is the positive one; a negative is a positive
// of the opposite logit.
template <typename T>
MMTURBOX_HD T sigmoid_focal(T x, T gamma) {
  const Logistic<T> s(x);
  return -power(s.q, gamma) * s.log_p;
}

template <typename T>
MMTURBOX_HD T sigmoid_focal_slope(T x, T gamma) {
  const Logistic<T> s(x);
  return power(s.q, gamma) * (gamma * s.p * s.log_p - s.q);
}

template <typename T>
MMTURBOX_HD T log_clamped(T p) {
  return std::log(p > T(1.17549435e-38) ? p : T(1.17549435e-38));
}

template <typename T>
MMTURBOX_HD T softmax_focal(T p, T gamma) {
  return -power(1 - p, gamma) * log_clamped(p);
}

// The gradient for class k is this times ([k is the label] - p_k).
template <typename T>
MMTURBOX_HD T softmax_focal_slope(T p, T gamma) {
  const T q = 1 - p;
  const T tail = q > 0 ? gamma * power(q, gamma - 1) * p * log_clamped(p) : 0;
  return tail - power(q, gamma);
}

}  // namespace mmturbox
