#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/datastores.h"

namespace lockstep {
namespace {

std::string text_of(int64_t height, int64_t width) {
  return std::to_string(height) + " x " + std::to_string(width);
}

class CenterCropped final : public DatastoreWrapper {
 public:
  CenterCropped(DatastorePtr store, int64_t height, int64_t width)
      : DatastoreWrapper(std::move(store)), height_(height), width_(width) {
    check_single_images(wrapped(), "crop", true);
  }

  Example read(int64_t index) const override {
    Example example = wrapped().read(index);
    Image& image = image_in(example, index);
    image = cut(image, index);
    if (Image* const labels = labels_in(example)) *labels = cut(*labels, index);
    example.content = of_window(example.content);
    return example;
  }
  // Differs from the digest of a resized image of the same size.
  Digest content_digest(int64_t index) const override {
    return of_window(wrapped().content_digest(index));
  }
  std::optional<Digest> file_state() const override {
    return changed_state("cropped", {height_, width_});
  }

 private:
  Digest of_window(const Digest& whole) const {
    Digester digester;
    digester.add(whole);
    digester.add(static_cast<uint64_t>(height_));
    digester.add(static_cast<uint64_t>(width_));
    return digester.finish();
  }
  Image cut(const Image& image, int64_t index) const {
    check_holds_window(image, height_, width_, name(index) + " (" + describe() + ")");
    return crop(image, height_, width_);
  }

  int64_t height_, width_;
};

}  // namespace

Window draw_window(uint64_t seed, int64_t epoch, int64_t index_in_listing, int64_t repetition) {
  const RandomStream stream({.seed = seed,
                             .use = RandomUse::augment,
                             .a = static_cast<uint64_t>(epoch),
                             .b = static_cast<uint64_t>(index_in_listing),
                             .c = static_cast<uint64_t>(repetition)});
  const std::array<uint32_t, 4> words = stream.block(2);
  return {.center = false, .row = words[0], .column = words[1]};
}

void check_holds_window(const Image& image, int64_t height, int64_t width,
                        const std::string& name) {
  if (image.height >= height && image.width >= width) return;
  throw DataError("[crop] " + name + " has the size " + text_of(image.height, image.width) +
                      ", which is smaller than the " + text_of(height, width) + " of the crop",
                  "resize images instead");
}

Image crop(const Image& image, int64_t height, int64_t width, const Window& where) {
  if (height < 1 || width < 1 || height > image.height || width > image.width) {
    throw InvalidArgument("[crop] " + text_of(height, width) + " cannot be cropped from " +
                          text_of(image.height, image.width));
  }
  const int64_t top = where.top(image.height, height), left = where.left(image.width, width);
  Image result{height, width, image.channels, {}};
  const auto row_bytes = static_cast<size_t>(width * image.channels);
  result.pixels.resize(row_bytes * static_cast<size_t>(height));
  for (int64_t y = 0; y < height; ++y) {
    const int64_t from = ((top + y) * image.width + left) * image.channels;
    std::memcpy(result.pixels.data() + row_bytes * static_cast<size_t>(y),
                image.pixels.data() + from, row_bytes);
  }
  return result;
}

DatastorePtr center_cropped(DatastorePtr store, int64_t height, int64_t width) {
  if (height < 1 || width < 1 || height > max_image_side || width > max_image_side) {
    throw InvalidArgument("[crop] " + text_of(height, width) +
                          " is not a valid image size: sides must be 1 to " +
                          std::to_string(max_image_side));
  }
  return std::make_shared<CenterCropped>(std::move(store), height, width);
}

}  // namespace lockstep
