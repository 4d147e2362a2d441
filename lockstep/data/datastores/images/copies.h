// Copies of images: files with the same bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

class ThreadPool;

// Whether an index tells the contents of some images.
bool have_facts(const Datastore& images);

// For each image of a folder the first one in the listing with the same bytes; itself if there is
// none before. Names of `images` are paths below `folder`. Of images in an index their digests are
// known. Other files are read only as far as they may be copies: those of one size, of which first
// a part of each is compared. A file that cannot be read counts as one without copies. Does not
// depend on the threads.
std::vector<int64_t> first_copies(const Datastore& images, const std::string& folder,
                                  ThreadPool& pool);

}  // namespace lockstep
