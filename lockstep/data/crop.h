// Parts of images of one size.
#pragma once

#include "lockstep/data/datastore.h"

namespace lockstep {

// Where a window lies in an image: its free rows and columns, shared out in 2^32 parts. The default
// is the centre (rounded up and to the left).
struct Window {
  bool centre = true;
  uint32_t row = 0, column = 0;

  // First of `size` places among `whole` >= size.
  static int64_t first(bool centre, uint32_t share, int64_t whole, int64_t size) {
    if (centre) return (whole - size) / 2;
    return static_cast<int64_t>((uint64_t{share} * static_cast<uint64_t>(whole - size + 1)) >> 32);
  }
  int64_t top(int64_t rows, int64_t height) const { return first(centre, row, rows, height); }
  int64_t left(int64_t columns, int64_t width) const {
    return first(centre, column, columns, width);
  }
};

// Any place, evenly: a function of the arguments alone (RandomUse::augment, keys as in
// draw_augmentation(), words 8 and 9). Thread-safe.
Window draw_window(uint64_t seed, int64_t epoch, int64_t index_in_listing, int64_t repetition = 0);

// Throws DataError naming the image unless it has at least height x width pixels.
void check_holds_window(const Image& image, int64_t height, int64_t width, const std::string& name);

// The height x width window of an image that is at least as large. Throws InvalidArgument where it
// is not. Thread-safe.
Image crop(const Image& image, int64_t height, int64_t width, const Window& where = {});

// The same observations, cut to their centres. Digests of contents are those of the originals with
// the size: a cut image is another than a resized one.
// Reading an image that is smaller throws DataError naming it. Thread-safe.
DatastorePtr center_cropped(DatastorePtr store, int64_t height, int64_t width);

}  // namespace lockstep
