// CUDA kernel of heat maps.
#include "draw_gaussians.h"

#include "device.h"

namespace mmturbox {
namespace {

constexpr int kThreads = 128;

// A block draws a box. Floats from 0 on have the order of their bits, so that
// an integer maximum keeps the largest whatever the order of the boxes.
// Touches (2 radius + 1)^2 cells of 4 bytes, about 100 a box; the zeros
// written before, 5 MB at 4 x 10 x 180 x 180, cost more.
__global__ void __launch_bounds__(kThreads)
    draw_kernel(const int64_t* planes, const int32_t* centers,
                const int64_t* radii, const float* sizes,
                GaussianRadius radius_of, int64_t count, GaussianMaps to) {
  for (int64_t n = blockIdx.x; n < count; n += gridDim.x) {
    if (planes[n] < 0 || planes[n] >= to.planes) continue;
    const int64_t radius =
        radii != nullptr ? radii[n]
                         : radius_of.of(sizes[2 * n], sizes[2 * n + 1]);
    const int64_t x = centers[2 * n], y = centers[2 * n + 1];
    const int64_t left = x > radius ? x - radius : 0;
    const int64_t top = y > radius ? y - radius : 0;
    const int64_t right = min(x + radius + 1, to.width);
    const int64_t bottom = min(y + radius + 1, to.height);
    if (right <= left || bottom <= top) continue;
    int* map = reinterpret_cast<int*>(
        to.maps + planes[n] * to.height * to.width);
    const int64_t width = right - left;
    for (int64_t i = threadIdx.x; i < width * (bottom - top);
         i += kThreads) {
      const int64_t row = top + i / width, column = left + i % width;
      atomicMax(map + row * to.width + column,
                __float_as_int(gaussian_cell(column - x, row - y, radius)));
    }
  }
}

}  // namespace

void draw_gaussians_cuda(const int64_t* planes, const int32_t* centers,
                         const int64_t* radii, const float* sizes,
                         GaussianRadius radius, int64_t count,
                         GaussianMaps maps, Stream stream) {
  MMTURBOX_LAUNCH(draw_kernel, grid_of(count), kThreads, 0, stream, planes,
                  centers, radii, sizes, radius, count, maps);
}

}  // namespace mmturbox
