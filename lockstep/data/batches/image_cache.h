// A cache of decoded images or arrays of floats within a memory budget.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/fields.h"
#include "lockstep/base/numeric/dtype.h"
#include "lockstep/base/numeric/shape.h"
#include "lockstep/data/batches/statistics.h"
#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

class SharedMemory;
class ThreadPool;
struct SharedPlace;
struct Window;  // data/datastores/datastores.h

// The image sizes that an ImageCache accepts.
enum class CachedImages {
  exact,     // images of the cache's size
  windowed,  // images of at least that size; get() returns a window of the cache's size
};

// Images of one datastore, decoded on first use and all returned in one size. The cache keeps as
// many as the budget allows: the first ones of the listing, or for windowed images the first ones
// that were read, whole. All others are decoded each time. The budget affects the speed only, never
// the results. All const members are thread-safe. A hit takes no lock.
class ImageCache {
 public:
  // Images of height x width x channels bytes (channels 1 or 3). The system provides the memory of
  // the budget as the cache fills. Throws InvalidArgument for an invalid size.
  ImageCache(DatastorePtr store, int64_t height, int64_t width, int64_t channels,
             size_t budget_bytes, CachedImages images = CachedImages::exact);
  // Arrays of floats of one shape with at least one dimension. Throws InvalidArgument if the
  // datastore has arrays of another shape, or images.
  ImageCache(DatastorePtr store, const Shape& shape, size_t budget_bytes);
  ~ImageCache();
  ImageCache(const ImageCache&) = delete;
  ImageCache& operator=(const ImageCache&) = delete;

  int64_t size() const { return size_; }
  // Type of an element: u8 for images, f32 for arrays.
  DType dtype() const { return dtype_; }
  // For arrays, the number of channels is dimension 0, the height is 1, and the width is the number
  // of elements per channel.
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  int64_t channels() const { return channels_; }
  int64_t elements() const { return channels_ * height_ * width_; }
  size_t image_bytes() const { return image_bytes_; }
  CachedImages images() const { return images_; }
  // Number of images that the budget can hold if all have one size, otherwise 0.
  int64_t capacity() const { return capacity_; }
  // The largest amount of memory that the cache takes, in bytes.
  size_t reserved_bytes() const { return reserved_bytes_; }
  const DatastorePtr& store() const { return store_; }
  int64_t label(int64_t index) const { return store_->label(index); }
  // Digest of an observation's contents, after fill().
  const Digest& content(int64_t index) const { return contents_.at(static_cast<size_t>(index)); }

  // Returns the decoded image: image_bytes() bytes, channels x rows x columns. For arrays, returns
  // the bytes of the floats, aligned as floats. The pointer is into the cache, or into `scratch` if
  // the image is not cached. Grey and colour are converted as in convert_channels(). For larger
  // images, returns the centre. Throws DataError if the file cannot be decoded or has another size
  // (with its name, its size and the expected size), and InvalidArgument for an index outside the
  // listing.
  const uint8_t* get(int64_t index, std::vector<uint8_t>& scratch) const;
  // The same for any window. `whole`, if not null, receives the rows and columns of the whole
  // image.
  const uint8_t* get(int64_t index, const Window& where, std::vector<uint8_t>& scratch,
                     Size2d* whole = nullptr) const;

  // Moves the cache's memory into an arena, where other processes with the same datastore can use
  // it. Must be called before anything is read. Returns the place for attach(). Windowed images
  // share only the digests, which detect changes. If a process ends while it fills a slot, the
  // image of that slot is never cached.
  SharedPlace share(SharedMemory& arena) const;
  // Uses the memory of another process's cache of the same datastore and size, after its fill().
  // Does nothing for an empty place. Throws InvalidArgument for another size.
  void attach(const SharedMemory& arena, const SharedPlace& place) const;

  // Results of one pass over all images.
  struct Contents {
    Digest listing;                    // equal to listing_digest()
    ChannelStatistics statistics;      // for images
    ArrayStatistics array_statistics;  // for arrays
    // The statistics of images or arrays, for set_input_normalization().
    std::vector<ChannelSummary> channels() const {
      return array_statistics.count > 0 ? array_statistics.summaries() : statistics.summaries();
    }
  };
  // Reads and decodes every image once, caches as many as the budget allows, and returns the
  // listing's digest and the statistics. The calling thread calls `progress`, if given, from time
  // to time with the number of finished images, and at the end with all. Throws DataError for the
  // invalid image with the lowest index.
  Contents fill(ThreadPool& pool, const std::function<void(int64_t)>& progress = {}) const;

 private:
  enum State : uint8_t { empty, busy, ready };
  // A decoded image, planar.
  struct Planes {
    int64_t height = 0, width = 0;
    std::vector<uint8_t> pixels;
  };

  void make_slots(size_t budget_bytes);
  size_t shared_bytes() const;
  void use(const std::shared_ptr<std::byte[]>& region) const;
  void check_index(int64_t index) const;
  // Stores the digest of the contents read in `content`. If `content` is null, throws DataError
  // unless the digest equals that of the first reading.
  void take_content(int64_t index, const Digest& read, Digest* content) const;
  Planes load(int64_t index, Digest* content) const;
  // Copies the pixels into the image's slot, if it has one that no thread fills. Returns whether it
  // did.
  bool keep(int64_t index, const std::vector<uint8_t>& pixels) const;
  // Caches a windowed image if the budget allows and no other thread did. Returns the image's
  // address.
  const Planes* keep_whole(int64_t index, Planes& image) const;
  void cut(const Planes& image, const Window& where, std::vector<uint8_t>& scratch) const;
  Contents fill_images(ThreadPool& pool, std::vector<Digest>& contents,
                       const std::function<void(int64_t)>& progress) const;
  Contents fill_arrays(ThreadPool& pool, std::vector<Digest>& contents,
                       const std::function<void(int64_t)>& progress) const;

  DatastorePtr store_;
  int64_t size_ = 0, height_ = 0, width_ = 0, channels_ = 0;
  DType dtype_ = DType::u8;
  size_t image_bytes_ = 0;
  mutable int64_t capacity_ = 0;  // number of slots; in an arena, that of the arena
  CachedImages images_ = CachedImages::exact;
  size_t reserved_bytes_ = 0;
  // Slots and their states, in this process's memory or in an arena.
  mutable std::unique_ptr<uint8_t[]> own_slots_;
  mutable std::unique_ptr<std::atomic<uint8_t>[]> own_states_;
  mutable std::shared_ptr<std::byte[]> shared_;
  mutable uint8_t* slots_ = nullptr;                      // capacity_ x image_bytes_, uninitialised
  mutable std::atomic<uint8_t>* states_ = nullptr;        // State of each slot
  std::unique_ptr<std::atomic<const Planes*>[]> wholes_;  // by image; only if windowed
  mutable std::atomic<size_t> taken_bytes_{0};            // bytes of the images in wholes_
  // Digest of each image, set by fill(). An image that is read again must not have changed.
  mutable std::vector<Digest> contents_;
};

// Returns the digest of a listing: its classes, and the name, label and content digest of every
// observation in order. Reads every file. Does not depend on the number of threads. Throws
// DataError.
Digest listing_digest(const ImageDatastore& store, ThreadPool& pool);

}  // namespace lockstep
