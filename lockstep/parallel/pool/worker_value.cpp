#include "lockstep/parallel/pool/worker_value.h"

#include <atomic>
#include <map>

#include "lockstep/base/threads/mutex.h"

namespace lockstep::detail {
namespace {

Mutex mutex;
std::map<std::pair<uint64_t, int>, std::shared_ptr<void>>& values() LOCKSTEP_REQUIRES(mutex) {
  static std::map<std::pair<uint64_t, int>, std::shared_ptr<void>> all;
  return all;
}

}  // namespace

uint64_t next_value_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

std::shared_ptr<void> kept_value(uint64_t number, int worker) {
  const MutexLock lock(mutex);
  const auto found = values().find({number, worker});
  return found == values().end() ? nullptr : found->second;
}

void keep_value(uint64_t number, int worker, std::shared_ptr<void> value) {
  const MutexLock lock(mutex);
  values()[{number, worker}] = std::move(value);
}

void drop_value(uint64_t number, int worker) {
  std::shared_ptr<void> last;  // destroyed after the mutex is released
  const MutexLock lock(mutex);
  const auto found = values().find({number, worker});
  if (found == values().end()) return;
  last = std::move(found->second);
  values().erase(found);
}

}  // namespace lockstep::detail
