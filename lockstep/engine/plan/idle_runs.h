// Runs of a plan, kept for the next call.
#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/device/eager_stream.h"
#include "lockstep/engine/plan/plan.h"

namespace lockstep {

// Copies share their runs. Thread-safe.
template <class Run>
class IdleRuns {
 public:
  // Returns a run that nothing else uses until the pointer and its copies are destroyed; make()
  // returns a unique_ptr to a new one, if none is idle. All uses of a run are from eager work on
  // one stream of the device, and thus in order.
  template <class Make>
  std::shared_ptr<Run> lend(Device device, const Make& make) const {
    void* const stream = EagerStream::of_thread(device);
    std::unique_ptr<Run> run = state_->take(stream);
    if (!run) run = make();
    return {run.release(), [owner = std::weak_ptr<State>(state_), stream](Run* used) {
              std::unique_ptr<Run> back(used);
              if (const auto home = owner.lock()) home->put(stream, std::move(back));
            }};
  }

 private:
  struct State {
    // The newest, whose memory is in a cache; null: there is none.
    std::unique_ptr<Run> take(void* stream) LOCKSTEP_EXCLUDES(mutex) {
      const MutexLock lock(mutex);
      const auto found = std::find_if(idle.rbegin(), idle.rend(),
                                      [&](const auto& i) { return i.first == stream; });
      if (found == idle.rend()) return nullptr;
      std::unique_ptr<Run> run = std::move(found->second);
      idle.erase(std::next(found).base());
      return run;
    }
    void put(void* stream, std::unique_ptr<Run> run) LOCKSTEP_EXCLUDES(mutex) {
      const MutexLock lock(mutex);
      idle.emplace_back(stream, std::move(run));
    }

    Mutex mutex;
    std::vector<std::pair<void*, std::unique_ptr<Run>>> idle LOCKSTEP_GUARDED_BY(mutex);
  };

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// A run of a plan that has no parameters and no states.
struct PlainRun {
  explicit PlainRun(std::shared_ptr<const Plan> plan) : run(std::move(plan), none, {}) {}

  PackedParameters none{{}};
  PlanRun run;
};

}  // namespace lockstep
