#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/datastores/datastores.h"

namespace lockstep {

ReadableImages readable_images(DatastorePtr store, ThreadPool& pool,
                               const std::function<bool()>& stop) {
  if (store == nullptr) throw InvalidArgument("[readable_images] the datastore is null");
  std::vector<std::string> reasons(static_cast<size_t>(store->size()));
  Mutex asking;  // `stop` need not be thread-safe
  const auto stopped = [&] {
    if (!stop) return false;
    const MutexLock lock(asking);
    return stop();
  };
  pool.for_each(store->size(), [&](int64_t i, int) {
    if (stopped()) {
      throw Cancelled("[data] stopped while the images were read",
                      "no iteration had begun, so nothing is lost");
    }
    if (store->facts(i) != nullptr) return;  // was decoded when the index was written
    try {
      store->read(i);
    } catch (const DataError& error) {
      reasons[static_cast<size_t>(i)] = error.what();
    }
  });
  ReadableImages result;
  for (int64_t i = 0; i < store->size(); ++i) {
    std::string& reason = reasons[static_cast<size_t>(i)];
    if (reason.empty()) {
      result.indices.push_back(i);
    } else {
      result.unreadable.push_back({store->name(i), std::move(reason)});
    }
  }
  if (result.indices.empty() && store->size() > 0) {
    throw DataError("[data] none of the " + std::to_string(store->size()) + " images of " +
                    store->describe() + " can be read; the first: " + result.unreadable[0].reason);
  }
  result.store =
      result.unreadable.empty() ? std::move(store) : subset(std::move(store), result.indices);
  return result;
}

}  // namespace lockstep
