// Resizing of images.
#pragma once

#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

// Returns the image with `height` rows and `width` columns, by linear interpolation between pixel
// centres. When an image gets smaller, each pixel is the mean of the covered pixels, weighted by a
// triangle, which prevents aliasing. Computes in integers, rows first, rounded to 8 bits after each
// direction, so the result is equal on every processor. An image that already has the size is
// unchanged. Throws InvalidArgument for an empty image or a size outside 1 to max_image_side.
// Thread-safe.
Image resize(Image image, int64_t height, int64_t width);

// Returns the same observations with resized images. Digests of contents are those of the
// originals. Thread-safe.
DatastorePtr resized(DatastorePtr store, int64_t height, int64_t width);

}  // namespace lockstep
