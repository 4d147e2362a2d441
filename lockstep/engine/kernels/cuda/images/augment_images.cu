#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/images/augment_images.h"

namespace lockstep::kernels::cuda {
namespace {

// Computes one pixel of the result in all channels, so that adjacent threads write adjacent
// elements.
struct AugmentPixel {
  AugmentImages all;
  __device__ void operator()(int64_t i) const {
    const ImageLayout& image = all.image;
    const Division row = divide(i, image.width);
    const Division of_image = divide(row.quotient, image.height);
    const ImagePosition position =
        position_in_source(all.maps[of_image.quotient], image, of_image.remainder, row.remainder);
    const int64_t first = of_image.quotient * image.channels * image.channel_step;
    const int64_t pixel = of_image.remainder * image.width + row.remainder;
    for (int64_t c = 0; c < image.channels; ++c) {
      const int64_t plane = first + c * image.channel_step;
      all.destination[plane + pixel] = pixel_at(all.source + plane, image, position);
    }
  }
};

}  // namespace

void augment_images(const AugmentImages& all, void* stream) {
  const int64_t pixels = all.images * all.image.height * all.image.width;
  launch_each("augment images", pixels, stream, AugmentPixel{all});
}

}  // namespace lockstep::kernels::cuda
