// CUDA's execution model on one CPU thread, for tests without a GPU.
//
// A block runs at a time; its threads are fibers that run until a barrier or
// a warp operation makes them wait. The order in which they run changes from
// round to round and shared memory is filled with rubbish before each block,
// so that a missing barrier or initialisation shows as a wrong result. A
// barrier that some thread never reaches is an error, and so is a write past
// the end of shared memory. Nothing is said about speed, memory ordering
// between blocks, or races that need true concurrency.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
  unsigned x, y, z;
  // NOLINTNEXTLINE: CUDA's converts too.
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1)
      : x(x), y(y), z(z) {}
};
using uint3 = dim3;

#define MMTURBOX_SHIM_VECTOR(type, name)                                    \
  struct alignas(2 * sizeof(type)) name##2 {                                \
    type x, y;                                                              \
  };                                                                        \
  struct name##3 {                                                          \
    type x, y, z;                                                           \
  };                                                                        \
  struct alignas(16) name##4 {                                              \
    type x, y, z, w;                                                        \
  };                                                                        \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }          \
  inline name##3 make_##name##3(type x, type y, type z) {                   \
    return {x, y, z};                                                       \
  }                                                                         \
  inline name##4 make_##name##4(type x, type y, type z, type w) {           \
    return {x, y, z, w};                                                    \
  }
MMTURBOX_SHIM_VECTOR(float, float)
MMTURBOX_SHIM_VECTOR(int, int)
#undef MMTURBOX_SHIM_VECTOR

namespace mmturbox {
namespace shim {

extern dim3 thread_index, block_index, block_size, grid_size;

void launch(const char* name, dim3 grid, dim3 block, int64_t shared_bytes,
            const std::function<void()>& thread);
// The block's memory of one declaration, known by the address of `key`.
void* shared(const void* key, int64_t bytes);
void* dynamic_shared();
void block_barrier();
void warp_barrier(unsigned mask);
// Slot of `lane` in the caller's warp, for values that lanes exchange.
uint64_t& slot(unsigned lane);
unsigned lane();

template <typename T>
T exchange(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "at most eight bytes");
  std::memcpy(&slot(lane()), &value, sizeof(T));
  warp_barrier(mask);
  std::memcpy(&value, &slot(source % 32), sizeof(T));
  warp_barrier(mask);
  return value;
}

}  // namespace shim
}  // namespace mmturbox

#define threadIdx ::mmturbox::shim::thread_index
#define blockIdx ::mmturbox::shim::block_index
#define blockDim ::mmturbox::shim::block_size
#define gridDim ::mmturbox::shim::grid_size

#define MMTURBOX_SHARED(type, name, count)                                  \
  static const char name##_key = 0;                                         \
  auto& name = *static_cast<type(*)[count]>(                                \
      ::mmturbox::shim::shared(&name##_key, sizeof(type[count])))

#define MMTURBOX_DYNAMIC_SHARED(type, name)                                 \
  type* name = static_cast<type*>(::mmturbox::shim::dynamic_shared())

#define MMTURBOX_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)     \
  ::mmturbox::shim::launch(#kernel, grid, block, shared_bytes,              \
                           [&] { (kernel)(__VA_ARGS__); })

inline void __syncthreads() { mmturbox::shim::block_barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  mmturbox::shim::warp_barrier(mask);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source) {
  return mmturbox::shim::exchange(mask, value, source);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return mmturbox::shim::exchange(mask, value, mmturbox::shim::lane() ^ lanes);
}
// A lane whose source lies outside the warp keeps its own value.
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta) {
  const unsigned own = mmturbox::shim::lane();
  return mmturbox::shim::exchange(mask, value,
                                  own + delta < 32 ? own + delta : own);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta) {
  const unsigned own = mmturbox::shim::lane();
  return mmturbox::shim::exchange(mask, value,
                                  own >= delta ? own - delta : own);
}
unsigned __ballot_sync(unsigned mask, int predicate);
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == 0xffffffffu;
}

// Only the types that CUDA has the operation for.
#define MMTURBOX_SHIM_ATOMIC(name, type, result)                            \
  inline type name(type* address, type value) {                             \
    const type old = *address;                                              \
    *address = static_cast<type>(result);                                   \
    return old;                                                             \
  }
#define MMTURBOX_SHIM_ATOMICS(type)                                         \
  MMTURBOX_SHIM_ATOMIC(atomicAdd, type, old + value)                        \
  MMTURBOX_SHIM_ATOMIC(atomicExch, type, value)                             \
  MMTURBOX_SHIM_ATOMIC(atomicMax, type, old > value ? old : value)          \
  MMTURBOX_SHIM_ATOMIC(atomicMin, type, old < value ? old : value)          \
  MMTURBOX_SHIM_ATOMIC(atomicAnd, type, old & value)                        \
  MMTURBOX_SHIM_ATOMIC(atomicOr, type, old | value)                         \
  inline type atomicCAS(type* address, type expected, type value) {         \
    const type old = *address;                                              \
    if (old == expected) *address = value;                                  \
    return old;                                                             \
  }
MMTURBOX_SHIM_ATOMICS(int)
MMTURBOX_SHIM_ATOMICS(unsigned)
MMTURBOX_SHIM_ATOMICS(unsigned long long)
MMTURBOX_SHIM_ATOMIC(atomicMax, long long, old > value ? old : value)
MMTURBOX_SHIM_ATOMIC(atomicMin, long long, old < value ? old : value)
MMTURBOX_SHIM_ATOMIC(atomicAdd, float, old + value)
MMTURBOX_SHIM_ATOMIC(atomicAdd, double, old + value)
MMTURBOX_SHIM_ATOMIC(atomicExch, float, value)
#undef MMTURBOX_SHIM_ATOMICS
#undef MMTURBOX_SHIM_ATOMIC

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(x); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(x); }

template <typename To, typename From>
To mmturbox_shim_bits(From from) {
  To to;
  static_assert(sizeof(To) == sizeof(From), "same size");
  std::memcpy(&to, &from, sizeof(To));
  return to;
}
inline int __float_as_int(float x) { return mmturbox_shim_bits<int>(x); }
inline float __int_as_float(int x) { return mmturbox_shim_bits<float>(x); }
inline unsigned __float_as_uint(float x) {
  return mmturbox_shim_bits<unsigned>(x);
}
inline float __uint_as_float(unsigned x) {
  return mmturbox_shim_bits<float>(x);
}
inline long long __double_as_longlong(double x) {
  return mmturbox_shim_bits<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return mmturbox_shim_bits<double>(x);
}
template <typename T>
T __ldg(const T* address) {
  return *address;
}
inline void __threadfence() {}
using std::max;
using std::min;
