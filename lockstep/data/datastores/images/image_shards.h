// Images in tar archives, wherever the archives are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/datastores/images/image_index.h"
#include "lockstep/data/datastores/images/image_listing.h"

namespace lockstep {

// Archives of a listing, by number. Thread-safe after set_images().
class ShardFiles {
 public:
  virtual ~ShardFiles() = default;
  // Called once, before read() and expect().
  virtual void set_images(const std::vector<IndexedImage>& images) = 0;
  virtual std::vector<std::byte> whole(uint32_t shard) = 0;
  // Image number `index`. See ImageListing::bytes().
  virtual std::vector<std::byte> read(int64_t index, const IndexedImage& image, bool again) = 0;
  virtual void expect(const std::vector<int64_t>& indices,
                      const std::vector<IndexedImage>& images) = 0;
};

// An archive that exists: its name below the root, and its size in bytes.
using ShardFile = IndexedShard;

// `files`, sorted, are the archives of `contents`, with the same numbers. Without an index, all
// archives are read. Throws DataError if the index describes other archives.
DatastorePtr image_shards(const std::string& root, const std::string& root_name,
                          const std::vector<ShardFile>& files, std::optional<ImageIndex> index,
                          std::unique_ptr<ShardFiles> contents, const ImageFolderOptions& options);

// While this exists, `progress` is called while the thread that made it opens archives without an
// index, which are all read: bytes read and in all. It may throw to end that. Not nested.
class WatchArchives {
 public:
  explicit WatchArchives(std::function<void(uint64_t done, uint64_t total)> progress);
  ~WatchArchives();
  WatchArchives(const WatchArchives&) = delete;
  WatchArchives& operator=(const WatchArchives&) = delete;

 private:
  const std::function<void(uint64_t, uint64_t)> progress_;
  friend void tell_of_archives(uint64_t done, uint64_t total);
};

}  // namespace lockstep
