// Runs of a plan that has no parameters, kept for the next call.
#pragma once

#include <memory>

#include "lockstep/engine/plan/plan.h"

namespace lockstep {

// Copies share their runs. Thread-safe.
class IdleRuns {
 public:
  explicit IdleRuns(std::shared_ptr<const Plan> plan);

  // Returns a run that nothing else uses until the pointer and its copies are destroyed. On a
  // device it was made for the stream of the thread's eager work.
  std::shared_ptr<PlanRun> lend() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
