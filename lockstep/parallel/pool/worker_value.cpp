#include "lockstep/parallel/pool/worker_value.h"

#include <atomic>
#include <map>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/parallel/pool/pool_core.h"

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

std::shared_ptr<void> owner_of_values(Pool& pool, uint64_t number) {
  return {nullptr, [core = pool.core(), workers = pool.size(), number](void*) {
            const auto drop = make_call([](uint64_t n) { drop_value(n, task_worker()); }, number);
            for (int i = 0; i < workers; ++i) {
              try {
                core->submit(drop.function(), drop.arguments(), {}, i);
              } catch (const Error&) {
                return;  // the pool is closed, or smaller by now
              }
            }
          }};
}

}  // namespace lockstep::detail
