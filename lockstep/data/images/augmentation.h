// Random changes of images: augmentation of training images, which keeps their label, and noise on
// inputs, for denoising tasks or for robustness.
#pragma once

#include <cstdint>

#include "lockstep/base/fields.h"
#include "lockstep/base/numeric/image_map.h"

namespace lockstep {

struct Image;

// The changes and their ranges. Values are uniformly distributed.
struct Augmentation {
  bool reflect_x = false;      // mirrored left to right with probability 1/2
  bool reflect_y = false;      // mirrored top to bottom with probability 1/2
  Size2d translate_x{0, 0};    // [low, high] whole pixels to the right, both included
  Size2d translate_y{0, 0};    // [low, high] whole pixels down, both included
  NumberRange rotation{0, 0};  // [low, high] degrees, counterclockwise; within 360
  NumberRange scale{1, 1};     // [low, high] factors of both sides, 0.01 to 100
  NumberRange shear_x{0, 0};   // [low, high] degrees: lower rows go to the right; within 89
  NumberRange shear_y{0, 0};   // [low, high] degrees: columns to the right go down; within 89

  void visit(FieldVisitor& v);
  // Whether any change is possible.
  bool any() const;
  // Whether any change other than reflection is possible.
  bool moves() const;
  friend bool operator==(const Augmentation&, const Augmentation&) = default;
};

// The random values for one image.
struct AugmentationDraw {
  bool reflect_x = false;
  int64_t shift_x = 0, shift_y = 0;  // pixels right, pixels down
  bool reflect_y = false;
  double rotation = 0, scale = 1, shear_x = 0, shear_y = 0;  // degrees; scale: a factor

  // Whether every pixel of the result is a pixel of the source, or 0.
  bool whole_pixels() const { return rotation == 0 && scale == 1 && shear_x == 0 && shear_y == 0; }
  friend bool operator==(const AugmentationDraw&, const AugmentationDraw&) = default;
};

// Returns the draw for one use of one observation: a function of its arguments only
// (RandomUse::augment, key a = epoch, b = index in the listing, c = repetition). Words 0 to 3 are
// for reflection in x, translation in x and y, and reflection in y; words 4 to 7 for rotation,
// scale, and shear in x and y. A disabled change does not affect the others. Throws InvalidArgument
// for a range with low > high or out of bounds. Thread-safe.
AugmentationDraw draw_augmentation(const Augmentation& augmentation, uint64_t seed, int64_t epoch,
                                   int64_t index_in_listing, int64_t repetition = 0);

// Returns the map from pixels of the augmented image to the source. Applying it as an affine map
// gives the same bytes as augment_into(), also for pure reflections and shifts. Thread-safe.
ImageMap map_of(const AugmentationDraw& draw);

// Writes the augmented image in the same size. The image is reflected about its center, sheared in
// x, then in y, rotated and scaled, and finally shifted by whole pixels. Pure reflections and
// shifts copy pixels. All other changes are one affine map: each pixel is interpolated linearly
// between the four nearest pixels of the source. Positions and weights are integers (2^-8 pixels),
// so the result is equal on every processor. Pixels from outside the source are 0. `source` and
// `destination` have height x width x channels bytes and must not overlap. Thread-safe.
void augment_into(const uint8_t* source, int64_t height, int64_t width, int64_t channels,
                  const AugmentationDraw& draw, uint8_t* destination);
void augment_into(const Image& source, const AugmentationDraw& draw, uint8_t* destination);
// The same for channels x height x width bytes.
void augment_planes_into(const uint8_t* source, int64_t height, int64_t width, int64_t channels,
                         const AugmentationDraw& draw, uint8_t* destination);

// Noise for inputs, never for targets. Training draws it again in every epoch. Validation and tests
// draw it once.
struct InputNoise {
  // Share of elements (each channel of a pixel separately) that become 0 or 255, with equal
  // probability.
  double salt_and_pepper = 0;

  void visit(FieldVisitor& v);
  // Whether any change is possible.
  bool any() const { return salt_and_pepper > 0; }
  friend bool operator==(const InputNoise&, const InputNoise&) = default;
};

// The epoch number for draws in validation and tests, which is not an epoch of training.
inline constexpr int64_t fixed_noise_epoch = -1;

// Changes `count` bytes in place for one use of one input of an observation: a function of its
// arguments only (RandomUse::noise, key a = epoch, b = index in the listing, c = number of the
// input; position = element, channel by channel). Throws InvalidArgument for a share outside
// [0, 1]. Thread-safe.
void add_noise(const InputNoise& noise, uint64_t seed, int64_t epoch, int64_t index_in_listing,
               uint8_t* pixels, int64_t count, int64_t input = 0);

}  // namespace lockstep
