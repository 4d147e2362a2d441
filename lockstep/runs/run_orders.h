// Runs on workers, and what is common to those that start them: sweeps and cross-validations.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/parallel/pool/data_queue.h"

namespace lockstep {

struct IterationRecord;

// Seconds: a run that says nothing for so long is started again on another worker, and one that was
// asked to end has this long to save its state.
inline constexpr double longest_silence = 600, longest_end = 120;
// Workers that a run may lose without a new checkpoint.
inline constexpr int most_losses = 10;

// The orders that a run follows, and its rate with the threads that they give it. An order is a
// number of threads, or a negative number: the run saves its state and ends. One thread at a time.
class RunOrders {
 public:
  // `threads`: at the beginning.
  RunOrders(const QueueReceiver<int64_t>& orders, int64_t threads)
      : orders_(orders), threads_(threads) {}

  // Takes the newest orders, and returns whether the run must end now.
  bool must_end();
  // Whether must_end() has returned true.
  bool ended() const { return ends_; }
  int64_t threads() const { return threads_; }
  // The rate with another number of threads is measured again.
  void use(int64_t threads);

  // Follows the run's iterations.
  void note(const IterationRecord& record);
  // Iterations with the present number of threads.
  int64_t measured() const { return measured_; }
  // Observations per second in the last iterations; 0 before the first one.
  double rate() const { return rate_; }

  // The worker of an earlier attempt may still have the run's folder. Waits until it has not, for
  // 20 seconds at most.
  void wait_for(const std::string& folder);

 private:
  const QueueReceiver<int64_t> orders_;
  int64_t threads_, measured_ = 0;
  double seconds_ = 0, observations_ = 0, rate_ = 0;
  bool ends_ = false;
};

}  // namespace lockstep
