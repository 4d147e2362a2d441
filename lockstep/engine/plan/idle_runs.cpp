#include "lockstep/engine/plan/idle_runs.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/device/eager_stream.h"

namespace lockstep {
namespace {

struct Run {
  PackedParameters none{{}};
  std::unique_ptr<PlanRun> run;
  void* stream = nullptr;  // of eager work, with which it was made
};

}  // namespace

struct IdleRuns::State {
  explicit State(std::shared_ptr<const Plan> p) : plan(std::move(p)) {}

  const std::shared_ptr<const Plan> plan;
  Mutex mutex;
  std::vector<std::unique_ptr<Run>> idle LOCKSTEP_GUARDED_BY(mutex) = {};
};

IdleRuns::IdleRuns(std::shared_ptr<const Plan> plan)
    : state_(std::make_shared<State>(std::move(plan))) {}

std::shared_ptr<PlanRun> IdleRuns::lend() const {
  void* const stream = EagerStream::of_thread(state_->plan->device());
  std::unique_ptr<Run> run;
  {
    const MutexLock lock(state_->mutex);
    auto& idle = state_->idle;
    // The newest, whose memory is in a cache.
    const auto found = std::find_if(idle.rbegin(), idle.rend(),
                                    [&](const auto& r) { return r->stream == stream; });
    if (found != idle.rend()) {
      run = std::move(*found);
      idle.erase(std::next(found).base());
    }
  }
  if (!run) {
    run = std::make_unique<Run>();
    run->stream = stream;
    run->run = std::make_unique<PlanRun>(state_->plan, run->none, std::vector<const float*>());
  }
  const std::shared_ptr<Run> lent(run.release(), [owner = std::weak_ptr<State>(state_)](Run* used) {
    std::unique_ptr<Run> back(used);
    if (const auto home = owner.lock()) {
      const MutexLock lock(home->mutex);
      home->idle.push_back(std::move(back));
    }
  });
  return {lent, lent->run.get()};
}

}  // namespace lockstep
