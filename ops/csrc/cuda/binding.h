// What a host-compiled binding of CUDA kernels may use: the stable ABI, the
// current stream, and library calls that go through the dispatcher.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>

#include <array>
#include <optional>
#include <utility>

#include "../common/stable.h"

// The shim's kernels are kernels for CPU tensors in a namespace of their own.
#ifdef MMTURBOX_SHIM
#define MMTURBOX_CUDA_IMPL(m) STABLE_TORCH_LIBRARY_IMPL(mmturbox_shim, CPU, m)
#else
#define MMTURBOX_CUDA_IMPL(m) STABLE_TORCH_LIBRARY_IMPL(mmturbox, CUDA, m)
#endif

namespace mmturbox {

using Stream = void*;

// The device of `tensor` is current while this lives; converts to the stream
// that PyTorch uses on it.
class Launch {
 public:
  explicit Launch(const Tensor& tensor)
#ifdef MMTURBOX_SHIM
  {
  }
  operator Stream() const { return nullptr; }
#else
      : index_(tensor.get_device_index()), guard_(index_) {
  }
  operator Stream() const {
    void* stream = nullptr;
    STABLE_TORCH_ERROR_CODE_CHECK(
        aoti_torch_get_current_cuda_stream(index_, &stream));
    return stream;
  }

 private:
  int32_t index_;
  torch::stable::accelerator::DeviceGuard guard_;
#endif
};

// Ascending and stable along the last dimension: (values, order as int64).
inline std::pair<Tensor, Tensor> stable_sort(const Tensor& keys) {
  using torch::stable::detail::from;
  using torch::stable::detail::to;
  std::array<StableIValue, 4> stack{from(keys),
                                    from(std::optional<bool>(true)),
                                    from(int64_t{-1}), from(false)};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(
      "aten::sort", "stable", stack.data(), TORCH_ABI_VERSION));
  return {to<Tensor>(stack[0]), to<Tensor>(stack[1])};
}

// Running sum along dimension 0, of integers as int64.
inline Tensor cumsum(const Tensor& input) {
  using torch::stable::detail::from;
  std::array<StableIValue, 3> stack{from(input), from(int64_t{0}),
                                    from(std::nullopt)};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(
      "aten::cumsum", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

// A copy on the host. It waits for the device: the one read of an operator
// whose output size depends on the data.
inline Tensor host_copy(const Tensor& tensor) {
  return torch::stable::to(
      torch::stable::contiguous(tensor),
      torch::stable::Device(torch::headeronly::DeviceType::CPU));
}

// The one int64 in `tensor`, read as host_copy does.
inline int64_t read_int64(const Tensor& tensor) {
  return *host_copy(tensor).const_data_ptr<int64_t>();
}

}  // namespace mmturbox
