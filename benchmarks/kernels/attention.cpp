// The time of attention, forward and backward, in milliseconds of a processor. One thread, one
// observation with 6 heads of 64 channels. Reports the median of the turns; attention.py measures
// PyTorch.
//
// usage: attention [--turns N]
#include "lockstep/engine/kernels/attention/attention.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "benchmarks/kernels/turns.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/kernels/backends/tables.h"

namespace {

using namespace lockstep;
using namespace lockstep::kernels;

using Memory = std::unique_ptr<float, void (*)(void*)>;

Memory numbers(size_t bytes) {
  Memory memory(static_cast<float*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64)), std::free);
  if (!memory) throw std::bad_alloc();
  uint32_t state = 1;
  for (size_t i = 0; i < bytes / sizeof(float); ++i) {
    state = state * 1664525 + 1013904223;
    memory.get()[i] = static_cast<float>(state >> 8) * 0x1p-22f - 2;
  }
  return memory;
}

// Both passes, which share the kept values.
class Passes {
 public:
  explicit Passes(const AttentionProblem& p) : kernel_(compile(table_for({}), p)) {
    forward = bound(kernel_.forward);
    backward = bound(kernel_.backward[0]);
  }
  BoundPass forward, backward;

 private:
  BoundPass bound(const Pass& pass) {
    std::vector<void*> reads, writes;
    for (const Operand& o : pass.reads) reads.push_back(of(o));
    for (const Operand& o : pass.writes) writes.push_back(of(o));
    scratch_.push_back(numbers(pass.scratch_bytes));
    return pass.bind({reads, writes, scratch_.back().get()});
  }
  void* of(const Operand& o) {
    const auto key = std::pair(o.kind, o.index);
    const auto found = memory_.find(key);
    if (found != memory_.end()) return found->second.get();
    return memory_.emplace(key, numbers(o.spec.bytes())).first->second.get();
  }

  Kernel kernel_;
  std::map<std::pair<Operand::Kind, int>, Memory> memory_;
  std::vector<Memory> scratch_;
};

// Of the thread's processor, because other programs on the machine change that less.
double milliseconds_of(const BoundPass& pass) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  pass({});
  return now() - begin;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(int turns) {
  const ArithmeticMode mode;
  std::printf("%-8s%-9s%10s%10s\n", "steps", "causal", "forward", "backward");
  for (const int64_t steps : {64, 256, 1024}) {
    for (const bool causal : {false, true}) {
      const TensorSpec spec{Shape{1, steps, 6 * 64}, DType::f32, nullptr};
      const Passes passes({spec, spec, spec, 6, causal, false, 0.125});
      std::vector<double> forward, backward;
      for (int turn = 0; turn <= turns; ++turn) {
        forward.push_back(milliseconds_of(passes.forward));
        backward.push_back(milliseconds_of(passes.backward));
      }
      std::printf("%-8lld%-9s%10.3f%10.3f\n", static_cast<long long>(steps), causal ? "yes" : "no",
                  median(forward), median(backward));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_with_turns(argc, argv, "attention", 25, run);
}
