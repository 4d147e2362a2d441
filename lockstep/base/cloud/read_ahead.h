// Objects that are read in the background before they are needed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/cloud/object_store.h"

namespace lockstep::cloud {

// A listing of objects of one bucket. A reader that follows the order of the listing finds the
// next ones, up to 64 MB, in memory. Contents come from object_cache() if they are there. Threads
// for this begin with the first read() and end with the object. Thread-safe.
class ReadAhead {
 public:
  ReadAhead(std::string bucket, std::vector<WantedObject> objects);
  ~ReadAhead();

  // Contents of object `index`. Throws DataError (FileError), naming the address, if it cannot be
  // read or is no longer the listed one.
  std::string read(int64_t index) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::cloud
