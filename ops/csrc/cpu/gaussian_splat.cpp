// CPU kernels of mmturbox::gaussian_splat and its backward.
#include "../common/gaussian_splat.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "../common/stable.h"
#include "vector_math.h"

namespace mmturbox {
namespace {

// Voxels above each other that are evaluated together.
constexpr int64_t kRun = 16;
// Columns of voxels that share a list of Gaussians, along x and y.
constexpr int64_t kTile = 4;

template <typename T>
struct Lanes {
  typedef T type __attribute__((vector_size(kRun * sizeof(T))));
};
template <typename T>
using Vec = typename Lanes<T>::type;

// A vector in memory of any alignment.
template <typename T>
struct Run {
  T lane[kRun];

  inline __attribute__((always_inline)) void load(Vec<T>* to) const {
    std::memcpy(to, lane, sizeof(lane));
  }
  inline __attribute__((always_inline)) void store(const Vec<T>& from) {
    std::memcpy(lane, &from, sizeof(lane));
  }
  inline __attribute__((always_inline)) T sum() const {
    T total = 0;
    for (int64_t l = 0; l < kRun; ++l) total += lane[l];
    return total;
  }
};

inline float weight_of(float distance) {
  return VectorMath::exp_negative(distance);
}
inline double weight_of(double distance) { return std::exp(-distance); }

// The Gaussians of one sample, and where its voxels are.
template <typename T>
struct Scene {
  const T *means, *table, *precisions;
  const SplatBox* boxes;
  const SplatGrid* grid;
  int64_t N, K;
};

// Weights of Gaussian `g` in the voxels (x, y, z .. z + kRun), zero where it
// does not reach, and their offsets `dz` along z.
template <typename T>
inline __attribute__((always_inline)) void weights(
    const Scene<T>& s, int64_t g, T dx, T dy, int64_t z, Run<T>* e,
    Run<T>* dz) {
  const T* p = s.precisions + g * 6;
  const T mean = s.means[g * 3 + 2];
  const int64_t low = s.boxes[g].low[2], high = s.boxes[g].high[2];
  for (int64_t l = 0; l < kRun; ++l) {
    dz->lane[l] = mean - voxel_centre<T>(z + l, 2, *s.grid);
    const T value = weight_of(splat_distance(p, dx, dy, dz->lane[l]));
    e->lane[l] = z + l >= low && z + l <= high ? value : T(0);
  }
}

// Sums over the chosen Gaussians for the columns [c, c + M) of the table.
template <typename T, int M>
inline __attribute__((always_inline)) void add_columns(
    const Scene<T>& s, const Run<T>* weight, const int32_t* chosen,
    int64_t count, int64_t c, int64_t voxels, T* out) {
  Vec<T> sum[M] = {};
  for (int64_t i = 0; i < count; ++i) {
    const T* row = s.table + chosen[i] * s.K + c;
    Vec<T> e;
    weight[i].load(&e);
    for (int k = 0; k < M; ++k) sum[k] += e * row[k];
  }
  for (int k = 0; k < M; ++k)
    for (int64_t l = 0; l < voxels; ++l) out[l * s.K + c + k] = sum[k][l];
}

// One column of voxels at (x, y); `out` and `rest` start at its first voxel.
template <typename T>
inline __attribute__((always_inline)) void splat_loop(
    const Scene<T>& s, const int32_t* list, int64_t length, int64_t x,
    int64_t y, Run<T>* weight, int32_t* chosen, T* out, T* rest) {
  const int64_t Z = s.grid->cells[2], K = s.K;
  const T px = voxel_centre<T>(x, 0, *s.grid);
  const T py = voxel_centre<T>(y, 1, *s.grid);
  for (int64_t z = 0; z < Z; z += kRun) {
    int64_t count = 0;
    for (int64_t i = 0; i < length; ++i) {
      const int32_t g = list[i];
      const SplatBox& box = s.boxes[g];
      if (x < box.low[0] || x > box.high[0] || y < box.low[1] ||
          y > box.high[1] || box.high[2] < z || box.low[2] >= z + kRun)
        continue;
      Run<T> dz;
      weights(s, g, s.means[g * 3] - px, s.means[g * 3 + 1] - py, z,
              weight + count, &dz);
      chosen[count++] = g;
    }
    const int64_t voxels = std::min(kRun, Z - z);
    int64_t c = 0;
    for (; c + 4 <= K; c += 4)
      add_columns<T, 4>(s, weight, chosen, count, c, voxels, out + z * K);
    for (; c < K; ++c)
      add_columns<T, 1>(s, weight, chosen, count, c, voxels, out + z * K);
    if (rest == nullptr) continue;
    Vec<T> product = {};
    product += T(1);
    for (int64_t i = 0; i < count; ++i) {
      Vec<T> e;
      weight[i].load(&e);
      product *= T(1) - e;
    }
    for (int64_t l = 0; l < voxels; ++l) rest[z + l] = product[l];
  }
}

// Gradients of one Gaussian: of its row of the table, kept in vectors `own`
// until the end, and nine moments. `grads` holds for each run of voxels the
// gradients of the K sums, then that of the product times the product.
template <typename T>
inline __attribute__((always_inline)) void gradient_loop(
    const Scene<T>& s, int64_t g, const Run<T>* grads, Run<T>* own,
    T* grad_table, T* moments) {
  const SplatBox& box = s.boxes[g];
  const int64_t K = s.K, Y = s.grid->cells[1];
  const int64_t runs = (s.grid->cells[2] + kRun - 1) / kRun;
  const T* row = s.table + g * K;
  Vec<T> m[9] = {};
  std::fill(own, own + K, Run<T>{});
  for (int64_t x = box.low[0]; x <= box.high[0]; ++x)
    for (int64_t y = box.low[1]; y <= box.high[1]; ++y)
      for (int64_t r = box.low[2] / kRun; r <= box.high[2] / kRun; ++r) {
        const T dx = s.means[g * 3] - voxel_centre<T>(x, 0, *s.grid);
        const T dy = s.means[g * 3 + 1] - voxel_centre<T>(y, 1, *s.grid);
        Run<T> at[2];
        weights(s, g, dx, dy, r * kRun, at, at + 1);
        Vec<T> e, dz, grad_c, own_c;
        at[0].load(&e);
        at[1].load(&dz);
        const Run<T>* grad = grads + ((x * Y + y) * runs + r) * (K + 1);
        grad[K].load(&grad_c);
        Vec<T> grad_e = -grad_c / (T(1) - e + splat_epsilon<T>());
        for (int64_t c = 0; c < K; ++c) {
          grad[c].load(&grad_c);
          own[c].load(&own_c);
          grad_e += grad_c * row[c];
          own[c].store(own_c + grad_c * e);
        }
        const Vec<T> t = e * grad_e, tz = t * dz;
        m[0] += t * dx;
        m[1] += t * dy;
        m[2] += tz;
        m[3] += t * (dx * dx);
        m[4] += t * (dy * dy);
        m[5] += tz * dz;
        m[6] += t * (dx * dy);
        m[7] += tz * dy;
        m[8] += tz * dx;
      }
  for (int64_t c = 0; c < K; ++c) grad_table[g * K + c] = own[c].sum();
  for (int k = 0; k < 9; ++k) {
    Run<T> moment;
    moment.store(m[k]);
    moments[g * 9 + k] = moment.sum();
  }
}

#define MMTURBOX_LOOPS(T)                                                   \
  MMTURBOX_CLONES void splat_column(                                        \
      const Scene<T>& s, const int32_t* list, int64_t length, int64_t x,    \
      int64_t y, Run<T>* weight, int32_t* chosen, T* out, T* rest) {        \
    splat_loop(s, list, length, x, y, weight, chosen, out, rest);           \
  }                                                                         \
  MMTURBOX_CLONES void gaussian_gradients(                                  \
      const Scene<T>& s, int64_t g, const Run<T>* grads, Run<T>* own,       \
      T* grad_table, T* moments) {                                          \
    gradient_loop(s, g, grads, own, grad_table, moments);                   \
  }
MMTURBOX_LOOPS(float)
MMTURBOX_LOOPS(double)
#undef MMTURBOX_LOOPS

// Per tile the Gaussians that reach it, ascending.
struct TileLists {
  int64_t along_y;
  std::vector<int64_t> starts;
  std::vector<int32_t> list;

  TileLists(const SplatBox* boxes, int64_t count, const SplatGrid& grid)
      : along_y((grid.cells[1] + kTile - 1) / kTile),
        starts((grid.cells[0] + kTile - 1) / kTile * along_y + 1, 0) {
    const auto each = [&](auto&& visit) {
      for (int64_t g = 0; g < count; ++g)
        for (int64_t x = boxes[g].low[0] / kTile;
             boxes[g].high[0] >= 0 && x <= boxes[g].high[0] / kTile; ++x)
          for (int64_t y = boxes[g].low[1] / kTile;
               y <= boxes[g].high[1] / kTile; ++y)
            visit(x * along_y + y, g);
    };
    each([&](int64_t tile, int64_t) { ++starts[tile + 1]; });
    for (size_t k = 1; k < starts.size(); ++k) starts[k] += starts[k - 1];
    list.resize(starts.back());
    std::vector<int64_t> place(starts);
    each([&](int64_t tile, int64_t g) {
      list[place[tile]++] = static_cast<int32_t>(g);
    });
  }
};

template <typename T>
void splat_sample(const Scene<T>& s, T* out, T* rest) {
  const TileLists tiles(s.boxes, s.N, *s.grid);
  const int64_t* cells = s.grid->cells;
  torch::stable::parallel_for(
      0, static_cast<int64_t>(tiles.starts.size()) - 1, 1,
      [&](int64_t begin, int64_t end) {
        std::vector<Run<T>> weight;
        std::vector<int32_t> chosen;
        for (int64_t tile = begin; tile < end; ++tile) {
          const int64_t first = tiles.starts[tile];
          const int64_t length = tiles.starts[tile + 1] - first;
          const int64_t x0 = tile / tiles.along_y * kTile;
          const int64_t y0 = tile % tiles.along_y * kTile;
          weight.resize(std::max<size_t>(weight.size(), length));
          chosen.resize(weight.size());
          for (int64_t x = x0; x < std::min(x0 + kTile, cells[0]); ++x)
            for (int64_t y = y0; y < std::min(y0 + kTile, cells[1]); ++y) {
              const int64_t voxel = (x * cells[1] + y) * cells[2];
              splat_column(s, tiles.list.data() + first, length, x, y,
                           weight.data(), chosen.data(), out + voxel * s.K,
                           rest == nullptr ? nullptr : rest + voxel);
            }
        }
      });
}

// (voxel, K) and the product, as runs of voxels for each of K + 1 values.
template <typename T>
std::vector<Run<T>> gradient_runs(const T* grad, const T* grad_rest,
                                  const T* rest, int64_t K,
                                  const SplatGrid& grid) {
  const int64_t Z = grid.cells[2], runs = (Z + kRun - 1) / kRun;
  const int64_t columns = grid.cells[0] * grid.cells[1];
  std::vector<Run<T>> out(columns * runs * (K + 1), Run<T>{});
  torch::stable::parallel_for(
      0, columns, 64, [&](int64_t begin, int64_t end) {
        for (int64_t column = begin; column < end; ++column)
          for (int64_t z = 0; z < Z; ++z) {
            Run<T>* to =
                out.data() + (column * runs + z / kRun) * (K + 1);
            const int64_t voxel = column * Z + z;
            for (int64_t c = 0; c < K; ++c)
              to[c].lane[z % kRun] = grad[voxel * K + c];
            if (rest != nullptr)
              to[K].lane[z % kRun] = grad_rest[voxel] * rest[voxel];
          }
      });
  return out;
}

// Gaussians by place, so that those in turn read the same part of the grid
// from the second cache. It has no influence on results.
std::vector<int32_t> by_place(const SplatBox* boxes, int64_t count) {
  std::vector<std::pair<int64_t, int32_t>> keys(count);
  for (int64_t g = 0; g < count; ++g) {
    const int64_t x = (boxes[g].low[0] + boxes[g].high[0]) / 16;
    const int64_t y = (boxes[g].low[1] + boxes[g].high[1]) / 16;
    keys[g] = {x << 32 | y, static_cast<int32_t>(g)};
  }
  std::sort(keys.begin(), keys.end());
  std::vector<int32_t> order(count);
  for (int64_t g = 0; g < count; ++g) order[g] = keys[g].second;
  return order;
}

SplatGrid make_grid(const std::vector<double>& lower, double size,
                    const std::vector<int64_t>& cells) {
  return {{lower[0], lower[1], lower[2]},
          size,
          {cells[0], cells[1], cells[2]}};
}

template <typename T>
std::vector<SplatBox> make_boxes(const T* means, const int32_t* radii,
                                 int64_t count, const SplatGrid& grid) {
  std::vector<SplatBox> boxes(count);
  for (int64_t g = 0; g < count; ++g)
    boxes[g] = splat_box(means + g * 3, radii[g], grid);
  return boxes;
}

std::tuple<Tensor, Tensor> gaussian_splat(
    const Tensor& means_in, const Tensor& table_in,
    const Tensor& precisions_in, const Tensor& radii_in,
    std::vector<double> lower, double size, std::vector<int64_t> cells,
    bool product) {
  Tensor means = torch::stable::contiguous(means_in);
  Tensor table = torch::stable::contiguous(table_in);
  Tensor precisions = torch::stable::contiguous(precisions_in);
  Tensor radii = torch::stable::contiguous(radii_in);
  const SplatGrid grid = make_grid(lower, size, cells);
  const int64_t B = means.size(0), N = means.size(1), K = table.size(2);
  const int64_t V = grid.voxels();
  Tensor sums = torch::stable::new_empty(table, {B, V, K});
  Tensor rest = torch::stable::new_empty(table, {B, product ? V : 0});
  MMTURBOX_DISPATCH_FLOAT(table.scalar_type(), "gaussian_splat", {
    const auto boxes = make_boxes(means.const_data_ptr<scalar_t>(),
                                  radii.const_data_ptr<int32_t>(), B * N,
                                  grid);
    for (int64_t b = 0; b < B; ++b)
      splat_sample<scalar_t>(
          {means.const_data_ptr<scalar_t>() + b * N * 3,
           table.const_data_ptr<scalar_t>() + b * N * K,
           precisions.const_data_ptr<scalar_t>() + b * N * 6,
           boxes.data() + b * N, &grid, N, K},
          sums.mutable_data_ptr<scalar_t>() + b * V * K,
          product ? rest.mutable_data_ptr<scalar_t>() + b * V : nullptr);
  });
  return {sums, rest};
}

std::tuple<Tensor, Tensor> gaussian_splat_backward(
    const Tensor& grad_in, const Tensor& grad_rest_in, const Tensor& rest_in,
    const Tensor& means_in, const Tensor& table_in,
    const Tensor& precisions_in, const Tensor& radii_in,
    std::vector<double> lower, double size, std::vector<int64_t> cells) {
  Tensor grad = torch::stable::contiguous(grad_in);
  Tensor grad_rest = torch::stable::contiguous(grad_rest_in);
  Tensor rest = torch::stable::contiguous(rest_in);
  Tensor means = torch::stable::contiguous(means_in);
  Tensor table = torch::stable::contiguous(table_in);
  Tensor precisions = torch::stable::contiguous(precisions_in);
  Tensor radii = torch::stable::contiguous(radii_in);
  const SplatGrid grid = make_grid(lower, size, cells);
  const int64_t B = means.size(0), N = means.size(1), K = table.size(2);
  const int64_t V = grid.voxels();
  Tensor grad_table = torch::stable::empty_like(table);
  Tensor moments = torch::stable::new_empty(means, {B, N, 9});
  MMTURBOX_DISPATCH_FLOAT(table.scalar_type(), "gaussian_splat_backward", {
    const auto boxes = make_boxes(means.const_data_ptr<scalar_t>(),
                                  radii.const_data_ptr<int32_t>(), B * N,
                                  grid);
    for (int64_t b = 0; b < B; ++b) {
      const scalar_t* product =
          rest.numel() == 0 ? nullptr
                            : rest.const_data_ptr<scalar_t>() + b * V;
      const auto grads = gradient_runs(
          grad.const_data_ptr<scalar_t>() + b * V * K,
          grad_rest.const_data_ptr<scalar_t>() + (product ? b * V : 0),
          product, K, grid);
      const Scene<scalar_t> scene{
          means.const_data_ptr<scalar_t>() + b * N * 3,
          table.const_data_ptr<scalar_t>() + b * N * K,
          precisions.const_data_ptr<scalar_t>() + b * N * 6,
          boxes.data() + b * N,
          &grid,
          N,
          K};
      const auto order = by_place(scene.boxes, N);
      torch::stable::parallel_for(0, N, 8, [&](int64_t begin, int64_t end) {
        std::vector<Run<scalar_t>> own(K);
        for (int64_t i = begin; i < end; ++i)
          gaussian_gradients(
              scene, order[i], grads.data(), own.data(),
              grad_table.mutable_data_ptr<scalar_t>() + b * N * K,
              moments.mutable_data_ptr<scalar_t>() + b * N * 9);
      });
    }
  });
  return {grad_table, moments};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmturbox, CPU, m) {
  m.impl("gaussian_splat", TORCH_BOX(&gaussian_splat));
  m.impl("gaussian_splat_backward", TORCH_BOX(&gaussian_splat_backward));
}

}  // namespace mmturbox
