// Images in another size.
#pragma once

#include "lockstep/data/datastore.h"

namespace lockstep {

// The image with `height` rows and `width` columns, by linear interpolation between pixels'
// centres; where it gets smaller, each pixel is the mean of those it covers, weighted by a triangle
// (as image viewers do, against aliasing). In integers: rows first, rounded to 8 bits after each
// direction, so every processor gives the same. An image of that size already stays as it is.
// Throws InvalidArgument for an empty image or a size outside 1 to max_image_side. Thread-safe.
Image resize(Image image, int64_t height, int64_t width);

// The same observations with resized images. Digests of contents stay those of the originals.
// Thread-safe.
DatastorePtr resized(DatastorePtr store, int64_t height, int64_t width);

}  // namespace lockstep
