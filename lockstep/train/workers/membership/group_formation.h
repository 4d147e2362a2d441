// How the current workers form a group: all halt, lagging workers copy the state of one at the
// newest iteration, and all continue from there.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/train/workers/membership/worker_events.h"

namespace lockstep {

// One thread at a time. All functions handle events of the workers while they wait.
class GroupFormation {
 public:
  // Parts and events must outlive it.
  GroupFormation(WorkerParts& parts, WorkerEvents& events) : parts_(parts), events_(events) {}

  // Forms a group of all current workers, from the last iteration that any of them finished.
  // Repeats this until it succeeds. Throws Cancelled if the user stops the training meanwhile.
  void regroup();
  // A member writes its state to shared memory. Returns false if the member is lost instead.
  bool publish(uint32_t source);

 private:
  // What the members of the next group continue from.
  struct Base {
    int64_t iteration = -1;
    uint32_t source = 0;     // a member that has its values; 0: none
    bool published = false;  // no member has values, so the published ones are used
    bool any_ready = false;  // any worker is not building
    // Whether the member needs the published values. A worker that has just started has none.
    bool lags(const WorkerMember& m) const { return published || m.finished != iteration; }
  };

  bool await_halt();
  Base find_base() const;
  bool bring_state(const Base& base);
  void let_go(const std::vector<uint32_t>& leaving, int64_t iteration, int64_t members);
  bool form(const Base& base);

  WorkerParts& parts_;
  WorkerEvents& events_;
  std::optional<int64_t> first_base_;  // the iteration that the first group continued from
};

}  // namespace lockstep
