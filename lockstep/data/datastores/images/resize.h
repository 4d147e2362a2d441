// Resizing of a region of an image in planar order.
#pragma once

#include <cstdint>

#include "lockstep/base/fields.h"
#include "lockstep/data/images/augmentation.h"

namespace lockstep::detail {

// Writes the region, resized to `size` (rows, columns) as resize() does, plane by plane. `planes`
// has channels x rows x columns bytes of the whole image, in which the region lies; its sides are
// at least 1. Thread-safe.
void resize_region(const uint8_t* planes, const Size2d& whole, int64_t channels,
                   const Region& region, const Size2d& size, uint8_t* to);
// The same for one plane of labels, as resize_labels() does.
void resize_region_of_labels(const uint8_t* labels, const Size2d& whole, const Region& region,
                             const Size2d& size, uint8_t* to);

}  // namespace lockstep::detail
