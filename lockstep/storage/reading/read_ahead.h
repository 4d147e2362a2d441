// Objects that are read in the background before they are needed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/storage/object_store.h"

namespace lockstep::storage {

// A listing of objects, or of parts of objects, of one bucket. A reader that follows the order of
// the listing, or the order of expect(), finds the next ones, up to 64 MB, in memory. Contents come
// from object_cache() if they are there. Threads for this begin with the first read() or expect()
// and end with the object. Thread-safe.
class ReadAhead {
 public:
  ReadAhead(std::string bucket, std::vector<WantedPart> parts);
  ~ReadAhead();

  // Contents of part `index`. Throws DataError (FileError), naming the address, if it cannot be
  // read or is no longer the listed one.
  std::string read(int64_t index) const;
  // The same from the store, for contents that were damaged; removes those in the cache.
  std::string read_again(int64_t index) const;
  // Parts that will be read next, in this order.
  void expect(const std::vector<int64_t>& indices) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The whole objects, in order.
std::vector<WantedPart> whole_objects(std::vector<WantedObject> objects);

// Throws the error of reading an object: DataError if it has changed, Cancelled if a stop was
// requested, else FileError.
[[noreturn]] void refuse_object(const std::string& bucket, const std::string& key,
                                const std::string& error);

}  // namespace lockstep::storage
