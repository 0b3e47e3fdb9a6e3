// Launch of knn.cu.
#pragma once

#include <cstdint>

namespace mmturbox {

using Stream = void*;

template <typename T>
void k_nearest_cuda(const T* points, const T* centers, int64_t clouds,
                    int64_t n, int64_t m, int64_t k, int32_t* index,
                    T* distance, Stream stream);

}  // namespace mmturbox
