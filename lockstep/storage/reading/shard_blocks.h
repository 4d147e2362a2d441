// Small parts of large objects (images in shards) that are read in any order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/storage/object_store.h"

namespace lockstep::storage {

// Reads objects in blocks of 8 MB into object_cache(), each once by all processes of a user
// together, and parts from there. For objects that fit the cache: see fit(). Parts are not
// verified; callers compare digests. Threads begin with the first call and end with the object.
// Thread-safe.
class ShardBlocks {
 public:
  ShardBlocks(std::string bucket, std::vector<WantedObject> objects);
  ~ShardBlocks();

  // Whether all objects together take at most half of the cache and have ETags.
  static bool fit(const std::vector<WantedObject>& objects);

  // `object` is a number in the list. Throw DataError (FileError), naming the address.
  std::string read(size_t object, uint64_t offset, uint64_t size) const;
  // The same from the store, for contents that were damaged; removes those in the cache.
  std::string read_again(size_t object, uint64_t offset, uint64_t size) const;
  // Begins to read the blocks that hold these bytes, after those that were expected before.
  void expect(size_t object, uint64_t offset, uint64_t size) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::storage
