#include "lockstep/storage/reading/shard_blocks.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/storage/network_wait.h"
#include "lockstep/storage/reading/fetch_threads.h"
#include "lockstep/storage/reading/object_cache.h"
#include "lockstep/storage/reading/read_ahead.h"

namespace lockstep::storage {
namespace {

constexpr uint64_t block_bytes = uint64_t{8} << 20;
constexpr size_t blocks_at_once = 4;  // that a thread reads side by side
constexpr int block_threads = 2;
constexpr double longest_claim = 90;  // seconds for another process that fetches a block

}  // namespace

struct ShardBlocks::State {
  std::string bucket;
  std::vector<WantedObject> objects;
  std::vector<size_t> first_block;  // of each object, then the number of all blocks
  std::unique_ptr<std::atomic<bool>[]> present;
  Mutex mutex;
  ConditionVariable arrived;
  std::set<size_t> pending LOCKSTEP_GUARDED_BY(mutex);  // asked for
  std::map<size_t, std::string> errors LOCKSTEP_GUARDED_BY(mutex);
  // Ends first.
  FetchThreads threads{block_threads, blocks_at_once,
                       [this](const std::vector<int64_t>& blocks) { serve(blocks); }};

  size_t object_of(size_t block) const {
    const auto after = std::upper_bound(first_block.begin(), first_block.end(), block);
    return static_cast<size_t>(after - first_block.begin()) - 1;
  }
  WantedPart part_of(size_t block) const {
    const size_t object = object_of(block);
    const uint64_t offset = (block - first_block[object]) * block_bytes;
    return {objects[object], offset, std::min(block_bytes, objects[object].size - offset)};
  }
  // The name of a block in the cache. Keys contain no zero byte.
  static WantedObject cached(const WantedPart& part) {
    const std::string suffix = std::string(1, '\0') + "block " + std::to_string(part.offset);
    return {part.object.key + suffix, part.size, part.object.etag};
  }

  void ask(size_t block) LOCKSTEP_REQUIRES(mutex) {
    if (pending.insert(block).second) threads.ask(static_cast<int64_t>(block));
  }

  // Waits until a block is in the cache. Returns why it cannot be read, or "".
  std::string bring(size_t block) LOCKSTEP_EXCLUDES(mutex) {
    if (present[block].load(std::memory_order_acquire)) return {};
    const MutexLock lock(mutex);
    NetworkWait wait;
    if (!present[block].load()) ask(block);
    threads.hurry(static_cast<int64_t>(block));
    while (pending.contains(block)) {
      arrived.wait_until(mutex, TimeLimit(1));
      wait.goes_on();
    }
    const auto found = errors.find(block);
    if (found == errors.end()) return {};
    std::string error = std::move(found->second);
    errors.erase(found);  // the next reader tries again
    return error;
  }

  void serve(const std::vector<int64_t>& numbers) LOCKSTEP_EXCLUDES(mutex) {
    std::vector<size_t> blocks(numbers.begin(), numbers.end());
    std::sort(blocks.begin(), blocks.end());  // one order of claims in all processes
    std::map<size_t, std::string> failed;
    fetch(blocks, failed);
    const MutexLock lock(mutex);
    for (const size_t block : blocks) {
      pending.erase(block);
      const auto error = failed.find(block);
      if (error == failed.end()) {
        present[block].store(true, std::memory_order_release);
      } else {
        errors[block] = error->second;
      }
    }
    arrived.notify_all();
  }

  // Without the lock. Never throws: errors belong to those who read.
  void fetch(const std::vector<size_t>& blocks, std::map<size_t, std::string>& failed) const {
    try {
      std::vector<std::shared_ptr<const void>> claims;
      std::vector<WantedPart> missing;
      std::vector<size_t> numbers;
      for (const size_t block : blocks) {
        const WantedPart part = part_of(block);
        if (object_cache().holds(bucket, cached(part))) continue;
        const double patience = retries_stopped() ? 0 : longest_claim;
        claims.push_back(object_cache().claim(bucket, cached(part), patience));
        if (object_cache().holds(bucket, cached(part))) continue;
        missing.push_back(part);
        numbers.push_back(block);
      }
      if (missing.empty()) return;
      const std::vector<ReadObject> read = object_store().read_parts(bucket, missing);
      for (size_t i = 0; i < missing.size(); ++i) {
        if (read[i].error.empty()) {
          object_cache().keep(bucket, cached(missing[i]), read[i].bytes);
        } else {
          failed[numbers[i]] = read[i].error;
        }
      }
    } catch (const Cancelled&) {
      for (const size_t block : blocks) failed[block] = stopped_request;
    } catch (const std::exception& error) {
      for (const size_t block : blocks) failed[block] = error.what();
    }
  }

  template <class Use>
  void for_each_block(size_t object, uint64_t offset, uint64_t size, Use use) const {
    for (uint64_t at = offset; at < offset + size;) {
      const uint64_t number = at / block_bytes;
      const uint64_t end = std::min((number + 1) * block_bytes, offset + size);
      use(first_block[object] + number, at - number * block_bytes, end - at);
      at = end;
    }
  }

  std::string from_store(size_t object, uint64_t offset, uint64_t size) const {
    const NetworkWait wait;
    ReadObject read =
        std::move(object_store().read_parts(bucket, {{objects[object], offset, size}})[0]);
    if (!read.error.empty()) refuse_object(bucket, objects[object].key, read.error);
    return std::move(read.bytes);
  }
};

ShardBlocks::ShardBlocks(std::string bucket, std::vector<WantedObject> objects)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.bucket = std::move(bucket);
  s.objects = std::move(objects);
  s.first_block.push_back(0);
  for (const WantedObject& object : s.objects) {
    s.first_block.push_back(s.first_block.back() + (object.size + block_bytes - 1) / block_bytes);
  }
  s.present = std::make_unique<std::atomic<bool>[]>(s.first_block.back());
}

ShardBlocks::~ShardBlocks() = default;

bool ShardBlocks::fit(const std::vector<WantedObject>& objects) {
  const auto room = static_cast<uint64_t>(object_cache().most_bytes()) / 2;
  uint64_t all = 0;
  for (const WantedObject& object : objects) {
    if (object.etag.empty() || object.size > room - all) return false;
    all += object.size;
  }
  return true;
}

std::string ShardBlocks::read(size_t object, uint64_t offset, uint64_t size) const {
  State& s = *state_;
  std::string bytes;
  bool whole = true;
  s.for_each_block(object, offset, size, [&](size_t block, uint64_t begin, uint64_t length) {
    const std::string error = s.bring(block);
    if (!error.empty()) refuse_object(s.bucket, s.objects[object].key, error);
    std::optional<std::string> part =
        object_cache().find_part(s.bucket, State::cached(s.part_of(block)), begin, length);
    // A full disk, or a cache that others have filled: the block is read again by the next reader.
    if (!part) s.present[block].store(false);
    whole = whole && part.has_value();
    if (part) bytes += *part;
  });
  return whole ? bytes : s.from_store(object, offset, size);
}

std::string ShardBlocks::read_again(size_t object, uint64_t offset, uint64_t size) const {
  State& s = *state_;
  s.for_each_block(object, offset, size, [&](size_t block, uint64_t, uint64_t) {
    object_cache().forget(s.bucket, State::cached(s.part_of(block)));
    s.present[block].store(false);
  });
  return s.from_store(object, offset, size);
}

void ShardBlocks::expect(size_t object, uint64_t offset, uint64_t size) const {
  State& s = *state_;
  s.for_each_block(object, offset, size, [&](size_t block, uint64_t, uint64_t) {
    if (s.present[block].load(std::memory_order_acquire)) return;
    const MutexLock lock(s.mutex);
    s.ask(block);
  });
}

}  // namespace lockstep::storage
