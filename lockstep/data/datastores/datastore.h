// Datastores of labelled images or arrays of floats: a listing in a fixed order that reads one
// observation at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/numeric/shape.h"
#include "lockstep/data/images/image.h"

namespace lockstep {

// A listing of labelled observations with indices 0 to size() - 1. They are images, or arrays of
// floats of one shape (vectors of features, sequences, images with depth). Immutable; all members
// are thread-safe. Errors about an observation name it.
class ImageDatastore {
 public:
  virtual ~ImageDatastore();

  virtual int64_t size() const = 0;
  // Returns the decoded image. Throws DataError (FileError) if it cannot be read or decoded, and
  // Unsupported if observations are arrays.
  virtual Image read(int64_t index) const = 0;
  // The same, and sets `content` to its content_digest() without a second reading.
  virtual Image read(int64_t index, Digest& content) const = 0;
  // Shape of one observation if observations are arrays of floats; nothing if they are images.
  virtual std::optional<Shape> array_shape() const;
  // Returns the elements of an array, row-major and finite, and sets `content` to its
  // content_digest(). Throws Unsupported if observations are images.
  virtual std::vector<float> read_array(int64_t index, Digest& content) const;
  // Index into classes().
  virtual int64_t label(int64_t index) const = 0;
  // Names of the classes. An image folder sorts them bytewise.
  virtual const std::vector<std::string>& classes() const = 0;
  // Path relative to the root, used in messages and in the digest of the listing.
  virtual std::string name(int64_t index) const = 0;
  // Description for messages: "folder cifar10/train", "built-in digits".
  virtual std::string describe() const = 0;
  // Digest of the observation's encoded bytes. For observations that are not read from a file,
  // digest of their shape and elements.
  virtual Digest content_digest(int64_t index) const = 0;
};

using DatastorePtr = std::shared_ptr<const ImageDatastore>;

// Returns the observations of `store` with the given indices, in that order. The classes are those
// of `store`. Throws InvalidArgument for an index out of range. Thread-safe.
DatastorePtr subset(DatastorePtr store, std::vector<int64_t> indices);

// Returns part `index` of `parts` consecutive parts of the listing. Parts 0 to size % parts - 1
// have one observation more than the others, so sizes differ by at most one. If there are more
// parts than observations, the last parts are empty. Throws InvalidArgument unless 0 <= index <
// parts. Thread-safe.
DatastorePtr partition(DatastorePtr store, int64_t parts, int64_t index);

// Returns the same observations with images that `function` changes on each reading, before caches,
// crops and augmentation. `function` must depend on the image only, be thread-safe and return an
// image of 1 or 3 channels. Digests of contents are those of the returned images, so the listing's
// digest differs for another function. `name` appears in messages. Throws InvalidArgument without
// store or function. Reading throws DataError, naming the observation, if the function throws or
// returns no valid image.
DatastorePtr transform(DatastorePtr store, std::function<Image(Image)> function,
                       const std::string& name = "a function");

// Returns all images in order, read by `threads` threads. Throws DataError for the invalid image
// with the lowest index.
std::vector<Image> read_all(const ImageDatastore& store, int threads = 1);

// Partitions the observations of each label at random (RandomUse::split, key a = label) into
// fractions.size() + 1 parts. Part p has round-half-up(fraction p x n) of the n observations of
// each label, or all that are left if there are fewer. The last part has the rest ({0.9} -> two
// parts). Parts keep the order of the listing. Throws InvalidArgument unless every fraction is in
// [0, 1] and their sum is at most 1.
std::vector<DatastorePtr> split_each_label(DatastorePtr store, const std::vector<double>& fractions,
                                           uint64_t seed);

// Returns the observations of `targets` with the names of those of `inputs`, in the order of
// `inputs`: the targets of an image-to-image network. Throws InvalidArgument, naming the
// observation, if one has no target. Thread-safe.
DatastorePtr match_by_name(const ImageDatastore& inputs, DatastorePtr targets);

// Digest of an image's size and pixels.
Digest digest_of_image(const Image& image);

// Throws Unsupported if observations are arrays: "[crop] is for images, ...". `what` is the name in
// brackets.
void check_images(const ImageDatastore& store, const std::string& what);

// Number of observations of each class, in the order of classes().
std::vector<int64_t> count_each_label(const ImageDatastore& store);

}  // namespace lockstep
