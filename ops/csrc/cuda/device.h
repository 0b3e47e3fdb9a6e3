// What a kernel file may use. nvcc takes it from CUDA; a C++ compiler takes
// it from the execution shim, which runs the same kernels without a GPU.
#pragma once

#include <cmath>
#include <cstdint>

#include "../common/host_device.h"

#ifdef __CUDACC__

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

// An array that the threads of a block share.
#define MMTURBOX_SHARED(type, name, count) __shared__ type name[count]

// The shared memory whose size the launch gives, in bytes.
#define MMTURBOX_DYNAMIC_SHARED(type, name)                                 \
  extern __shared__ __align__(16) unsigned char mmturbox_dynamic_shared[];  \
  type* name = reinterpret_cast<type*>(mmturbox_dynamic_shared)

// Start `kernel` (in parentheses where it holds a comma) unless the grid is
// empty.
#define MMTURBOX_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)     \
  do {                                                                      \
    const dim3 mmturbox_grid(grid), mmturbox_block(block);                  \
    if (mmturbox_grid.x == 0 || mmturbox_grid.y == 0 ||                     \
        mmturbox_grid.z == 0)                                               \
      break;                                                                \
    kernel<<<mmturbox_grid, mmturbox_block, shared_bytes,                   \
             static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__);             \
    ::mmturbox::check_launch(#kernel);                                      \
  } while (0)

namespace mmturbox {

inline void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("mmturbox: ") + kernel +
                             " did not start: " + cudaGetErrorString(error));
}

}  // namespace mmturbox

#else
#include "../shim/shim.h"
#endif

namespace mmturbox {

// cudaStream_t without its header.
using Stream = void*;

constexpr int64_t kMaxGridX = 2147483647;  // of y and z it is 65535
constexpr unsigned kFullWarp = 0xffffffffu;

MMTURBOX_HD constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Blocks of a kernel that strides over its work, or has a block a unit.
inline unsigned grid_of(int64_t blocks) {
  return static_cast<unsigned>(blocks < kMaxGridX ? blocks : kMaxGridX);
}

}  // namespace mmturbox
