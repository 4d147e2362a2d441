// Where labelled images, or arrays of floats, come from: a listing in a fixed order that reads one
// observation at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/shape.h"
#include "lockstep/data/image.h"

namespace lockstep {

// A listing of labelled observations, index 0 to size() - 1: images, or arrays of floats of one
// shape (vectors of features, sequences, images with depth). Immutable; all members may be called
// from any thread. Errors about an observation name it.
class ImageDatastore {
 public:
  virtual ~ImageDatastore();

  virtual int64_t size() const = 0;
  // The decoded image. Throws DataError (FileError) when it cannot be read or decoded, Unsupported
  // where observations are arrays.
  virtual Image read(int64_t index) const = 0;
  // The same, and its content_digest() at no second reading.
  virtual Image read(int64_t index, Digest& content) const = 0;
  // Of one observation, where they are arrays of floats; none where they are images.
  virtual std::optional<Shape> array_shape() const;
  // The elements of an array, row-major and finite, and its content_digest(). Throws Unsupported
  // where observations are images.
  virtual std::vector<float> read_array(int64_t index, Digest& content) const;
  // Index into classes().
  virtual int64_t label(int64_t index) const = 0;
  // Names of the classes; those of folders are sorted bytewise.
  virtual const std::vector<std::string>& classes() const = 0;
  // Path relative to the root, for messages and the listing's digest.
  virtual std::string name(int64_t index) const = 0;
  // What this is, for people: "folder cifar10/train", "built-in digits".
  virtual std::string describe() const = 0;
  // Digest of the observation's encoded bytes (of size and pixels where it is drawn, not read).
  virtual Digest content_digest(int64_t index) const = 0;
};

using DatastorePtr = std::shared_ptr<const ImageDatastore>;

// The observations of `store` named by `indices`, in that order; classes stay those of the whole.
// Throws InvalidArgument when an index is outside. Thread-safe.
DatastorePtr subset(DatastorePtr store, std::vector<int64_t> indices);

// Part `index` of `parts` that divide the listing in order: parts 0 to size % parts - 1 hold one
// observation more than the others, so sizes differ by one at most; parts beyond the observations
// are empty. Throws InvalidArgument unless 0 <= index < parts. Thread-safe.
DatastorePtr partition(DatastorePtr store, int64_t parts, int64_t index);

// The same observations with images as `function` makes them whenever they are read, before caches,
// crops and augmentation. It must be a function of the image alone and may be called from any
// thread; images of 1 or 3 channels. Digests of contents are those of the images it gives, so that
// a listing's digest tells another function apart. `name` is for people. Throws InvalidArgument
// without store or function; reading throws DataError naming the observation where the function
// throws or gives no image.
DatastorePtr transform(DatastorePtr store, std::function<Image(Image)> function,
                       const std::string& name = "a function");

// All images, in order, read by so many threads. Throws DataError for the first bad one by index.
std::vector<Image> read_all(const ImageDatastore& store, int threads = 1);

// Divides each label at random (RandomUse::split, key a = label) into fractions.size() + 1 parts:
// part p gets round-half-up(fraction p x n) of the n observations of each label, as far as they
// last, and the last part gets the rest ({0.9} -> two parts). Parts keep the order of the listing.
// Throws InvalidArgument unless every fraction lies in [0, 1] and their sum is at most 1.
std::vector<DatastorePtr> split_each_label(DatastorePtr store, const std::vector<double>& fractions,
                                           uint64_t seed);

// The observations of `targets` that have the names of those of `inputs`, in their order: images
// and what an image-to-image network shall make of them. Throws InvalidArgument naming an
// observation that has no target. Thread-safe.
DatastorePtr match_by_name(const ImageDatastore& inputs, DatastorePtr targets);

// Digest of an image's size and pixels.
Digest digest_of_image(const Image& image);

// Throws Unsupported where observations are arrays: "[crop] is for images, ...". `what` is what
// asks.
void check_images(const ImageDatastore& store, const std::string& what);

// Number of observations of each class, in the order of classes().
std::vector<int64_t> count_each_label(const ImageDatastore& store);

}  // namespace lockstep
