#include "lockstep/base/threads/cores.h"

#include <sched.h>

#include <optional>
#include <thread>

#include "lockstep/base/threads/cpu_quota.h"
#include "lockstep/base/threads/thread_pool.h"

namespace lockstep {

std::vector<int> own_cores() {
  std::vector<int> cores;
  // A mask of 1,024 processors is too small for the largest machines: the kernel then returns
  // EINVAL.
  for (size_t processors = CPU_SETSIZE; processors <= size_t{1} << 20; processors *= 2) {
    cpu_set_t* const set = CPU_ALLOC(processors);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(processors);
    CPU_ZERO_S(bytes, set);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    for (size_t core = 0; known && core < processors; ++core) {
      if (CPU_ISSET_S(core, bytes, set)) cores.push_back(static_cast<int>(core));
    }
    CPU_FREE(set);
    if (known) break;
  }
  return cores;
}

int available_cores() {
  static const std::optional<double> quota = cpu_quota();
  if (const auto cores = own_cores(); !cores.empty()) {
    return cores_within(static_cast<int>(cores.size()), quota);
  }
  return cores_within(static_cast<int>(std::thread::hardware_concurrency()), quota);
}

std::vector<int> all_cores() {
  static const std::vector<int> all = own_cores();
  return all;
}

void run_on(const std::vector<int>& cores) {
  if (cores.empty()) return;
  all_cores();
  const size_t processors = static_cast<size_t>(cores.back()) + 1;
  cpu_set_t* const set = CPU_ALLOC(processors);
  if (set == nullptr) return;
  const size_t bytes = CPU_ALLOC_SIZE(processors);
  CPU_ZERO_S(bytes, set);
  for (const int core : cores) CPU_SET_S(static_cast<size_t>(core), bytes, set);
  sched_setaffinity(0, bytes, set);
  CPU_FREE(set);
}

}  // namespace lockstep
