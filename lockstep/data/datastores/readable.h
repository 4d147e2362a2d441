// Finds the images of a datastore that can be read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

struct UnreadableImage {
  std::string name;    // as ImageDatastore::name()
  std::string reason;  // message of the error from reading it
};

struct ReadableImages {
  DatastorePtr store;                       // readable images; the given store if all are readable
  std::vector<int64_t> indices;             // indices in the given store, ascending
  std::vector<UnreadableImage> unreadable;  // unreadable images in the order of the listing
};

// Reads and decodes every image once and leaves out those that throw DataError. Does not depend on
// the number of threads. `stop`, if given, is called by all threads, one at a time; true ends the
// reading. Throws DataError if no image is readable, InvalidArgument without a store, and Cancelled
// if `stop` returned true.
ReadableImages readable_images(DatastorePtr store, ThreadPool& pool,
                               const std::function<bool()>& stop = {});

}  // namespace lockstep
