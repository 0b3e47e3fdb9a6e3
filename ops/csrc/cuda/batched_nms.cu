// Greedy suppression: a bit mask of which box suppresses which, in tiles of
// 64 x 64, folded on the device.
//
// 10,000 boxes of one class: 5e7 comparisons of about 15 operations and a
// mask of 6.3 MB written and read once: 12 us of arithmetic on 67 TFLOP/s and
// 3 us of memory on 4.8 TB/s. The fold is a chain of 157 tiles, 64 steps in
// shared memory each, and sets the time. With classes the tiles that lie in
// no class are skipped and every class folds by itself, on its own block.
#include "batched_nms.h"

#include <limits>

#include "../common/batched_nms.h"
#include "device.h"

namespace mmturbox {
namespace {

using Word = unsigned long long;
constexpr int64_t kNobody = std::numeric_limits<int64_t>::max();
constexpr unsigned kTileThreads = kNmsTile;
constexpr int kFoldThreads = 256;
constexpr int kEmitThreads = 512;

__global__ void nms_keys(const int64_t* order, const int64_t* classes,
                         const int64_t* samples, const bool* valid, int64_t n,
                         int64_t num_samples, int64_t* keys) {
  const int64_t rank = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (rank >= n) return;
  const int64_t i = order[rank];
  const int64_t sample = samples ? samples[i] : 0;
  const bool takes_part = (valid == nullptr || valid[i]) && sample >= 0 &&
                          sample < num_samples;
  keys[rank] = takes_part ? (classes ? classes[i] : 0) * num_samples + sample
                          : kNobody;
}

// Prepare each box once, by group and rank. Boxes that take no part, and the
// rest of the last tile, count as removed. 24 to 96 bytes a box.
template <typename Test>
__global__ void nms_load(const Test test, const Suppression task) {
  using T = typename Test::Input;
  auto* items = static_cast<typename Test::Item*>(task.items);
  const int64_t p = int64_t(blockIdx.x) * kNmsTile + threadIdx.x;
  bool removed = true;
  if (p < task.num_boxes) {
    const int64_t box = task.order[task.places ? task.places[p] : p];
    items[p] = test.load(static_cast<const T*>(task.boxes) +
                         box * task.stride);
    removed = task.keys != nullptr && task.keys[p] == kNobody;
  }
  const unsigned bits = __ballot_sync(kFullWarp, removed);
  if (threadIdx.x % 32 == 0)
    reinterpret_cast<unsigned*>(task.removed)[p / 32] = bits;
  if (p == 0) *task.total = 0;
}

// Which boxes of a tile of columns each box of a tile of rows suppresses:
// mask[(column tile - first) * rows + row]. Only later boxes of the same
// group are looked at.
template <typename Test>
__global__ void nms_mask(const Test test, const Suppression task,
                         int64_t first, int64_t rows) {
  using Item = typename Test::Item;
  MMTURBOX_SHARED(Item, columns, kNmsTile);
  MMTURBOX_SHARED(int64_t, groups, kNmsTile);
  const int64_t row_tile = first + blockIdx.y, tile = first + blockIdx.x;
  const int64_t n = task.num_boxes, row = row_tile * kNmsTile + threadIdx.x;
  if (tile < row_tile || *task.total >= static_cast<Word>(task.max_out))
    return;
  const Word gone = task.removed[row_tile];
  if (gone == ~Word(0)) return;
  if (task.keys != nullptr) {
    const int64_t last = (row_tile + 1) * kNmsTile;
    if (task.keys[(last < n ? last : n) - 1] < task.keys[tile * kNmsTile])
      return;
  }
  const auto* items = static_cast<const Item*>(task.items);
  const int64_t column = tile * kNmsTile + threadIdx.x;
  if (column < n) {
    columns[threadIdx.x] = items[column];
    groups[threadIdx.x] = task.keys ? task.keys[column] : 0;
  }
  __syncthreads();
  Word word = 0;
  if (!(gone >> threadIdx.x & 1)) {
    const Item mine = items[row];
    const int64_t group = task.keys ? task.keys[row] : 0;
    Word near = 0;
    Word left = ~task.removed[tile];
    if (tile == row_tile)
      left &= threadIdx.x == 63 ? 0 : ~Word(0) << (threadIdx.x + 1);
    for (int i = 0; i < kNmsTile; ++i) {
      const bool compare = left >> i & 1;
      if (compare && groups[i] == group && test.near(mine, columns[i]))
        near |= Word(1) << i;
    }
    // The costly part of the test for the few that are near: each thread has
    // its own, so that a warp waits for as many as one of them has at most.
    while (near != 0) {
      const int i = __ffsll(static_cast<long long>(near)) - 1;
      near &= near - 1;
      if (test.suppresses(mine, columns[i])) word |= Word(1) << i;
    }
  }
  task.mask[(tile - first) * rows + row - first * kNmsTile] = word;
}

// The first position behind `p` that is of another group.
__device__ int64_t group_end(const int64_t* keys, int64_t p, int64_t n) {
  if (keys == nullptr) return n;
  const int64_t group = keys[p];
  int64_t low = p + 1, high = n;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (keys[middle] > group)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// For each bit of `fresh`, which box of `tile` it is that `row` suppresses.
__device__ void own(const Suppression& task, Word fresh, int64_t tile,
                    int64_t row) {
  for (; fresh != 0; fresh &= fresh - 1)
    task.owners[tile * kNmsTile + __ffsll(static_cast<long long>(fresh)) -
                1] = row;
}

// Walk a tile by rank: the bits of the boxes that stay. One thread.
__device__ Word fold_tile(const Suppression& task, const Word* diagonal,
                          Word alive, int64_t tile) {
  Word kept = 0;
  while (alive != 0) {
    const int i = __ffsll(static_cast<long long>(alive)) - 1;
    kept |= Word(1) << i;
    if (task.owners) {
      own(task, Word(1) << i, tile, tile * kNmsTile + i);
      own(task, alive & diagonal[i], tile, tile * kNmsTile + i);
    }
    alive &= ~(diagonal[i] | Word(1) << i);
  }
  return kept;
}

// What the kept boxes of `tile` remove from tile `column`. One thread.
__device__ void spread(const Suppression& task, const Word* words, Word kept,
                       int64_t tile, int64_t column) {
  Word removed = 0;
  if (task.owners) removed = atomicOr(task.removed + column, Word(0));
  Word sum = removed;
  for (; kept != 0; kept &= kept - 1) {
    const int i = __ffsll(static_cast<long long>(kept)) - 1;
    if (task.owners)
      own(task, words[i] & ~sum, column, tile * kNmsTile + i);
    sum |= words[i];
  }
  if (sum != removed) atomicOr(task.removed + column, sum);
}

// The bits of positions [begin, end) in `tile`.
__device__ Word tile_bits(int64_t tile, int64_t begin, int64_t end) {
  const int64_t low = begin - tile * kNmsTile, high = end - tile * kNmsTile;
  const Word from = low <= 0 ? ~Word(0) : ~Word(0) << low;
  return from & (high >= kNmsTile ? ~Word(0) : (Word(1) << high) - 1);
}

// Fold one group, whose boxes of this chunk are [begin, stop), and which
// ends at `end`. The whole block; `shared` has 66 words.
__device__ void fold_group(const Suppression& task, int64_t first,
                           int64_t rows, int64_t begin, int64_t stop,
                           int64_t end, Word* shared) {
  Word *diagonal = shared, *kept = shared + kNmsTile;
  const int64_t last_tile = (end - 1) / kNmsTile;
  for (int64_t tile = begin / kNmsTile; tile * kNmsTile < stop; ++tile) {
    const Word* words = task.mask + (tile - first) * kNmsTile;
    const Word mine = tile_bits(tile, begin, stop);
    if (threadIdx.x < kNmsTile && (mine >> threadIdx.x & 1))
      diagonal[threadIdx.x] = words[(tile - first) * rows + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
      const Word alive = mine & ~atomicOr(task.removed + tile, Word(0));
      *kept = fold_tile(task, diagonal, alive, tile);
      if (task.keys == nullptr) *task.total += __popcll(*kept);
    }
    __syncthreads();
    const Word stay = *kept;
    if (threadIdx.x < kNmsTile && (stay >> threadIdx.x & 1)) {
      const int64_t p = tile * kNmsTile + threadIdx.x;
      task.kept[task.places ? task.places[p] : p] = 1;
    }
    for (int64_t column = tile + 1 + threadIdx.x; column <= last_tile;
         column += blockDim.x)
      spread(task, words + (column - first) * rows, stay, tile, column);
    __syncthreads();
  }
}

// A block folds the groups that begin in its tile, one after the other; the
// first tile of a chunk takes up the group that goes on there.
__global__ void nms_fold(const Suppression task, int64_t first,
                         int64_t rows) {
  MMTURBOX_SHARED(Word, shared, kNmsTile + 2);
  const int64_t tile = first + blockIdx.x, n = task.num_boxes;
  const int64_t from = first * kNmsTile;
  const int64_t chunk_end = from + rows < n ? from + rows : n;
  if (*task.total >= static_cast<Word>(task.max_out)) return;
  for (int64_t p = tile * kNmsTile; p < chunk_end; ) {
    if (p >= (tile + 1) * kNmsTile) return;
    const bool head = p == from || (task.keys != nullptr &&
                                    task.keys[p] != task.keys[p - 1]);
    const int64_t end = head || task.keys ? group_end(task.keys, p, n) : n;
    if (head && (task.keys == nullptr || task.keys[p] != kNobody))
      fold_group(task, first, rows, p, end < chunk_end ? end : chunk_end,
                 end, shared);
    p = end;
  }
}

__global__ void nms_emit(const uint8_t* kept, const int64_t* order,
                         const int64_t* samples, int64_t n, int64_t max_out,
                         int64_t* keep, int64_t* counts) {
  constexpr int kWarps = kEmitThreads / 32;
  MMTURBOX_SHARED(int, warp_counts, kWarps);
  const int64_t sample = blockIdx.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  keep += sample * max_out;
  int64_t done = 0;
  for (int64_t start = 0; start < n && done < max_out;
       start += kEmitThreads) {
    const int64_t rank = start + threadIdx.x;
    const bool mine = rank < n && kept[rank] &&
                      (samples ? samples[order[rank]] : 0) == sample;
    const unsigned votes = __ballot_sync(kFullWarp, mine);
    if (lane == 0) warp_counts[warp] = __popc(votes);
    __syncthreads();
    int64_t place = done + __popc(votes & ((1u << lane) - 1));
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) place += warp_counts[w];
      done += warp_counts[w];
    }
    if (mine && place < max_out) keep[place] = order[rank];
    __syncthreads();
  }
  if (done > max_out) done = max_out;
  for (int64_t i = done + threadIdx.x; i < max_out; i += kEmitThreads)
    keep[i] = -1;
  if (threadIdx.x == 0) counts[sample] = done;
}

__global__ void nms_heads(const int64_t* owners, int64_t n, int64_t* heads) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) heads[i] = i == 0 || owners[i] != owners[i - 1];
}

__global__ void nms_members(const int64_t* order, const int64_t* places,
                            const int64_t* owners, const int64_t* group,
                            int64_t n, int64_t* members, int64_t* starts) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  members[i] = order[places[i]];
  if (i == 0 || owners[i] != owners[i - 1]) starts[group[i] - 1] = i;
}

__global__ void nms_sizes(const int64_t* starts, int64_t groups, int64_t n,
                          int64_t* sizes) {
  const int64_t g = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (g < groups) sizes[g] = (g + 1 < groups ? starts[g + 1] : n) - starts[g];
}

template <typename Test>
void suppress(const Test& test, const Suppression& task, Stream stream) {
  static_assert(sizeof(typename Test::Item) <= kNmsItemBytes, "");
  const int64_t tiles = ceil_div(task.num_boxes, kNmsTile);
  MMTURBOX_LAUNCH((nms_load<Test>), grid_of(tiles), kTileThreads, 0,
                  stream, test, task);
  for (int64_t first = 0; first < tiles; first += kNmsChunk / kNmsTile) {
    const int64_t left = tiles - first;
    const int64_t count =
        left < kNmsChunk / kNmsTile ? left : kNmsChunk / kNmsTile;
    const dim3 grid(grid_of(left), static_cast<unsigned>(count));
    MMTURBOX_LAUNCH((nms_mask<Test>), grid, kTileThreads, 0, stream,
                    test, task, first, count * kNmsTile);
    MMTURBOX_LAUNCH(nms_fold, grid_of(count), kFoldThreads, 0, stream, task,
                    first, count * kNmsTile);
  }
}

}  // namespace

void nms_keys_cuda(const int64_t* order, const int64_t* classes,
                   const int64_t* samples, const bool* valid, int64_t n,
                   int64_t num_samples, int64_t* keys, Stream stream) {
  MMTURBOX_LAUNCH(nms_keys, grid_of(ceil_div(n, 256)), 256, 0, stream, order,
                  classes, samples, valid, n, num_samples, keys);
}

template <typename T>
void suppress_cuda(const Suppression& task, Stream stream) {
  if (task.kind == kAligned)
    suppress(AlignedTest<T>(task.threshold, task.offset, task.inclusive),
             task, stream);
  else if (task.kind == kRotated)
    suppress(RotatedTest<T>(task.threshold), task, stream);
  else
    suppress(CircleTest<T>(task.threshold), task, stream);
}

template void suppress_cuda<float>(const Suppression&, Stream);
template void suppress_cuda<double>(const Suppression&, Stream);

void nms_emit_cuda(const uint8_t* kept, const int64_t* order,
                   const int64_t* samples, int64_t n, int64_t num_samples,
                   int64_t max_out, int64_t* keep, int64_t* counts,
                   Stream stream) {
  MMTURBOX_LAUNCH(nms_emit, grid_of(num_samples), kEmitThreads, 0, stream,
                  kept, order, samples, n, max_out, keep, counts);
}

void nms_heads_cuda(const int64_t* owners, int64_t n, int64_t* heads,
                    Stream stream) {
  MMTURBOX_LAUNCH(nms_heads, grid_of(ceil_div(n, 256)), 256, 0, stream,
                  owners, n, heads);
}

void nms_members_cuda(const int64_t* order, const int64_t* places,
                      const int64_t* owners, const int64_t* group, int64_t n,
                      int64_t* members, int64_t* starts, Stream stream) {
  MMTURBOX_LAUNCH(nms_members, grid_of(ceil_div(n, 256)), 256, 0, stream,
                  order, places, owners, group, n, members, starts);
}

void nms_sizes_cuda(const int64_t* starts, int64_t groups, int64_t n,
                    int64_t* sizes, Stream stream) {
  MMTURBOX_LAUNCH(nms_sizes, grid_of(ceil_div(groups, 256)), 256, 0, stream,
                  starts, groups, n, sizes);
}

}  // namespace mmturbox
