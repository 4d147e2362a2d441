// Decoded images, or arrays of floats, kept within a budget of memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fields.h"
#include "lockstep/base/shape.h"
#include "lockstep/base/shared_memory.h"
#include "lockstep/base/thread_pool.h"
#include "lockstep/data/crop.h"
#include "lockstep/data/datastore.h"
#include "lockstep/data/statistics.h"

namespace lockstep {

// Which images an ImageCache takes.
enum class CachedImages {
  exact,     // all of its size
  windowed,  // all at least as large: windows of its size are given, anywhere in the image
};

// Images of one datastore, decoded when first asked for, all given in one size. As many as the
// budget holds are kept (the first of the listing; of those to be windowed, the first that were
// read, whole), the others are decoded each time. The budget changes the speed, never the answer.
// All const members are thread-safe; a hit takes no lock.
class ImageCache {
 public:
  // Images of height x width x channels bytes (channels 1 or 3). The budget's memory is taken from
  // the system as it is filled. Throws InvalidArgument for a size that cannot be.
  ImageCache(DatastorePtr store, int64_t height, int64_t width, int64_t channels,
             size_t budget_bytes, CachedImages images = CachedImages::exact);
  // Arrays of floats of that shape, at least one dimension. Throws InvalidArgument where the
  // datastore's are of another, or images.
  ImageCache(DatastorePtr store, const Shape& shape, size_t budget_bytes);
  ~ImageCache();
  ImageCache(const ImageCache&) = delete;
  ImageCache& operator=(const ImageCache&) = delete;

  int64_t size() const { return size_; }
  // Of an element: u8 of images, f32 of arrays.
  DType dtype() const { return dtype_; }
  // Arrays count as one row of each channel (dimension 0), as wide as it has elements.
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  int64_t channels() const { return channels_; }
  int64_t elements() const { return channels_ * height_ * width_; }
  size_t image_bytes() const { return image_bytes_; }
  CachedImages images() const { return images_; }
  // Number of images that the budget keeps, where all have one size; else 0.
  int64_t capacity() const { return capacity_; }
  // What of the budget this may take at most.
  size_t reserved_bytes() const { return reserved_bytes_; }
  const DatastorePtr& store() const { return store_; }
  int64_t label(int64_t index) const { return store_->label(index); }
  // Digest of an observation's contents, after fill().
  const Digest& content(int64_t index) const { return contents_.at(static_cast<size_t>(index)); }

  // The decoded image: image_bytes() bytes, channels x rows x columns (of arrays the floats' bytes,
  // aligned as they need it). Points into the cache, or into `scratch` where the image is not kept.
  // Grey and colour are converted as convert_channels() does; of larger ones, the centre. Throws
  // DataError when the file cannot be decoded or has another size (naming it, its size and the
  // expected size), InvalidArgument outside the listing.
  const uint8_t* get(int64_t index, std::vector<uint8_t>& scratch) const {
    return get(index, Window{}, scratch);
  }
  // The same of any window. `whole`, if given, becomes the image's own rows and columns.
  const uint8_t* get(int64_t index, const Window& where, std::vector<uint8_t>& scratch,
                     Size2d* whole = nullptr) const;

  // Puts what is kept into an arena, where other processes with the same datastore find it; to be
  // called before anything is read. Returns where that is, for attach(). Of windowed images only
  // the digests are shared, by which a change is noticed. A process that ends while it decodes an
  // image leaves that image to be decoded each time.
  SharedPlace share(SharedMemory& arena) const;
  // Takes the place of another process's cache of the same datastore and size, after its fill().
  // Nothing happens for an empty place. Throws InvalidArgument for another size.
  void attach(const SharedMemory& arena, const SharedPlace& place) const;

  // What one pass over all images tells.
  struct Contents {
    Digest listing;                    // the same as listing_digest()
    ChannelStatistics statistics;      // of images
    ArrayStatistics array_statistics;  // of arrays
    // Of either, for set_input_normalization().
    std::vector<ChannelSummary> channels() const {
      return array_statistics.count > 0 ? array_statistics.summaries() : statistics.summaries();
    }
  };
  // Reads and decodes every image once, keeps what the budget holds, and returns the listing's
  // digest and the statistics. `progress`, if given, is called now and then by the calling thread
  // with the number of images done, at last with all. Throws DataError for the first bad image by
  // index.
  Contents fill(ThreadPool& pool, const std::function<void(int64_t)>& progress = {}) const;

 private:
  enum State : uint8_t { empty, busy, ready };
  // A decoded image, channel by channel.
  struct Planes {
    int64_t height = 0, width = 0;
    std::vector<uint8_t> pixels;
  };

  void make_slots(size_t budget_bytes);
  size_t shared_bytes() const;
  void use(const SharedRegion& region) const;
  void check_index(int64_t index) const;
  // Gives the digest of what was read; without `content` it must be that of the first reading, else
  // throws DataError.
  void take_content(int64_t index, const Digest& read, Digest* content) const;
  Planes load(int64_t index, Digest* content) const;
  // Copies the pixels into the image's slot if it has one that nobody fills; says whether.
  bool keep(int64_t index, const std::vector<uint8_t>& pixels) const;
  // Keeps an image to be windowed if the budget allows and nobody else did; says where.
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
  mutable int64_t capacity_ = 0;  // of an arena's slots where there is one
  CachedImages images_ = CachedImages::exact;
  size_t reserved_bytes_ = 0;
  // Of slots, in this process's memory or in an arena.
  mutable std::unique_ptr<uint8_t[]> own_slots_;
  mutable std::unique_ptr<std::atomic<uint8_t>[]> own_states_;
  mutable SharedRegion shared_;
  mutable uint8_t* slots_ = nullptr;                // capacity_ x image_bytes_, not initialised
  mutable std::atomic<uint8_t>* states_ = nullptr;  // State of each slot
  std::unique_ptr<std::atomic<const Planes*>[]> wholes_;  // of each image, where windowed
  mutable std::atomic<size_t> taken_bytes_{0};            // by wholes_
  // Of each image since fill(): an image that is read again must not have changed.
  mutable std::vector<Digest> contents_;
};

// Digest of a listing: its classes, and name, label and content digest of every observation in
// order. Reads every file. Throws DataError. The same whatever the number of threads.
Digest listing_digest(const ImageDatastore& store, ThreadPool& pool);

}  // namespace lockstep
