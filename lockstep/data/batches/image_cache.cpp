#include "lockstep/data/batches/image_cache.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/alignment.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/os/shared_memory.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/data/datastores/datastores.h"

namespace lockstep {
namespace {

std::string size_text(int64_t height, int64_t width, int64_t channels) {
  return std::to_string(height) + " x " + std::to_string(width) + " x " + std::to_string(channels);
}

// The start of a shared cache. The states of the slots, the digests and the slots follow.
struct SharedHead {
  int64_t size, capacity;
  uint64_t image_bytes;
};

size_t digests_offset(int64_t capacity) {
  return cache_line + round_up(static_cast<size_t>(capacity));
}

Digest digest_of_listing(const ImageDatastore& store, const std::vector<Digest>& contents) {
  Digester digester;
  digester.add(static_cast<uint64_t>(store.classes().size()));
  for (const std::string& name : store.classes()) digester.add(std::string_view(name));
  digester.add(static_cast<uint64_t>(store.size()));
  for (int64_t i = 0; i < store.size(); ++i) {
    const std::string name = store.name(i);
    digester.add(std::string_view(name));
    digester.add(static_cast<uint64_t>(store.label(i)));
    digester.add(contents[static_cast<size_t>(i)]);
  }
  return digester.finish();
}

// Reports progress to the calling thread, which is number 0, from time to time.
class Told {
 public:
  explicit Told(const std::function<void(int64_t)>& progress) : progress_(progress) {}
  void one_more(int thread) {
    constexpr int64_t kBetweenCalls = 256;
    constexpr double kSeconds = 0.1;  // the callback may stop the work
    const int64_t now = ++done_;
    if (!progress_ || thread != 0) return;
    if (now - told_ < kBetweenCalls && !soon_.reached()) return;
    told_ = now;
    soon_ = TimeLimit(kSeconds);
    progress_(now);
  }

 private:
  const std::function<void(int64_t)>& progress_;
  std::atomic<int64_t> done_{0};
  // Used by thread 0 only.
  int64_t told_ = 0;
  TimeLimit soon_{0.1};
};

}  // namespace

ImageCache::ImageCache(DatastorePtr store, int64_t height, int64_t width, int64_t channels,
                       size_t budget_bytes, CachedImages images)
    : store_(std::move(store)),
      height_(height),
      width_(width),
      channels_(channels),
      images_(images) {
  if (store_ == nullptr) throw InvalidArgument("[image cache] the datastore is null");
  if (height < 1 || width < 1 || height > max_image_side || width > max_image_side ||
      (channels != 1 && channels != 3)) {
    throw InvalidArgument("[image cache] images of " + size_text(height, width, channels) +
                              " (rows x columns x channels) are not possible",
                          "rows and columns must be 1 to " + std::to_string(max_image_side) +
                              ", channels 1 (grey) or 3 (colour)");
  }
  check_images(*store_, "image cache");
  size_ = store_->size();
  image_bytes_ = static_cast<size_t>(height * width * channels);
  if (images_ == CachedImages::windowed) {
    reserved_bytes_ = budget_bytes;
    wholes_ = std::make_unique<std::atomic<const Planes*>[]>(static_cast<size_t>(size_));
    return;
  }
  make_slots(budget_bytes);
}

ImageCache::ImageCache(DatastorePtr store, const Shape& shape, size_t budget_bytes)
    : store_(std::move(store)), dtype_(DType::f32) {
  if (store_ == nullptr) throw InvalidArgument("[image cache] the datastore is null");
  const std::optional<Shape> given = store_->array_shape();
  if (!given || !(*given == shape) || shape.rank() < 1 || shape.elements() < 1) {
    throw InvalidArgument("[image cache] expected arrays of " + shape.to_string() +
                          " floats, but the observations (" + store_->describe() + ") are " +
                          (given ? "arrays of " + given->to_string() : "images"));
  }
  size_ = store_->size();
  channels_ = shape[0];
  height_ = 1;
  width_ = shape.elements() / channels_;
  image_bytes_ = static_cast<size_t>(shape.elements()) * sizeof(float);
  make_slots(budget_bytes);
}

void ImageCache::make_slots(size_t budget_bytes) {
  capacity_ = static_cast<int64_t>(
      std::min<uint64_t>(static_cast<uint64_t>(size_), budget_bytes / image_bytes_));
  const auto slots = static_cast<size_t>(capacity_);
  reserved_bytes_ = slots * image_bytes_;
  own_slots_ = std::make_unique_for_overwrite<uint8_t[]>(slots * image_bytes_);
  own_states_ = std::make_unique<std::atomic<uint8_t>[]>(slots);
  slots_ = own_slots_.get();
  states_ = own_states_.get();
}

size_t ImageCache::shared_bytes() const {
  return digests_offset(capacity_) + round_up(static_cast<size_t>(size_) * sizeof(Digest)) +
         static_cast<size_t>(capacity_) * image_bytes_;
}

void ImageCache::use(const SharedRegion& region) const {
  static_assert(std::atomic<uint8_t>::is_always_lock_free && empty == 0);
  static_assert(sizeof(SharedHead) <= cache_line);
  shared_ = region;
  own_slots_.reset();
  own_states_.reset();
  states_ = reinterpret_cast<std::atomic<uint8_t>*>(region.get() + cache_line);
  slots_ = reinterpret_cast<uint8_t*>(region.get() + digests_offset(capacity_) +
                                      round_up(static_cast<size_t>(size_) * sizeof(Digest)));
}

SharedPlace ImageCache::share(SharedMemory& arena) const {
  const SharedPlace place = arena.reserve(shared_bytes());
  use(arena.map(place));
  const SharedHead head{size_, capacity_, image_bytes_};
  std::memcpy(shared_.get(), &head, sizeof head);
  return place;
}

void ImageCache::attach(const SharedMemory& arena, const SharedPlace& place) const {
  if (place.bytes == 0) return;
  const SharedRegion region = arena.map(place);
  SharedHead head{};
  std::memcpy(&head, region.get(), sizeof head);
  const bool same = head.size == size_ && head.image_bytes == image_bytes_ && head.capacity >= 0 &&
                    head.capacity <= size_;
  if (!same) throw InvalidArgument("[image cache] the shared cache is for other images");
  capacity_ = head.capacity;
  use(region);
  contents_.resize(static_cast<size_t>(size_));
  std::memcpy(contents_.data(), region.get() + digests_offset(capacity_),
              contents_.size() * sizeof(Digest));
}

ImageCache::~ImageCache() {
  if (!wholes_) return;
  for (size_t i = 0; i < static_cast<size_t>(size_); ++i) delete wholes_[i].load();
}

void ImageCache::check_index(int64_t index) const {
  if (index < 0 || index >= size_) {
    throw InvalidArgument("[image cache] no observation " + std::to_string(index) + " among " +
                          std::to_string(size_) + " (" + store_->describe() + ")");
  }
}

void ImageCache::take_content(int64_t index, const Digest& read, Digest* content) const {
  if (content != nullptr) {
    *content = read;
  } else if (!contents_.empty() && contents_[static_cast<size_t>(index)] != read) {
    throw DataError("[image cache] " + store_->name(index) + " (" + store_->describe() +
                        ") has changed since the run began",
                    "a run's data must not change until the run has ended");
  }
}

ImageCache::Planes ImageCache::load(int64_t index, Digest* content) const {
  Digest digest;
  if (dtype_ == DType::f32) {
    const std::vector<float> values = store_->read_array(index, digest);
    take_content(index, digest, content);
    if (values.size() * sizeof(float) != image_bytes_) {
      throw DataError("[image cache] " + store_->name(index) + " (" + store_->describe() +
                      ") has " + std::to_string(values.size()) + " elements, expected " +
                      std::to_string(elements()));
    }
    Planes array{height_, width_, std::vector<uint8_t>(image_bytes_)};
    std::memcpy(array.pixels.data(), values.data(), image_bytes_);
    return array;
  }
  Image image = store_->read(index, digest);
  take_content(index, digest, content);
  if (images_ == CachedImages::windowed) {
    check_holds_window(image, height_, width_,
                       store_->name(index) + " (" + store_->describe() + ")");
  } else if (image.height != height_ || image.width != width_) {
    throw DataError("[image cache] " + store_->name(index) + " (" + store_->describe() +
                        ") has the size " + size_text(image.height, image.width, image.channels) +
                        ", expected " + size_text(height_, width_, channels_) +
                        " (rows x columns x channels)",
                    "all images must have the size of the network's input: resize or crop them");
  }
  const int64_t height = image.height, width = image.width;
  return {height, width, to_planes(convert_channels(std::move(image), channels_))};
}

bool ImageCache::keep(int64_t index, const std::vector<uint8_t>& pixels) const {
  if (index >= capacity_) return false;
  const auto slot = static_cast<size_t>(index);
  uint8_t expected = empty;
  if (!states_[slot].compare_exchange_strong(expected, busy, std::memory_order_acquire)) {
    return false;
  }
  std::memcpy(slots_ + slot * image_bytes_, pixels.data(), image_bytes_);
  states_[slot].store(ready, std::memory_order_release);
  return true;
}

const ImageCache::Planes* ImageCache::keep_whole(int64_t index, Planes& image) const {
  std::atomic<const Planes*>& place = wholes_[static_cast<size_t>(index)];
  const size_t bytes = image.pixels.size() + sizeof(Planes);
  if (taken_bytes_.fetch_add(bytes) + bytes <= reserved_bytes_) {
    auto kept = std::make_unique<const Planes>(std::move(image));
    const Planes* there = nullptr;
    if (place.compare_exchange_strong(there, kept.get())) return kept.release();
    taken_bytes_.fetch_sub(bytes);
    return there;
  }
  taken_bytes_.fetch_sub(bytes);
  return &image;
}

void ImageCache::cut(const Planes& image, const Window& where,
                     std::vector<uint8_t>& scratch) const {
  const int64_t top = where.top(image.height, height_), left = where.left(image.width, width_);
  scratch.resize(image_bytes_);
  uint8_t* to = scratch.data();
  for (int64_t c = 0; c < channels_; ++c) {
    for (int64_t y = 0; y < height_; ++y, to += width_) {
      const int64_t from = (c * image.height + top + y) * image.width + left;
      std::memcpy(to, image.pixels.data() + from, static_cast<size_t>(width_));
    }
  }
}

const uint8_t* ImageCache::get(int64_t index, std::vector<uint8_t>& scratch) const {
  return get(index, Window{}, scratch);
}

const uint8_t* ImageCache::get(int64_t index, const Window& where, std::vector<uint8_t>& scratch,
                               Size2d* whole) const {
  check_index(index);
  const auto slot = static_cast<size_t>(index);
  if (images_ == CachedImages::windowed) {
    const Planes* image = wholes_[slot].load(std::memory_order_acquire);
    Planes read;
    if (image == nullptr) {
      read = load(index, nullptr);
      image = keep_whole(index, read);
    }
    if (whole != nullptr) *whole = {image->height, image->width};
    cut(*image, where, scratch);
    return scratch.data();
  }
  if (whole != nullptr) *whole = {height_, width_};
  if (index < capacity_ && states_[slot].load(std::memory_order_acquire) == ready) {
    return slots_ + slot * image_bytes_;
  }
  scratch = load(index, nullptr).pixels;
  return keep(index, scratch) ? slots_ + slot * image_bytes_ : scratch.data();
}

ImageCache::Contents ImageCache::fill_images(ThreadPool& pool, std::vector<Digest>& contents,
                                             const std::function<void(int64_t)>& progress) const {
  struct alignas(64) Part {
    ChannelStatistics statistics;
    std::vector<uint8_t> scratch;
  };
  std::vector<Part> parts(static_cast<size_t>(pool.size()));
  for (Part& part : parts) part.statistics = ChannelStatistics(channels_);
  Told told(progress);
  pool.for_each(size_, [&](int64_t i, int thread) {
    Part& part = parts[static_cast<size_t>(thread)];
    Planes image = load(i, &contents[static_cast<size_t>(i)]);
    if (images_ == CachedImages::windowed) {
      cut(*keep_whole(i, image), {}, part.scratch);
    } else {
      part.scratch = std::move(image.pixels);
      keep(i, part.scratch);
    }
    part.statistics.add(part.scratch.data(), height_ * width_);
    told.one_more(thread);
  });
  Contents result{{}, ChannelStatistics(channels_), {}};
  for (const Part& part : parts) result.statistics.merge(part.statistics);
  return result;
}

// Sums in double precision depend on the order. Each chunk is therefore summed in order by one
// thread, and the chunks are merged in order. The bounds of chunks depend on the number of arrays
// only.
ImageCache::Contents ImageCache::fill_arrays(ThreadPool& pool, std::vector<Digest>& contents,
                                             const std::function<void(int64_t)>& progress) const {
  constexpr int64_t kLeast = 64, kMostChunks = 256;
  const int64_t chunk_size = std::max(kLeast, (size_ + kMostChunks - 1) / kMostChunks);
  const int64_t chunks = (size_ + chunk_size - 1) / chunk_size;
  std::vector<ArrayStatistics> parts(static_cast<size_t>(chunks));
  Told told(progress);
  pool.for_each(chunks, [&](int64_t chunk, int thread) {
    const ArithmeticMode mode;
    ArrayStatistics statistics(channels_);
    const int64_t end = std::min((chunk + 1) * chunk_size, size_);
    for (int64_t i = chunk * chunk_size; i < end; ++i) {
      const Planes array = load(i, &contents[static_cast<size_t>(i)]);
      keep(i, array.pixels);
      statistics.add(reinterpret_cast<const float*>(array.pixels.data()), width_);
      told.one_more(thread);
    }
    parts[static_cast<size_t>(chunk)] = std::move(statistics);
    mode.check();
  });
  const ArithmeticMode mode;
  Contents result{{}, {}, ArrayStatistics(channels_)};
  for (const ArrayStatistics& part : parts) result.array_statistics.merge(part);
  return result;
}

ImageCache::Contents ImageCache::fill(ThreadPool& pool,
                                      const std::function<void(int64_t)>& progress) const {
  std::vector<Digest> contents(static_cast<size_t>(size_));
  Contents result = dtype_ == DType::f32 ? fill_arrays(pool, contents, progress)
                                         : fill_images(pool, contents, progress);
  if (progress) progress(size_);
  result.listing = digest_of_listing(*store_, contents);
  contents_ = std::move(contents);
  if (shared_) {
    std::memcpy(shared_.get() + digests_offset(capacity_), contents_.data(),
                contents_.size() * sizeof(Digest));
  }
  return result;
}

Digest listing_digest(const ImageDatastore& store, ThreadPool& pool) {
  std::vector<Digest> contents(static_cast<size_t>(store.size()));
  pool.for_each(store.size(), [&](int64_t i, int) {
    contents[static_cast<size_t>(i)] = store.content_digest(i);
  });
  return digest_of_listing(store, contents);
}

}  // namespace lockstep
