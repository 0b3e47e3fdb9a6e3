// The scheduler of shim.h: fibers, barriers, shared memory.
#include "shim.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace mmturbox {
namespace shim {

dim3 thread_index, block_index, block_size, grid_size;

namespace {

constexpr int64_t kStack = 256 << 10;
constexpr int64_t kSharedLimit = 48 << 10;
constexpr unsigned char kRubbish = 0xb5;
constexpr int64_t kGuard = 1024;

// Waits until `members` threads have come, then lets them go on.
struct Barrier {
  unsigned members = 0, come = 0, round = 0;
};

struct Fiber {
  ucontext_t context;
  void* stack = nullptr;
  dim3 index;
  unsigned flat = 0;
  bool done = true;
};

// Guarded memory of one shared array.
struct Region {
  std::unique_ptr<uint64_t[]> memory;
  int64_t bytes = 0, room = -1;

  void fill(int64_t size) {
    if (size > room) {
      memory.reset(new uint64_t[(size + kGuard) / 8 + 3]);
      room = size;
    }
    bytes = size;
    std::memset(raw(), kRubbish, size + kGuard);
  }
  unsigned char* raw() {
    auto start = reinterpret_cast<uintptr_t>(memory.get());
    return reinterpret_cast<unsigned char*>((start + 15) / 16 * 16);
  }
  bool sound() {
    const unsigned char* end = raw() + bytes;
    return std::all_of(end, end + kGuard,
                       [](unsigned char c) { return c == kRubbish; });
  }
};

struct Machine {
  std::mutex mutex;
  std::vector<std::unique_ptr<Fiber>> fibers;
  ucontext_t scheduler;
  Fiber* running = nullptr;
  const std::function<void()>* thread = nullptr;
  Barrier block;
  std::vector<Barrier> warps;
  std::vector<uint64_t> slots;
  std::map<const void*, Region> regions;
  Region dynamic;
  int64_t shared_bytes = 0;
  uint64_t progress = 0;
  std::string error;
  std::mt19937 random{20};
} machine;

void yield() { swapcontext(&machine.running->context, &machine.scheduler); }

void wait_at(Barrier& barrier) {
  const unsigned round = barrier.round;
  ++machine.progress;
  if (++barrier.come == barrier.members) {
    barrier.come = 0;
    ++barrier.round;
    return;
  }
  while (barrier.round == round) yield();
}

void fiber_main() {
  for (;;) {
    (*machine.thread)();
    ++machine.progress;
    machine.running->done = true;
    yield();
  }
}

void start(Fiber& fiber) {
  if (fiber.stack == nullptr)
    fiber.stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (fiber.stack == MAP_FAILED) throw std::bad_alloc();
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = kStack;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, fiber_main, 0);
}

void prepare(unsigned threads) {
  while (machine.fibers.size() < threads) {
    machine.fibers.push_back(std::make_unique<Fiber>());
    Fiber& fiber = *machine.fibers.back();
    fiber.flat = machine.fibers.size() - 1;
    start(fiber);
  }
  for (unsigned t = 0; t < threads; ++t)
    machine.fibers[t]->index =
        dim3(t % block_size.x, t / block_size.x % block_size.y,
             t / block_size.x / block_size.y);
  machine.warps.assign((threads + 31) / 32, Barrier{32});
  machine.slots.assign(machine.warps.size() * 32, 0);
}

// Fibers that hang at a barrier cannot go on: give them a fresh start.
[[noreturn]] void fail(const char* kernel, unsigned threads,
                       const std::string& what) {
  for (unsigned t = 0; t < threads; ++t) start(*machine.fibers[t]);
  throw std::runtime_error(std::string("shim: ") + kernel + ": " + what);
}

void run_block(const char* kernel, unsigned threads,
               std::vector<unsigned>& order) {
  machine.block = Barrier{threads};
  for (Barrier& warp : machine.warps) warp = Barrier{32};
  for (auto& region : machine.regions) region.second.fill(0);
  machine.shared_bytes = machine.dynamic.bytes;
  machine.dynamic.fill(machine.dynamic.bytes);
  for (unsigned t = 0; t < threads; ++t) machine.fibers[t]->done = false;
  unsigned left = threads;
  while (left > 0) {
    std::shuffle(order.begin(), order.end(), machine.random);
    const uint64_t before = machine.progress;
    for (unsigned t : order) {
      Fiber& fiber = *machine.fibers[t];
      if (fiber.done) continue;
      machine.running = &fiber;
      thread_index = fiber.index;
      swapcontext(&machine.scheduler, &fiber.context);
      if (!machine.error.empty())
        fail(kernel, threads, std::exchange(machine.error, ""));
      left -= fiber.done;
    }
    if (machine.progress == before)
      fail(kernel, threads, "a barrier is not reached by all threads");
  }
  bool sound = machine.dynamic.sound();
  for (auto& region : machine.regions)
    sound = sound && (region.second.bytes == 0 || region.second.sound());
  if (!sound) fail(kernel, threads, "wrote past the end of shared memory");
}

// Report from inside a fiber; it does not run on.
void refuse(const std::string& what) {
  machine.error = what;
  for (;;) yield();
}

}  // namespace

void launch(const char* name, dim3 grid, dim3 block, int64_t shared_bytes,
            const std::function<void()>& thread) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  std::lock_guard<std::mutex> lock(machine.mutex);
  const unsigned threads = block.x * block.y * block.z;
  grid_size = grid;
  block_size = block;
  if (threads == 0 || threads > 1024 || threads % 32 != 0 ||
      grid.y > 65535 || grid.z > 65535 || shared_bytes > kSharedLimit)
    throw std::runtime_error(std::string("shim: ") + name +
                             ": block, grid or shared memory out of bounds");
  prepare(threads);
  machine.thread = &thread;
  machine.regions.clear();
  machine.dynamic.fill(shared_bytes);
  std::vector<unsigned> order(threads);
  std::iota(order.begin(), order.end(), 0u);
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        block_index = dim3(x, y, z);
        run_block(name, threads, order);
      }
}

void* shared(const void* key, int64_t bytes) {
  Region& region = machine.regions[key];
  if (region.bytes == 0) {
    region.fill(bytes);
    machine.shared_bytes += bytes;
    if (machine.shared_bytes > kSharedLimit)
      refuse("more than 48 KiB of shared memory");
  }
  return region.raw();
}

void* dynamic_shared() { return machine.dynamic.raw(); }

void block_barrier() { wait_at(machine.block); }

unsigned lane() { return machine.running->flat % 32; }

uint64_t& slot(unsigned lane) {
  return machine.slots[machine.running->flat / 32 * 32 + lane];
}

void warp_barrier(unsigned mask) {
  if (mask != 0xffffffffu) refuse("a warp operation without the full mask");
  wait_at(machine.warps[machine.running->flat / 32]);
}

}  // namespace shim
}  // namespace mmturbox

unsigned __ballot_sync(unsigned mask, int predicate) {
  using namespace mmturbox::shim;
  slot(lane()) = predicate != 0;
  warp_barrier(mask);
  unsigned votes = 0;
  for (unsigned i = 0; i < 32; ++i) votes |= unsigned(slot(i) != 0) << i;
  warp_barrier(mask);
  return votes;
}
