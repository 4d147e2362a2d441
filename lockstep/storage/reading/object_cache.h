// Contents of objects on the local disk, shared by all processes of a user.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/storage/object_store.h"

namespace lockstep::storage {

// A folder of contents by store, bucket, key, size and ETag: $XDG_CACHE_HOME/lockstep/objects, else
// ~/.cache/lockstep/objects, readable for the user alone. It keeps at most 10 GB
// (LOCKSTEP_S3_CACHE_GB; 0: nothing) and removes the contents that were written first. Damaged and
// half-written files count as missing. A full disk, or no home, is not an error: nothing is kept.
// Objects without ETag are not kept. Thread-safe, and safe against the end of processes.
class ObjectCache {
 public:
  ObjectCache();
  ~ObjectCache();

  std::optional<std::string> find(const std::string& bucket, const WantedObject& object) const;
  void keep(const std::string& bucket, const WantedObject& object, const std::string& bytes);
  // A part of the contents, which the caller verifies: the digest at their end is not read.
  std::optional<std::string> find_part(const std::string& bucket, const WantedObject& object,
                                       uint64_t offset, uint64_t size) const;
  bool holds(const std::string& bucket, const WantedObject& object) const;
  void forget(const std::string& bucket, const WantedObject& object);  // damaged contents
  // Waits until no other process of the user fetches the object, at most `seconds` (0: a moment),
  // and not after a stop request.
  // Then others wait until the result is destroyed, or this process has ended. Null without a
  // cache, if the object is there, and if another process still fetches it.
  std::shared_ptr<const void> claim(const std::string& bucket, const WantedObject& object,
                                    double seconds) const;
  int64_t most_bytes() const;  // 0: nothing is kept

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The cache of the process. Lives as long as the program.
ObjectCache& object_cache();

}  // namespace lockstep::storage
