// Random changes of training images that keep their label.
#pragma once

#include <cstdint>

#include "lockstep/base/fields.h"
#include "lockstep/data/image.h"

namespace lockstep {

// Which changes are drawn.
struct Augmentation {
  bool reflect_x = false;    // mirrored left to right with probability 1/2
  Size2d translate_x{0, 0};  // [low, high] whole pixels to the right, both included
  Size2d translate_y{0, 0};  // [low, high] whole pixels down, both included

  void visit(FieldVisitor& v);
  // Whether anything can change.
  bool any() const;
  friend bool operator==(const Augmentation&, const Augmentation&) = default;
};

// One draw.
struct AugmentationDraw {
  bool reflect_x = false;
  int64_t shift_x = 0, shift_y = 0;  // pixels right, pixels down
  friend bool operator==(const AugmentationDraw&, const AugmentationDraw&) = default;
};

// The draw for one use of one observation: a function of its arguments alone (RandomUse::augment,
// key a = epoch, b = index in the listing, c = repetition; positions 0, 1, 2 for reflection, x, y).
// Throws InvalidArgument when a range has low > high. Thread-safe.
AugmentationDraw draw_augmentation(const Augmentation& augmentation, uint64_t seed, int64_t epoch,
                                   int64_t index_in_listing, int64_t repetition = 0);

// Writes the changed image, same size: reflected first, then shifted by whole pixels; pixels that
// come from outside are 0. `source` and `destination` hold height x width x channels bytes and do
// not overlap. Thread-safe.
void augment_into(const uint8_t* source, int64_t height, int64_t width, int64_t channels,
                  const AugmentationDraw& draw, uint8_t* destination);
void augment_into(const Image& source, const AugmentationDraw& draw, uint8_t* destination);

}  // namespace lockstep
