// What the first reading of images has found, kept on disk, so that a later training of the same
// files begins at once instead of reading all of them again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/data/batches/example_cache.h"

namespace lockstep {

// fill() of a cache, or what an earlier fill() of the same examples found, from a file in the
// folder `images` of the user's cache folder (find_cache_folder()). A record is used if all that
// the results depend on is the same: the build, the builds of the libraries that decode, the shapes
// of the cache, and Datastore::file_state(). Builds without an id keep no records. Examples are
// then read when they are needed, and their digests compared with the record. `notices` receives
// what the datastore told of the examples because of the earlier reading. A record that is damaged
// or cannot be written is ignored: the images are read. Readings of less than a second are not
// kept; the environment variable LOCKSTEP_KEPT_READING_SECONDS, for tests, changes that limit.
// `decoders` names what decodes; "": image_library_builds(). Throws what fill() throws. One thread
// at a time for a cache.
ExampleCache::Contents read_or_recall(const ExampleCache& cache, ThreadPool& pool,
                                      const std::function<void(int64_t)>& progress,
                                      std::vector<std::string>& notices,
                                      const std::string& decoders = {});

}  // namespace lockstep
