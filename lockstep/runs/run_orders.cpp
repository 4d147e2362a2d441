#include "lockstep/runs/run_orders.h"

#include <chrono>
#include <thread>

#include "lockstep/base/os/file.h"
#include "lockstep/runs/folders/run_state.h"
#include "lockstep/train/records/observer.h"

namespace lockstep {

bool RunOrders::must_end() {
  while (const auto order = orders_.poll()) {
    if (*order < 0) ends_ = true;
    if (*order > 0) use(*order);
  }
  return ends_;
}

void RunOrders::use(int64_t threads) {
  if (threads == threads_) return;
  threads_ = threads;
  measured_ = 0;
  seconds_ = observations_ = 0;
}

void RunOrders::note(const IterationRecord& record) {
  ++measured_;
  seconds_ = 0.9 * seconds_ + record.seconds;
  observations_ = 0.9 * observations_ + static_cast<double>(record.observations_count);
  if (seconds_ > 0) rate_ = observations_ / seconds_;
}

void RunOrders::wait_for(const std::string& folder) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds longest{20};
  const auto begun = Clock::now();
  while (run_state(local_files(), folder).status == RunStatus::running &&
         Clock::now() - begun < longest && !must_end()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace lockstep
