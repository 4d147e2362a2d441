// Decoded images, kept within a budget of memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/thread_pool.h"
#include "lockstep/data/datastore.h"
#include "lockstep/data/statistics.h"

namespace lockstep {

// Images of one datastore, decoded when first asked for, all of one size. The first images of the
// listing, as many as the budget holds, are kept; the others are decoded each time. The budget
// changes the speed, never the answer. All const members are thread-safe; a hit takes no lock.
class ImageCache {
 public:
  // Images of height x width x channels bytes (channels 1 or 3). The budget's memory is taken from
  // the system as it is filled. Throws InvalidArgument for a size that cannot be.
  ImageCache(DatastorePtr store, int64_t height, int64_t width, int64_t channels,
             size_t budget_bytes);
  ~ImageCache();
  ImageCache(const ImageCache&) = delete;
  ImageCache& operator=(const ImageCache&) = delete;

  int64_t size() const { return size_; }
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  int64_t channels() const { return channels_; }
  size_t image_bytes() const { return image_bytes_; }
  // Number of images that the budget keeps.
  int64_t capacity() const { return capacity_; }
  const DatastorePtr& store() const { return store_; }
  int64_t label(int64_t index) const { return store_->label(index); }

  // The decoded image: image_bytes() bytes, channels x rows x columns. Points into the
  // cache, or into `scratch` where the image is not kept. Grey and colour are converted as
  // convert_channels() does. Throws DataError when the file cannot be decoded or has another size
  // (naming it, its size and the expected size), InvalidArgument outside the listing.
  const uint8_t* get(int64_t index, std::vector<uint8_t>& scratch) const;

  // What one pass over all images tells.
  struct Contents {
    Digest listing;  // the same as listing_digest()
    ChannelStatistics statistics;
  };
  // Reads and decodes every image once, keeps what the budget holds, and returns the listing's
  // digest and the statistics. `progress`, if given, is called now and then by the calling thread
  // with the number of images done, at last with all. Throws DataError for the first bad image by
  // index.
  Contents fill(ThreadPool& pool, const std::function<void(int64_t)>& progress = {}) const;

 private:
  enum State : uint8_t { empty, busy, ready };

  void check_index(int64_t index) const;
  std::vector<uint8_t> load(int64_t index, Digest* content) const;
  // Copies the pixels into the image's slot if it has one that nobody fills; says whether.
  bool keep(int64_t index, const std::vector<uint8_t>& pixels) const;

  DatastorePtr store_;
  int64_t size_ = 0, height_ = 0, width_ = 0, channels_ = 0;
  size_t image_bytes_ = 0;
  int64_t capacity_ = 0;
  std::unique_ptr<uint8_t[]> slots_;                // capacity_ x image_bytes_, not initialised
  std::unique_ptr<std::atomic<uint8_t>[]> states_;  // State of each slot
  // Of each image since fill(): an image that is read again must not have changed.
  mutable std::vector<Digest> contents_;
};

// Digest of a listing: its classes, and name, label and content digest of every observation in
// order. Reads every file. Throws DataError. The same whatever the number of threads.
Digest listing_digest(const ImageDatastore& store, ThreadPool& pool);

}  // namespace lockstep
