#include "lockstep/storage/network_wait.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/time_limit.h"

namespace lockstep::storage {
namespace {

int64_t nanoseconds_now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

struct Waits {
  Mutex mutex;
  int64_t threads LOCKSTEP_GUARDED_BY(mutex) = 0;  // that wait now
  int64_t any LOCKSTEP_GUARDED_BY(mutex) = 0;      // nanoseconds in which at least one waited
  int64_t begin LOCKSTEP_GUARDED_BY(mutex) = 0;    // of the present time of this kind
  std::atomic<int64_t>* counter LOCKSTEP_GUARDED_BY(mutex) = nullptr;

  void count() LOCKSTEP_REQUIRES(mutex) {
    if (counter != nullptr) counter->fetch_add(1);
  }
};

Waits& waits() {
  static Waits* const all = new Waits;  // never destroyed: threads may still read at the end
  return *all;
}

struct Stops {
  Mutex mutex;
  std::vector<std::shared_ptr<const std::function<bool()>>> when LOCKSTEP_GUARDED_BY(mutex);
  std::optional<TimeLimit> end LOCKSTEP_GUARDED_BY(mutex);  // while a stop is requested

  bool requested() LOCKSTEP_REQUIRES(mutex) {
    const bool any = std::any_of(when.begin(), when.end(), [](const auto& w) { return (*w)(); });
    if (!any) end.reset();
    if (any && !end) end.emplace(patience_after_stop);
    return any;
  }
};

Stops& stops() {
  static Stops* const all = new Stops;
  return *all;
}

}  // namespace

NetworkWait::NetworkWait() {
  Waits& w = waits();
  const MutexLock lock(w.mutex);
  if (w.threads++ == 0) w.begin = nanoseconds_now();
  w.count();
}

NetworkWait::~NetworkWait() {
  Waits& w = waits();
  const MutexLock lock(w.mutex);
  if (--w.threads == 0) w.any += nanoseconds_now() - w.begin;
}

double seconds_waited() {
  Waits& w = waits();
  const MutexLock lock(w.mutex);
  const int64_t present = w.threads > 0 ? nanoseconds_now() - w.begin : 0;
  return 1e-9 * static_cast<double>(w.any + present);
}

void NetworkWait::goes_on() {
  Waits& w = waits();
  const MutexLock lock(w.mutex);
  w.count();
}

void count_network_waits(std::atomic<int64_t>* counter) {
  Waits& w = waits();
  const MutexLock lock(w.mutex);
  w.counter = counter;
}

StopRetries::StopRetries(std::function<bool()> when)
    : when_(std::make_shared<const std::function<bool()>>(std::move(when))) {
  Stops& s = stops();
  const MutexLock lock(s.mutex);
  s.when.push_back(when_);
}

StopRetries::~StopRetries() {
  // The lock ensures that no thread calls the function after the destructor.
  Stops& s = stops();
  const MutexLock lock(s.mutex);
  std::erase(s.when, when_);
}

bool AfterStop::out_of_time() const {
  Stops& s = stops();
  const MutexLock lock(s.mutex);
  return s.requested() && s.end->reached() && least_.reached();
}

bool retries_stopped() {
  Stops& s = stops();
  const MutexLock lock(s.mutex);
  return s.requested();
}

}  // namespace lockstep::storage
