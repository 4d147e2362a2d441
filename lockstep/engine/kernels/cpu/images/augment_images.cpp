#include "lockstep/engine/kernels/images/augment_images.h"

#include <algorithm>

namespace lockstep::kernels::cpu {

void augment_image(const uint8_t* source, const ImageLayout& image, const ImageMap& map,
                   const std::array<uint8_t, 3>& fill, uint8_t* destination, bool nearest) {
  const ImageLayout extents = image;  // a copy, so that stores of bytes do not force reloads
  for (int64_t y = 0; y < extents.height; ++y) {
    for (int64_t x = 0; x < extents.width; ++x) {
      const ImagePosition position = position_in_source(map, extents, y, x);
      uint8_t* const to = destination + (y * extents.width + x) * extents.pixel_step;
      for (int64_t c = 0; c < extents.channels; ++c) {
        const int64_t plane = c * extents.channel_step;
        const uint8_t outside = fill[static_cast<size_t>(std::min<int64_t>(c, 2))];
        to[plane] = nearest ? nearest_at(source + plane, extents, position, outside)
                            : pixel_at(source + plane, extents, position, outside);
      }
    }
  }
}

void augment_images(const AugmentImages& all, void* /*stream*/) {
  const int64_t elements = all.image.channels * all.image.height * all.image.width;
  for (int64_t i = 0; i < all.images; ++i) {
    augment_image(all.source + i * elements, all.image, all.maps[i], {},
                  all.destination + i * elements);
  }
}

}  // namespace lockstep::kernels::cpu
