// The only torch headers a binding may use: the stable ABI (floor 2.10).
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

namespace mmturbox {

using torch::stable::Tensor;
using torch::headeronly::ScalarType;

// Dispatch a templated call on float32 / float64; BODY uses `scalar_t`.
#define MMTURBOX_DISPATCH_FLOAT(TYPE, NAME, ...)                            \
  do {                                                                      \
    if ((TYPE) == ::torch::headeronly::ScalarType::Float) {                 \
      using scalar_t = float;                                               \
      __VA_ARGS__                                                           \
    } else if ((TYPE) == ::torch::headeronly::ScalarType::Double) {         \
      using scalar_t = double;                                              \
      __VA_ARGS__                                                           \
    } else {                                                                \
      STD_TORCH_CHECK(false, NAME ": expected float32 or float64");         \
    }                                                                       \
  } while (0)

}  // namespace mmturbox

// A hot loop compiled for several instruction sets in one binary. Put it on
// non-inline functions that take raw pointers only.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MMTURBOX_CLONES                                                     \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3",          \
                               "default")))
#else
#define MMTURBOX_CLONES
#endif
