// Random changes of inputs: augmentation of training images and sequences, which keeps their label,
// and noise on images, for denoising tasks or for robustness.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/fields.h"
#include "lockstep/base/numeric/image_map.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/data/images/image.h"

namespace lockstep {

// The changes and their ranges.
struct Augmentation {
  // ---- Images; values are uniformly distributed ----
  bool reflect_x = false;      // mirrored left to right with probability 1/2
  bool reflect_y = false;      // mirrored top to bottom with probability 1/2
  Size2d translate_x{0, 0};    // [low, high] whole pixels to the right, both included
  Size2d translate_y{0, 0};    // [low, high] whole pixels down, both included
  NumberRange rotation{0, 0};  // [low, high] degrees, counterclockwise; within 360
  NumberRange scale{1, 1};     // [low, high] factors of both sides, 0.01 to 100
  NumberRange shear_x{0, 0};   // [low, high] degrees: lower rows go to the right; within 89
  NumberRange shear_y{0, 0};   // [low, high] degrees: columns to the right go down; within 89
  NumberRange scale_x{1, 1};   // [low, high] further factors of the width
  NumberRange scale_y{1, 1};   // and of the height; scale * scale_x and scale * scale_y are 0.01
                               // to 100
  // What moves in from outside, and what is erased: one value, or one for each channel, 0 to 255.
  std::vector<int64_t> fill{0};
  // Of the inputs only, as torchvision's ColorJitter: [low, high] changes of the factors 1, from
  // -1; of the hue [low, high] turns of the circle of colors, within 1/2.
  NumberRange brightness{0, 0}, contrast{0, 0}, saturation{0, 0}, hue{0, 0};
  NumberRange blur{0, 0};                // [low, high] standard deviation in pixels, 0 to 100
  double blur_probability = 0.5;         // of images that are blurred, if `blur` is not 0
  double random_erasing = 0;             // the probability that a rectangle of an input is erased
  NumberRange erasing_area{0.02, 0.33};  // [low, high] its share of the image
  NumberRange erasing_ratio{0.3, 3.3};   // [low, high] its height over its width
  // Images with class labels: each one is mixed with the one before it in the mini-batch (the first
  // with the last). The parameter of the symmetric Beta distribution of the image's own share, 0 to
  // 100; 0: off. `mixup` adds all pixels, `cutmix` puts a rectangle of the other image into it. If
  // both are set, each mini-batch takes one of them with probability 1/2.
  double mixup = 0, cutmix = 0;

  // ---- Sequences of numbers, as the data have them: before the network's normalization ----
  // Standard deviation of the normal noise that is added to each value. In the units of the data.
  double jitter = 0;
  // Each channel of a sequence is multiplied by a random factor, drawn from a normal with mean 1
  // and this standard deviation.
  double scaling = 0;
  // Runs of steps that become 0, as SpecAugment has them (Park et al. 2019): `time_masks` of them,
  // each of 0 to `time_mask` steps, equally likely, at a step that is equally likely. None is
  // longer than the sequence, or than `time_mask_fraction` of its steps, rounded down.
  int64_t time_mask = 0;
  int64_t time_masks = 1;
  double time_mask_fraction = 1;
  // The same for channels next to each other, in all steps.
  int64_t channel_mask = 0;
  int64_t channel_masks = 1;

  void visit(FieldVisitor& v);
  // Throws InvalidArgument, naming the field, for values out of range, and for fields about masks
  // without masks.
  void check() const;
  // Whether any change is possible.
  bool any() const { return !image_change().empty() || !sequence_change().empty(); }
  // The name of the first field that changes images, or sequences; "" if none does.
  std::string image_change() const;
  std::string sequence_change() const;
  // Whether any change other than reflection is possible that moves pixels.
  bool moves() const;
  // Whether colors can change, or images be blurred or erased.
  bool changes_appearance() const;
  // Whether images of a mini-batch are mixed with each other.
  bool mixes() const { return mixup > 0 || cutmix > 0; }
  // Whether map_of() describes every possible change.
  bool only_maps() const;
  friend bool operator==(const Augmentation&, const Augmentation&) = default;
};

// Values for the colors of one image.
struct ColorDraw {
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;  // as in Augmentation
  std::array<uint8_t, 4> order{0, 1, 2, 3};  // of the four changes, by their numbers above

  friend bool operator==(const ColorDraw&, const ColorDraw&) = default;
};

// A rectangle of an image, in pixels.
struct Region {
  int64_t top = 0, left = 0, height = 0, width = 0;
  friend bool operator==(const Region&, const Region&) = default;
};

// Draws for a rectangle in an image of any size: the first of them that fits is taken.
struct RegionDraw {
  struct Try {
    double area = 0, ratio = 1;    // share of the image; a side over the other one
    uint32_t row = 0, column = 0;  // among the possible positions, in units of 2^-32
    friend bool operator==(const Try&, const Try&) = default;
  };
  std::array<Try, 10> tries{};
  NumberRange ratio{1, 1};  // the range of the ratios
  friend bool operator==(const RegionDraw&, const RegionDraw&) = default;
};

// The region that torchvision's RandomErasing erases: `ratio` is height over width. Nothing if none
// of the draws gives one that is lower and narrower than the image. Thread-safe.
std::optional<Region> erased_region(const RegionDraw& draw, int64_t height, int64_t width);

// The region of an image that is resized to the network's input, as torchvision's
// RandomResizedCrop draws it: its area is uniformly distributed, and so is the logarithm of its
// ratio.
struct RandomResizedCrop {
  NumberRange area{0.08, 1};           // [low, high] share of the image, more than 0, at most 1
  NumberRange ratio{0.75, 4.0 / 3.0};  // [low, high] width over height, 0.01 to 100

  // Throws InvalidArgument, naming the range, for one with low > high or out of bounds.
  void check() const;
  friend bool operator==(const RandomResizedCrop&, const RandomResizedCrop&) = default;
};

// Returns the draw for one use of one observation: a function of its arguments only
// (RandomUse::augment, keys as in draw_augmentation(); each of the blocks 48 to 57 is a try).
// Throws InvalidArgument as RandomResizedCrop::check(). Thread-safe.
RegionDraw draw_resized_crop(const RandomResizedCrop& crop, uint64_t seed, int64_t epoch,
                             int64_t index_in_listing, int64_t repetition = 0);

// The region of an image of this size: that of the first try that fits into it. If none does, the
// largest central one whose ratio is in the range. Both sides are at least 1. Thread-safe.
Region resized_region(const RegionDraw& draw, int64_t height, int64_t width);

// The largest region in the center of an image that has the proportions of `height` x `width`,
// rounded down to whole pixels. Thread-safe.
Region central_region(const Size2d& whole, int64_t height, int64_t width);

// The value of pixels without a class in label images, as datastores return them.
inline constexpr uint8_t ignored_pixel = 255;

// The random values for one image.
struct AugmentationDraw {
  bool reflect_x = false;
  int64_t shift_x = 0, shift_y = 0;  // pixels right, pixels down
  bool reflect_y = false;
  double rotation = 0, scale = 1, shear_x = 0, shear_y = 0;  // degrees; scale: a factor
  double scale_x = 1, scale_y = 1;
  std::array<uint8_t, 3> fill{0, 0, 0};  // for each channel
  bool nearest = false;                  // pixels are not interpolated
  ColorDraw color = {};
  double blur = 0;      // standard deviation in pixels; 0: not blurred
  bool erases = false;  // a region is erased
  RegionDraw erasing = {};

  // Whether every pixel of the result is a pixel of the source, or the fill.
  bool whole_pixels() const {
    return rotation == 0 && scale == 1 && shear_x == 0 && shear_y == 0 && scale_x == 1 &&
           scale_y == 1;
  }
  // The moves alone, for images that are targets.
  AugmentationDraw only_moves() const;
  // The same for label images: their pixels are not interpolated, and those that come from outside
  // have no class (ignored_pixel).
  AugmentationDraw for_labels() const;
  friend bool operator==(const AugmentationDraw&, const AugmentationDraw&) = default;
};

// Returns the draw for one use of one observation: a function of its arguments only
// (RandomUse::augment, key a = epoch, b = index in the listing, c = repetition). Words 0 to 3 are
// for reflection in x, translation in x and y, and reflection in y; words 4 to 7 for rotation,
// scale, and shear in x and y. Words 12 to 15 are for scale in x and y, whether the image is
// blurred, and how much; 16 to 19 for brightness, contrast, saturation and hue; 20 and 21 for their
// order and whether a region is erased; and of each of the blocks 32 to 41 for a try of its area,
// ratio, row and column. A disabled change does not affect the others. Throws InvalidArgument for a
// range with low > high or out of bounds. Thread-safe.
AugmentationDraw draw_augmentation(const Augmentation& augmentation, uint64_t seed, int64_t epoch,
                                   int64_t index_in_listing, int64_t repetition = 0);

// Returns the map from pixels of the augmented image to the source. Applying it as an affine map
// gives the same bytes as augment_into(), also for pure reflections and shifts, if the draw fills
// with 0 and changes no appearance. Thread-safe.
ImageMap map_of(const AugmentationDraw& draw);

// Writes the augmented image in the same size. The image is reflected about its center, sheared in
// x, then in y, rotated and scaled, and finally shifted by whole pixels. Pure reflections and
// shifts copy pixels. All other changes are one affine map: each pixel is interpolated linearly
// between the four nearest pixels of the source. Positions and weights are integers (2^-8 pixels),
// so the result is equal on every processor. Pixels from outside the source have the fill's values.
// `source` and `destination` have height x width x channels bytes and must not overlap.
//
// Then the appearance changes, in integers (factors and weights in 2^-16), rounded to the nearest
// byte: the four changes of colors in their order, blur, and the region that is erased. With the
// factor f = 1 + change, brightness is f v; contrast f v + (1 - f) m with the mean m of the luma
// (see convert_channels()); saturation f v + (1 - f) luma, and hue a shift in HSV, both of three
// channels only. Blur is a Gaussian filter of rows, then columns, with ceil(3 deviations) pixels to
// each side; positions outside are reflected. Thread-safe.
void augment_into(const uint8_t* source, int64_t height, int64_t width, int64_t channels,
                  const AugmentationDraw& draw, uint8_t* destination);
void augment_into(const Image& source, const AugmentationDraw& draw, uint8_t* destination);
// The same for channels x height x width bytes.
void augment_planes_into(const uint8_t* source, int64_t height, int64_t width, int64_t channels,
                         const AugmentationDraw& draw, uint8_t* destination);

// How the images of one mini-batch are mixed.
struct MixDraw {
  bool cuts = false;             // cutmix, else mixup
  double share = 1;              // of the image itself, drawn; of mixup a multiple of 2^-16
  uint32_t row = 0, column = 0;  // the center of what is cut, in units of 2^-32 of the sides

  // The part of an image that the other one replaces; of mixup none.
  Region region(int64_t height, int64_t width) const;
  // The share of the image itself in the loss: for cutmix that of its pixels.
  double own_share(int64_t height, int64_t width) const;
  friend bool operator==(const MixDraw&, const MixDraw&) = default;
};

// Returns the draw for a mini-batch: a function of its arguments only (RandomUse::augment, key a =
// epoch, b = number of the mini-batch in it, c = 2^62 + 0 for the kind (word 0) and the position
// (words 1 and 2), + 1 and 2 for one gamma distribution, + 3 and 4 for the other one). The share
// has the Beta distribution. Thread-safe.
MixDraw draw_mix(const Augmentation& augmentation, uint64_t seed, int64_t epoch, int64_t number);

// Mixes `other` into `pixels`; both have channels x height x width bytes. Mixup computes in
// integers (shares in 2^-16), rounded to the nearest byte. The region of cutmix is torchvision's:
// of sides sqrt(1 - share) around the center, as far as it is in the image. Thread-safe.
void mix_into(const MixDraw& draw, const uint8_t* other, int64_t height, int64_t width,
              int64_t channels, uint8_t* pixels);

// The steps [first, first + count) of a sequence.
struct SequencePart {
  int64_t steps = 0;     // of the whole sequence
  int64_t channels = 1;  // of a step
  int64_t first = 0, count = 0;
  int64_t each = 1;  // values of a channel in a step, one after another: such as rows x columns
};

// Changes a part of a sequence in place, as the whole sequence is changed, for one use of one input
// of an observation. `values` has count x channels x each floats, those of the part. They are
// multiplied by factors, noise is added (each in double and rounded), and masks become 0. A
// function of its arguments only (RandomUse::augment, key a = epoch, b = index in the listing, c =
// 2^63 + 4 input + 0 for noise, 1 for factors, 2 for masks of steps, 3 for masks of channels), so a
// disabled change does not affect the others. Changed values that are subnormal become 0. Throws
// InvalidArgument as Augmentation::check() for the fields of sequences, and for a part that is not
// in its sequence. Thread-safe.
void augment_sequence(const Augmentation& augmentation, uint64_t seed, int64_t epoch,
                      int64_t index_in_listing, const SequencePart& part, float* values,
                      int64_t input = 0);

// One use of a training observation, for an augmentation of the user: after crops and the built-in
// augmentation, before noise, mixing and normalization.
struct AugmentedExample {
  // The inputs that are images, in the order of the network's inputs and in their sizes.
  std::vector<Image> images;
  // The target, if it is an image: pixels 0 to 255, of label images (1 channel) the numbers of
  // classes and ignored_pixel. The built-in augmentation has moved it like the images; what the
  // function moves, it must move here as well.
  std::optional<Image> target = {};
  int64_t label = -1;                  // the number of the class; -1: none. Changes have no effect
  int64_t observation = 0, epoch = 0;  // index in the listing; counted from 0
  // A function of seed, epoch and observation (RandomUse::augment, a and b as in
  // draw_augmentation(), c = 2^61). Different random values need different positions.
  RandomStream random{RandomKey()};
};

// An augmentation of the user. The function changes pixels in place. The law holds if the result
// depends on nothing but the example and values that do not change. Several threads call it at
// once.
struct OwnAugmentation {
  std::function<void(AugmentedExample&)> function = {};  // empty: none
  // Names it in checkpoints and receipts: a training resumes only with an augmentation of its name.
  std::string name = {};

  explicit operator bool() const { return static_cast<bool>(function); }
};

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
