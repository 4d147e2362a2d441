#include "tests/engine/cuda/emulation.h"

#include <ucontext.h>

#include <memory>
#include <stdexcept>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace emulation {
namespace {

constexpr size_t kStack = 64 << 10;

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStack]};
  bool ended = false;
#ifdef __SANITIZE_THREAD__
  void* tsan = __tsan_create_fiber(0);
  ~Fiber() { __tsan_destroy_fiber(tsan); }
#endif
};

// The block that this host thread runs.
struct Block {
  ucontext_t scheduler;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<char> shared;
  const std::function<void()>* body = nullptr;
  Fiber* running = nullptr;
#ifdef __SANITIZE_ADDRESS__
  const void* bottom = nullptr;
  size_t size = 0;
#endif
#ifdef __SANITIZE_THREAD__
  void* tsan = nullptr;
#endif
};

thread_local Block block;
thread_local Order order_of_threads = Order::forwards;

// Returns from a fiber to the scheduler; `last` if the fiber will not run again.
void leave([[maybe_unused]] bool last) {
  Fiber& fiber = *block.running;
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(block.tsan, 0);
#endif
#ifdef __SANITIZE_ADDRESS__
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(last ? nullptr : &fake, block.bottom, block.size);
#endif
  swapcontext(&fiber.context, &block.scheduler);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake, &block.bottom, &block.size);
#endif
}

void start() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, &block.bottom, &block.size);
#endif
  (*block.body)();
  block.running->ended = true;
  leave(true);
}

void resume(Fiber& fiber) {
  block.running = &fiber;
#ifdef __SANITIZE_THREAD__
  block.tsan = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fiber.tsan, 0);
#endif
#ifdef __SANITIZE_ADDRESS__
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, fiber.stack.get(), kStack);
#endif
  swapcontext(&block.scheduler, &fiber.context);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

// A separate function, because for the compiler getcontext() may return twice.
void prepare(Fiber& fiber) {
  fiber.ended = false;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStack;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, start, 0);
}

void run_block(size_t threads) {
  for (size_t t = 0; t < threads; ++t) prepare(*block.fibers[t]);
  for (size_t ended = 0; ended < threads;) {
    ended = 0;
    for (size_t i = 0; i < threads; ++i) {
      const size_t t = order_of_threads == Order::forwards ? i : threads - 1 - i;
      Fiber& fiber = *block.fibers[t];
      if (!fiber.ended) {
        thread_index.x = static_cast<unsigned>(t);
        resume(fiber);
      }
      if (fiber.ended) ++ended;
    }
    // On a GPU a barrier that only some threads reach is undefined.
    if (ended != 0 && ended != threads) throw std::logic_error("threads ended before a barrier");
  }
}

}  // namespace

void set_order(Order order) { order_of_threads = order; }

void launch(int64_t blocks, int threads, size_t shared_bytes, const std::function<void()>& body) {
  if (blocks < 1 || blocks > INT32_MAX || threads < 1 || threads > 1024 ||
      shared_bytes > (48 << 10)) {
    throw std::logic_error("a GPU would refuse this launch");
  }
  const auto count = static_cast<size_t>(threads);
  while (block.fibers.size() < count) block.fibers.push_back(std::make_unique<Fiber>());
  block.body = &body;
  block_size.x = static_cast<unsigned>(threads);
  grid_size.x = static_cast<unsigned>(blocks);
  for (int64_t b = 0; b < blocks; ++b) {
    block_index.x = static_cast<unsigned>(b);
    block.shared.assign(shared_bytes, static_cast<char>(0xFF));
    run_block(count);
  }
}

void* shared_memory() { return block.shared.data(); }

void barrier() { leave(false); }

}  // namespace emulation
