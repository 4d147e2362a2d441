// Changes of colors, blur and erasing of images in place: the part of augmentation that moves no
// pixel. Integers and own functions only, so every processor gives the same bytes.
#pragma once

#include <cstdint>

#include "lockstep/data/images/augmentation.h"
#include "lockstep/engine/kernels/images/augment_images.h"

namespace lockstep::detail {

// Applies the changes of `draw` to an image in memory of this layout: colors in the order drawn,
// blur, and what is erased. Thread-safe.
void change_appearance(const AugmentationDraw& draw, const kernels::ImageLayout& image,
                       uint8_t* pixels);

}  // namespace lockstep::detail
