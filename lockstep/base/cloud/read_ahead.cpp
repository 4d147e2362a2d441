#include "lockstep/base/cloud/read_ahead.h"

#include <algorithm>
#include <deque>
#include <map>
#include <thread>

#include "lockstep/base/cloud/answers.h"
#include "lockstep/base/cloud/object_cache.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/threads/mutex.h"

namespace lockstep::cloud {
namespace {

constexpr int64_t most_ahead = 64;  // objects
constexpr uint64_t bytes_ahead = uint64_t{64} << 20;
constexpr size_t at_once = 16;  // objects that a thread reads side by side
constexpr int reading_threads = 2;
constexpr int64_t near = 16;  // threads that share a listing read it about in order

}  // namespace

struct ReadAhead::State {
  struct Slot {
    bool done = false;
    int waiting = 0;  // readers
    ReadObject object;
  };

  std::string bucket;
  std::vector<WantedObject> objects;
  Mutex mutex;
  ConditionVariable wanted, arrived;
  std::map<int64_t, Slot> slots LOCKSTEP_GUARDED_BY(mutex);
  std::deque<int64_t> queue LOCKSTEP_GUARDED_BY(mutex);
  uint64_t bytes LOCKSTEP_GUARDED_BY(mutex) = 0;  // of all slots
  int64_t last LOCKSTEP_GUARDED_BY(mutex) = -near - 1;
  bool ending LOCKSTEP_GUARDED_BY(mutex) = false;
  std::vector<std::thread> threads;  // started with the lock

  uint64_t size(int64_t index) const { return objects[static_cast<size_t>(index)].size; }

  void start_threads() LOCKSTEP_REQUIRES(mutex) {
    if (!threads.empty()) return;
    for (int i = 0; i < reading_threads; ++i) threads.emplace_back([this] { serve(); });
  }

  void ask(int64_t index, bool urgent) LOCKSTEP_REQUIRES(mutex) {
    if (!slots.try_emplace(index).second) return;
    bytes += size(index);
    if (urgent) {
      queue.push_front(index);
    } else {
      queue.push_back(index);
    }
    wanted.notify_one();
  }

  void drop(std::map<int64_t, Slot>::iterator slot) LOCKSTEP_REQUIRES(mutex) {
    bytes -= size(slot->first);
    slots.erase(slot);
  }

  // Asks for what follows, and forgets what was read ahead in vain.
  void ask_ahead(int64_t index) LOCKSTEP_REQUIRES(mutex) {
    const bool in_order = index > last - near && index <= last + near;
    last = index;
    if (!in_order) return;
    for (auto slot = slots.begin(); slot != slots.end();) {
      const auto here = slot++;
      const bool far = here->first < index - 2 * near || here->first > index + 2 * most_ahead;
      if (far && here->second.done && here->second.waiting == 0) drop(here);
    }
    const int64_t end = std::min(index + most_ahead, static_cast<int64_t>(objects.size()));
    for (int64_t next = index + 1; next < end && bytes + size(next) <= bytes_ahead; ++next) {
      ask(next, false);
    }
  }

  void serve() LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    while (!ending) {
      if (queue.empty()) {
        wanted.wait_until(mutex, TimeLimit(1));
        continue;
      }
      std::vector<int64_t> indices;
      while (!queue.empty() && indices.size() < at_once) {
        indices.push_back(queue.front());
        queue.pop_front();
      }
      std::vector<ReadObject> found;
      {
        const MutexUnlock unlocked(mutex);
        found = fetched(indices);
      }
      for (size_t k = 0; k < indices.size(); ++k) {
        Slot& slot = slots.at(indices[k]);
        slot.object = std::move(found[k]);
        slot.done = true;
      }
      arrived.notify_all();
    }
  }

  // The object, as soon as it has arrived. Each request has a limit.
  ReadObject object(int64_t index) LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    start_threads();
    ask(index, true);
    const auto slot = slots.find(index);
    ++slot->second.waiting;
    ask_ahead(index);
    while (!slot->second.done) arrived.wait_until(mutex, TimeLimit(1));
    if (--slot->second.waiting > 0) return slot->second.object;
    ReadObject taken = std::move(slot->second.object);
    drop(slot);
    return taken;
  }

  // Without the lock. Never throws: errors belong to those who read.
  std::vector<ReadObject> fetched(const std::vector<int64_t>& indices) {
    std::vector<ReadObject> results(indices.size());
    try {
      std::vector<WantedObject> missing;
      std::vector<size_t> places;
      for (size_t k = 0; k < indices.size(); ++k) {
        const WantedObject& object = objects[static_cast<size_t>(indices[k])];
        if (std::optional<std::string> kept = object_cache().find(bucket, object)) {
          results[k].bytes = std::move(*kept);
        } else {
          missing.push_back(object);
          places.push_back(k);
        }
      }
      if (missing.empty()) return results;
      std::vector<ReadObject> read = object_store().read(bucket, missing);
      for (size_t m = 0; m < missing.size(); ++m) {
        if (read[m].error.empty()) object_cache().keep(bucket, missing[m], read[m].bytes);
        results[places[m]] = std::move(read[m]);
      }
    } catch (const std::exception& error) {
      for (ReadObject& result : results) {
        if (result.bytes.empty()) result.error = error.what();
      }
    }
    return results;
  }
};

ReadAhead::ReadAhead(std::string bucket, std::vector<WantedObject> objects)
    : state_(std::make_unique<State>()) {
  state_->bucket = std::move(bucket);
  state_->objects = std::move(objects);
}

ReadAhead::~ReadAhead() {
  {
    State& s = *state_;
    const MutexLock lock(s.mutex);
    s.ending = true;
    s.wanted.notify_all();
  }
  for (std::thread& thread : state_->threads) thread.join();
}

std::string ReadAhead::read(int64_t index) const {
  State& s = *state_;
  ReadObject object = s.object(index);
  if (object.error.empty()) return std::move(object.bytes);
  const std::string address =
      Address{s.bucket, s.objects[static_cast<size_t>(index)].key}.to_string();
  const std::string message = "[s3] cannot read " + printable(address) + ": " + object.error;
  if (object.error == changed_object) throw DataError(message);
  throw FileError(message);
}

}  // namespace lockstep::cloud
