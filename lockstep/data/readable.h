// Which images of a datastore can be read at all.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/thread_pool.h"
#include "lockstep/data/datastore.h"

namespace lockstep {

struct UnreadableImage {
  std::string name;    // as ImageDatastore::name()
  std::string reason;  // the message of the error that reading it gave
};

struct ReadableImages {
  DatastorePtr store;            // those that can be read; the store itself where that is all
  std::vector<int64_t> indices;  // of these in the whole store, rising
  std::vector<UnreadableImage> unreadable;  // the others, in the order of the listing
};

// Reads and decodes every image once, and leaves out those that throw DataError. The same whatever
// the number of threads. `stop`, if given, is asked by all threads, whether to end. Throws
// DataError when no image is left, InvalidArgument without a store, Cancelled when it was stopped.
ReadableImages readable_images(DatastorePtr store, ThreadPool& pool,
                               const std::function<bool()>& stop = {});

}  // namespace lockstep
