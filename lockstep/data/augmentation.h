// Random changes of training images that keep their label.
#pragma once

#include <cstdint>

#include "lockstep/base/fields.h"
#include "lockstep/data/image.h"
#include "lockstep/engine/kernels/augment_images.h"

namespace lockstep {

// Which changes are drawn, each evenly from its range.
struct Augmentation {
  bool reflect_x = false;      // mirrored left to right with probability 1/2
  bool reflect_y = false;      // mirrored top to bottom with probability 1/2
  Size2d translate_x{0, 0};    // [low, high] whole pixels to the right, both included
  Size2d translate_y{0, 0};    // [low, high] whole pixels down, both included
  NumberRange rotation{0, 0};  // [low, high] degrees, anticlockwise; within 360
  NumberRange scale{1, 1};     // [low, high] factors of both sides, 0.01 to 100
  NumberRange shear_x{0, 0};   // [low, high] degrees: lower rows go to the right; within 89
  NumberRange shear_y{0, 0};   // [low, high] degrees: columns to the right go down; within 89

  void visit(FieldVisitor& v);
  // Whether anything can change.
  bool any() const;
  // Whether pixels can change places other than by reflection.
  bool moves() const;
  friend bool operator==(const Augmentation&, const Augmentation&) = default;
};

// One draw.
struct AugmentationDraw {
  bool reflect_x = false;
  int64_t shift_x = 0, shift_y = 0;  // pixels right, pixels down
  bool reflect_y = false;
  double rotation = 0, scale = 1, shear_x = 0, shear_y = 0;  // degrees, and a factor

  // Whether every pixel of the result is a pixel of the source, or 0.
  bool whole_pixels() const { return rotation == 0 && scale == 1 && shear_x == 0 && shear_y == 0; }
  friend bool operator==(const AugmentationDraw&, const AugmentationDraw&) = default;
};

// The draw for one use of one observation: a function of its arguments alone (RandomUse::augment,
// key a = epoch, b = index in the listing, c = repetition; words 0 to 3 for reflection in x,
// translation in x and y, reflection in y; 4 to 7 for rotation, scale, shear in x and y). What is
// not asked for leaves the other draws alone. Throws InvalidArgument for a range with low > high or
// out of bounds. Thread-safe.
AugmentationDraw draw_augmentation(const Augmentation& augmentation, uint64_t seed, int64_t epoch,
                                   int64_t index_in_listing, int64_t repetition = 0);

// Where the changed image's pixels come from. Applied as an affine map this gives the bytes of
// augment_into(), reflections and shifts alone included. Thread-safe.
kernels::ImageMap map_of(const AugmentationDraw& draw);

// Writes the changed image, same size. About the image's centre it is reflected, sheared in x, then
// in y, rotated and scaled; then shifted by whole pixels. Reflections and shifts alone copy pixels;
// anything else is one affine map, each pixel of the result interpolated linearly between the four
// nearest of the source, with places and weights in whole numbers (2^-8 pixels), so that every
// processor gives the same. Pixels that come from outside are 0. `source` and `destination` hold
// height x width x channels bytes and do not overlap. Thread-safe.
void augment_into(const uint8_t* source, int64_t height, int64_t width, int64_t channels,
                  const AugmentationDraw& draw, uint8_t* destination);
void augment_into(const Image& source, const AugmentationDraw& draw, uint8_t* destination);
// The same of channels x height x width bytes.
void augment_planes_into(const uint8_t* source, int64_t height, int64_t width, int64_t channels,
                         const AugmentationDraw& draw, uint8_t* destination);

}  // namespace lockstep
