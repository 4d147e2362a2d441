#include "lockstep/storage/reading/read_ahead.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/storage/answers.h"
#include "lockstep/storage/network_wait.h"
#include "lockstep/storage/reading/fetch_threads.h"
#include "lockstep/storage/reading/object_cache.h"

namespace lockstep::storage {
namespace {

constexpr int64_t most_ahead = 64;  // objects
constexpr uint64_t bytes_ahead = uint64_t{64} << 20;
constexpr size_t at_once = 16;  // objects that a thread reads side by side
constexpr int reading_threads = 2;
constexpr int64_t near = 16;  // threads that share a listing read it about in order
// How many later parts are read before an expected part is forgotten. Another process has read it.
constexpr int64_t late = 2048;
constexpr int64_t not_expected = -1;
constexpr double longest_part_claim = 5;  // seconds for another process that fetches a part

// The name of a part in the cache. Keys contain no zero byte.
WantedObject cached_name(const WantedPart& part) {
  if (part.size == part.object.size) return part.object;
  return {part.object.key + '\0' + std::to_string(part.offset), part.size, part.object.etag};
}

}  // namespace

std::vector<WantedPart> whole_objects(std::vector<WantedObject> objects) {
  std::vector<WantedPart> parts;
  for (WantedObject& object : objects) {
    const uint64_t size = object.size;
    parts.push_back({std::move(object), 0, size});
  }
  return parts;
}

void refuse_object(const std::string& bucket, const std::string& key, const std::string& error) {
  const std::string message =
      "[s3] cannot read " + printable(Address{bucket, key}.to_string()) + ": " + error;
  if (error == changed_object) throw DataError(message);
  if (error == stopped_request) throw Cancelled(message);
  throw FileError(message);
}

struct ReadAhead::State {
  struct Slot {
    bool done = false;
    int waiting = 0;               // readers
    int64_t order = not_expected;  // its number among all that were expected
    ReadObject object;
  };

  std::string bucket;
  std::vector<WantedPart> parts;
  Mutex mutex;
  ConditionVariable arrived;
  std::map<int64_t, Slot> slots LOCKSTEP_GUARDED_BY(mutex);
  uint64_t bytes LOCKSTEP_GUARDED_BY(mutex) = 0;  // of all slots
  int64_t last LOCKSTEP_GUARDED_BY(mutex) = -near - 1;
  // Expected parts that have not been asked for, because those before them fill the memory.
  std::deque<int64_t> expected LOCKSTEP_GUARDED_BY(mutex);
  int64_t numbered LOCKSTEP_GUARDED_BY(mutex) = 0;
  int64_t missed LOCKSTEP_GUARDED_BY(mutex) = 0;  // parts read that were not expected
  std::atomic<bool> patient = true;               // with other processes; until a wait was in vain
  // Ends first.
  FetchThreads threads{reading_threads, at_once,
                       [this](const std::vector<int64_t>& indices) { serve(indices); }};

  const WantedPart& part(int64_t index) const { return parts[static_cast<size_t>(index)]; }
  uint64_t size(int64_t index) const { return part(index).size; }

  void ask(int64_t index) LOCKSTEP_REQUIRES(mutex) {
    if (!slots.try_emplace(index).second) return;
    bytes += size(index);
    threads.ask(index);
  }

  void drop(std::map<int64_t, Slot>::iterator slot) LOCKSTEP_REQUIRES(mutex) {
    bytes -= size(slot->first);
    slots.erase(slot);
  }

  // Asks for expected parts as long as there is memory.
  void ask_expected() LOCKSTEP_REQUIRES(mutex) {
    while (!expected.empty() && bytes + size(expected.front()) <= bytes_ahead) {
      ask(expected.front());
      slots.at(expected.front()).order = numbered++;
      expected.pop_front();
    }
  }

  // Forgets what was expected long before a part that is read now.
  void forget_late(int64_t order) LOCKSTEP_REQUIRES(mutex) {
    for (auto slot = slots.begin(); slot != slots.end();) {
      const auto here = slot++;
      const bool old = here->second.order != not_expected && here->second.order < order - late;
      if (old && here->second.done && here->second.waiting == 0) drop(here);
    }
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
    const int64_t end = std::min(index + most_ahead, static_cast<int64_t>(parts.size()));
    for (int64_t next = index + 1; next < end && bytes + size(next) <= bytes_ahead; ++next) {
      ask(next);
    }
  }

  void serve(const std::vector<int64_t>& indices) LOCKSTEP_EXCLUDES(mutex) {
    std::vector<ReadObject> found = fetched(indices);
    const MutexLock lock(mutex);
    for (size_t k = 0; k < indices.size(); ++k) {
      Slot& slot = slots.at(indices[k]);
      slot.object = std::move(found[k]);
      slot.done = true;
    }
    arrived.notify_all();
  }

  void expect(const std::vector<int64_t>& indices) LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    // What cannot be asked for now is read when it is needed.
    while (!expected.empty() && expected.size() + indices.size() > size_t{late}) {
      expected.pop_front();
    }
    expected.insert(expected.end(), indices.begin(), indices.end());
    ask_expected();
  }

  // The part, as soon as it has arrived. Each request has a limit.
  ReadObject object(int64_t index) LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    ask(index);
    const auto slot = slots.find(index);
    ++slot->second.waiting;
    if (numbered == 0) ask_ahead(index);  // nothing was ever expected
    if (!slot->second.done) {
      NetworkWait wait;
      threads.hurry(index);
      while (!slot->second.done) {
        arrived.wait_until(mutex, TimeLimit(1));
        wait.goes_on();
      }
    }
    if (--slot->second.waiting > 0) return slot->second.object;
    ReadObject taken = std::move(slot->second.object);
    const int64_t order = slot->second.order;
    drop(slot);
    if (order == not_expected && !expected.empty() && ++missed == 64) {
      forget_late(numbered + late);  // all: readers follow another order
      missed = 0;
    }
    if (order != not_expected && order % 64 == 0) forget_late(order);
    ask_expected();
    return taken;
  }

  // From the store, without the lock.
  ReadObject fresh(int64_t index) const {
    object_cache().forget(bucket, cached_name(part(index)));
    return std::move(object_store().read_parts(bucket, {part(index)})[0]);
  }

  // Whether a part is in the cache; then its contents are written to `result`.
  bool find(int64_t index, ReadObject& result) const {
    std::optional<std::string> kept = object_cache().find(bucket, cached_name(part(index)));
    if (kept) result.bytes = std::move(*kept);
    return kept.has_value();
  }

  // Reads the parts at `chosen` of `indices` from the store into the cache and the results.
  void from_store(const std::vector<int64_t>& indices, const std::vector<size_t>& chosen,
                  std::vector<ReadObject>& results) const {
    if (chosen.empty()) return;
    std::vector<WantedPart> missing;
    for (const size_t k : chosen) missing.push_back(part(indices[k]));
    std::vector<ReadObject> read = object_store().read_parts(bucket, missing);
    for (size_t m = 0; m < missing.size(); ++m) {
      if (read[m].error.empty()) {
        object_cache().keep(bucket, cached_name(missing[m]), read[m].bytes);
      }
      results[chosen[m]] = std::move(read[m]);
    }
  }

  // Without the lock. Never throws: errors belong to those who read. Processes that share the cache
  // fetch each part once together.
  std::vector<ReadObject> fetched(const std::vector<int64_t>& indices) {
    std::vector<ReadObject> results(indices.size());
    try {
      std::vector<size_t> mine, others;  // parts that are missing
      {
        std::vector<std::shared_ptr<const void>> claims;
        for (size_t k = 0; k < indices.size(); ++k) {
          if (find(indices[k], results[k])) continue;
          std::shared_ptr<const void> claim =
              object_cache().claim(bucket, cached_name(part(indices[k])), 0);
          if (find(indices[k], results[k])) continue;  // since the first look
          const bool fetch = claim || object_cache().most_bytes() == 0 || !patient.load();
          (fetch ? mine : others).push_back(k);
          claims.push_back(std::move(claim));
        }
        from_store(indices, mine, results);
      }
      // Nothing is claimed while this waits, so processes cannot wait for each other.
      for (const size_t k : others) {
        const std::shared_ptr<const void> claim = object_cache().claim(
            bucket, cached_name(part(indices[k])), patient.load() ? longest_part_claim : 0);
        if (find(indices[k], results[k])) continue;
        if (!claim) patient.store(false);  // the other process may have been stopped
        if (retries_stopped()) {           // one after the other they would take too long
          results[k].error = stopped_request;
          continue;
        }
        from_store(indices, {k}, results);
      }
    } catch (const Cancelled&) {
      for (ReadObject& result : results) {
        if (result.bytes.empty()) result.error = stopped_request;
      }
    } catch (const std::exception& error) {
      for (ReadObject& result : results) {
        if (result.bytes.empty()) result.error = error.what();
      }
    }
    return results;
  }
};

ReadAhead::ReadAhead(std::string bucket, std::vector<WantedPart> parts)
    : state_(std::make_unique<State>()) {
  state_->bucket = std::move(bucket);
  state_->parts = std::move(parts);
}

ReadAhead::~ReadAhead() = default;

std::string ReadAhead::read(int64_t index) const {
  ReadObject object = state_->object(index);
  if (object.error.empty()) return std::move(object.bytes);
  refuse_object(state_->bucket, state_->part(index).object.key, object.error);
}

std::string ReadAhead::read_again(int64_t index) const {
  ReadObject object = state_->fresh(index);
  if (object.error.empty()) return std::move(object.bytes);
  refuse_object(state_->bucket, state_->part(index).object.key, object.error);
}

void ReadAhead::expect(const std::vector<int64_t>& indices) const { state_->expect(indices); }

}  // namespace lockstep::storage
