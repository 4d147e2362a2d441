#include "lockstep/base/cloud/read_ahead.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "lockstep/base/cloud/answers.h"
#include "lockstep/base/cloud/object_cache.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

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
  std::mutex mutex;
  std::condition_variable wanted, arrived;
  std::map<int64_t, Slot> slots;
  std::deque<int64_t> queue;
  uint64_t bytes = 0;  // of all slots
  int64_t last = -near - 1;
  bool ending = false;
  std::vector<std::thread> threads;

  uint64_t size(int64_t index) const { return objects[static_cast<size_t>(index)].size; }

  // The following functions are called with the lock.

  void start_threads() {
    if (!threads.empty()) return;
    for (int i = 0; i < reading_threads; ++i) threads.emplace_back([this] { serve(); });
  }

  void ask(int64_t index, bool urgent) {
    if (!slots.try_emplace(index).second) return;
    bytes += size(index);
    if (urgent) {
      queue.push_front(index);
    } else {
      queue.push_back(index);
    }
    wanted.notify_one();
  }

  void drop(std::map<int64_t, Slot>::iterator slot) {
    bytes -= size(slot->first);
    slots.erase(slot);
  }

  // Asks for what follows, and forgets what was read ahead in vain.
  void ask_ahead(int64_t index) {
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

  void serve() {
    std::unique_lock lock(mutex);
    while (!ending) {
      if (queue.empty()) {
        wanted.wait_for(lock, std::chrono::seconds(1));
        continue;
      }
      std::vector<int64_t> indices;
      while (!queue.empty() && indices.size() < at_once) {
        indices.push_back(queue.front());
        queue.pop_front();
      }
      lock.unlock();
      std::vector<ReadObject> found = fetched(indices);
      lock.lock();
      for (size_t k = 0; k < indices.size(); ++k) {
        Slot& slot = slots.at(indices[k]);
        slot.object = std::move(found[k]);
        slot.done = true;
      }
      arrived.notify_all();
    }
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
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
    state_->wanted.notify_all();
  }
  for (std::thread& thread : state_->threads) thread.join();
}

std::string ReadAhead::read(int64_t index) const {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.start_threads();
  s.ask(index, true);
  const auto slot = s.slots.find(index);
  ++slot->second.waiting;
  s.ask_ahead(index);
  // Requests have limits of their own.
  while (!slot->second.done) s.arrived.wait_for(lock, std::chrono::seconds(1));
  const bool last_reader = --slot->second.waiting == 0;
  ReadObject object = last_reader ? std::move(slot->second.object) : slot->second.object;
  if (last_reader) s.drop(slot);
  lock.unlock();
  if (object.error.empty()) return std::move(object.bytes);
  const std::string address =
      Address{s.bucket, s.objects[static_cast<size_t>(index)].key}.to_string();
  const std::string message = "[s3] cannot read " + printable(address) + ": " + object.error;
  if (object.error == changed_object) throw DataError(message);
  throw FileError(message);
}

}  // namespace lockstep::cloud
