// Windows of one size, cut from images.
#pragma once

#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

// The place of a window in an image. `row` and `column` are positions among the free rows and
// columns, in units of 2^-32. The default is the centre, rounded towards the top left.
struct Window {
  bool centre = true;
  uint32_t row = 0, column = 0;

  // Returns the first of `size` positions among `whole` >= size.
  static int64_t first(bool centre, uint32_t share, int64_t whole, int64_t size) {
    if (centre) return (whole - size) / 2;
    return static_cast<int64_t>((uint64_t{share} * static_cast<uint64_t>(whole - size + 1)) >> 32);
  }
  int64_t top(int64_t rows, int64_t height) const { return first(centre, row, rows, height); }
  int64_t left(int64_t columns, int64_t width) const {
    return first(centre, column, columns, width);
  }
};

// Draws a uniformly distributed place: a function of the arguments only (RandomUse::augment, keys
// as in draw_augmentation(), words 8 and 9). Thread-safe.
Window draw_window(uint64_t seed, int64_t epoch, int64_t index_in_listing, int64_t repetition = 0);

// Throws DataError, naming the image, unless it has at least height x width pixels.
void check_holds_window(const Image& image, int64_t height, int64_t width, const std::string& name);

// Returns the height x width window of an image. Throws InvalidArgument if the image is smaller.
// Thread-safe.
Image crop(const Image& image, int64_t height, int64_t width, const Window& where = {});

// Returns the same observations, cut to their centres. Digests of contents are those of the
// originals combined with the size, so a cut image differs from a resized one. Reading an image
// that is smaller throws DataError, naming it. Thread-safe.
DatastorePtr center_cropped(DatastorePtr store, int64_t height, int64_t width);

}  // namespace lockstep
