#include "lockstep/data/image_cache.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string size_text(int64_t height, int64_t width, int64_t channels) {
  return std::to_string(height) + " x " + std::to_string(width) + " x " + std::to_string(channels);
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

}  // namespace

ImageCache::ImageCache(DatastorePtr store, int64_t height, int64_t width, int64_t channels,
                       size_t budget_bytes, CachedImages images)
    : store_(std::move(store)),
      height_(height),
      width_(width),
      channels_(channels),
      images_(images) {
  if (store_ == nullptr) throw InvalidArgument("[image cache] there is no datastore");
  if (height < 1 || width < 1 || height > max_image_side || width > max_image_side ||
      (channels != 1 && channels != 3)) {
    throw InvalidArgument("[image cache] images of " + size_text(height, width, channels) +
                              " (rows x columns x channels) cannot be",
                          "rows and columns lie in 1 to " + std::to_string(max_image_side) +
                              ", channels are 1 (grey) or 3 (colour)");
  }
  size_ = store_->size();
  image_bytes_ = static_cast<size_t>(height * width * channels);
  if (images_ == CachedImages::windowed) {
    reserved_bytes_ = budget_bytes;
    wholes_ = std::make_unique<std::atomic<const Planes*>[]>(static_cast<size_t>(size_));
    return;
  }
  capacity_ = static_cast<int64_t>(
      std::min<uint64_t>(static_cast<uint64_t>(size_), budget_bytes / image_bytes_));
  const auto slots = static_cast<size_t>(capacity_);
  reserved_bytes_ = slots * image_bytes_;
  slots_ = std::make_unique_for_overwrite<uint8_t[]>(slots * image_bytes_);
  states_ = std::make_unique<std::atomic<uint8_t>[]>(slots);
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

ImageCache::Planes ImageCache::load(int64_t index, Digest* content) const {
  Digest digest;
  Image image = store_->read(index, digest);
  if (content != nullptr) {
    *content = digest;
  } else if (!contents_.empty() && contents_[static_cast<size_t>(index)] != digest) {
    throw DataError("[image cache] " + store_->name(index) + " (" + store_->describe() +
                        ") has changed since the beginning",
                    "a run's data must stay as it is until the run has ended");
  }
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
  std::memcpy(slots_.get() + slot * image_bytes_, pixels.data(), image_bytes_);
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
    return slots_.get() + slot * image_bytes_;
  }
  scratch = load(index, nullptr).pixels;
  return keep(index, scratch) ? slots_.get() + slot * image_bytes_ : scratch.data();
}

ImageCache::Contents ImageCache::fill(ThreadPool& pool,
                                      const std::function<void(int64_t)>& progress) const {
  constexpr int64_t kBetweenCalls = 256;  // images
  struct alignas(64) Part {
    ChannelStatistics statistics;
    std::vector<uint8_t> scratch;
  };
  std::vector<Part> parts(static_cast<size_t>(pool.size()));
  for (Part& part : parts) part.statistics = ChannelStatistics(channels_);
  std::vector<Digest> contents(static_cast<size_t>(size_));
  std::atomic<int64_t> done{0};
  int64_t told = 0;  // of the calling thread, which is number 0
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
    const int64_t now = ++done;
    if (progress && thread == 0 && now - told >= kBetweenCalls) {
      told = now;
      progress(now);
    }
  });
  if (progress) progress(size_);
  Contents result{digest_of_listing(*store_, contents), ChannelStatistics(channels_)};
  for (const Part& part : parts) result.statistics.merge(part.statistics);
  contents_ = std::move(contents);
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
