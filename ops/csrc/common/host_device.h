// Functions that both a C++ and a CUDA compiler build.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define MMTURBOX_HD __host__ __device__ __forceinline__
#else
#define MMTURBOX_HD inline
#endif
