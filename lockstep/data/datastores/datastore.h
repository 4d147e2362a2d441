// Examples, and datastores: a listing of examples in a fixed order that reads one example at a
// time.
//
// An example has one or several inputs and a class label or a target. Inputs and targets are
// images, or arrays of floats or integers. Arrays have one shape, or are sequences whose numbers of
// steps differ.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/numeric/dtype.h"
#include "lockstep/base/numeric/shape.h"
#include "lockstep/data/images/image.h"

namespace lockstep {

struct Augmentation;

// ---- Examples ----

// Finite floats of one shape, row-major: features, channels x length, channels x depth x height x
// width; of a sequence, steps x channels, steps x channels x height x width. A value type.
struct Array {
  Shape shape;
  std::vector<float> values;

  friend bool operator==(const Array&, const Array&) = default;
};

// The same of integers: tokens of a text, classes of steps. A value type.
struct IntegerArray {
  Shape shape;
  std::vector<int32_t> values;

  friend bool operator==(const IntegerArray&, const IntegerArray&) = default;
};

// One class of a datastore.
struct ClassLabel {
  int64_t index = 0;  // into Datastore::classes()

  friend bool operator==(const ClassLabel&, const ClassLabel&) = default;
};

using ExampleValue = std::variant<Image, Array, IntegerArray>;
using ExampleTarget = std::variant<ClassLabel, Image, Array, IntegerArray>;

// A value type.
struct Example {
  std::vector<ExampleValue> inputs;  // one for each input of the network
  ExampleTarget target;
  Digest content;  // equal to Datastore::content_digest()
};

// An example with one input. Moves the value: a braced list of inputs would copy it.
inline Example one_input(ExampleValue input, ExampleTarget target, const Digest& content) {
  Example example;
  example.inputs.push_back(std::move(input));
  example.target = std::move(target);
  example.content = content;
  return example;
}

enum class ValueKind { image, array };

// What is known of an input or a target before an example is read.
struct ValueSpec {
  ValueKind kind = ValueKind::image;
  // Of an array; of a sequence, that of a step: the arrays are steps x shape, and the number of
  // steps differs. The size of an image is known when it is read.
  Shape shape = {};
  std::string input = {};  // name of the network's input layer; "": by position
  // The names of an array's elements: the columns of a table. Empty: they have no names.
  std::vector<std::string> columns = {};
  bool sequence = false;  // of arrays
  // Of an array's elements: f32 or i32. Of images i32: label images, whose pixels are the numbers
  // of classes, or ignored_pixel.
  DType type = DType::f32;

  bool pixel_labels() const { return kind == ValueKind::image && type == DType::i32; }

  // "images", "arrays of 3x4", "sequences with steps of 12", "sequences of integers"
  std::string to_string() const;
  friend bool operator==(const ValueSpec&, const ValueSpec&) = default;
};

// The kinds of all inputs and of the target, the same for all examples of a datastore. The default
// is one image with a class label.
struct ExampleSpec {
  std::vector<ValueSpec> inputs = {ValueSpec{}};
  std::optional<ValueSpec> target = {};  // nothing: a class label
  std::string label_column = {};         // the column of a table with the labels; "": no name
  // Of columns of a table: what stands for values that are missing (MissingValues).
  std::map<std::string, float> means = {};

  friend bool operator==(const ExampleSpec&, const ExampleSpec&) = default;
};

// What an index (`lockstep upload`, `lockstep shard`) holds of an image, so that the image need not
// be read for digests and statistics. A value type.
struct ImageFacts {
  // Exact sums over the pixels of a channel.
  struct Channel {
    uint64_t sum = 0, sum_of_squares = 0;
    uint8_t min = 255, max = 0;

    friend bool operator==(const Channel&, const Channel&) = default;
  };

  Digest content;                               // of the encoded bytes
  int64_t height = 0, width = 0, channels = 0;  // all 0 if the image cannot be decoded
  std::array<Channel, 3> sums = {};             // of `channels` channels

  friend bool operator==(const ImageFacts&, const ImageFacts&) = default;
};

// ---- Datastores ----

// A listing of examples (observations) with indices 0 to size() - 1. Immutable; all members are
// thread-safe, and what they return depends on the index alone. Errors about an example name it.
class Datastore {
 public:
  virtual ~Datastore();

  virtual int64_t size() const = 0;
  // Kinds and shapes of the inputs and the target of every example. The default is one image with a
  // class label.
  virtual ExampleSpec spec() const;
  // Returns the example, which fits spec(). Throws DataError (FileError) if it cannot be read or
  // decoded.
  virtual Example read(int64_t index) const = 0;
  // Index into classes(), without reading the example. Examples with a target have labels as well,
  // by which a listing can be split.
  virtual int64_t label(int64_t index) const = 0;
  // Names of the classes. An image folder sorts them bytewise.
  virtual const std::vector<std::string>& classes() const = 0;
  // Path relative to the root, used in messages and in the digest of the listing.
  virtual std::string name(int64_t index) const = 0;
  // Description for messages: "folder cifar10/train", "built-in digits".
  virtual std::string describe() const = 0;
  // What a user should know of how the examples are read, a sentence each: columns of a table that
  // are left out or that are put into another order, files of a folder that are left out, and what
  // reading has shown until now. train() reports it to its observers. The default is nothing.
  virtual std::vector<std::string> notices() const;
  // Digest of the example's encoded bytes. For examples that are not read from a file, digest of
  // shape and elements. The default reads the example.
  virtual Digest content_digest(int64_t index) const;
  // What is known of the example's image without reading it; null: nothing. read() then compares
  // the image with it. The default knows nothing.
  virtual const ImageFacts* facts(int64_t index) const;
  // The steps of a sequence, without reading it: of the example's input number `value`, or of its
  // target, if that is the number of inputs. Nothing if it is not known, or not a sequence. The
  // default knows nothing.
  virtual std::optional<int64_t> steps(int64_t index, size_t value = 0) const;
  // Digest of all that read() depends on, as far as it is known without reading: of files what the
  // file system says (paths, sizes, times, inode numbers). Equal digests mean equal inputs; labels
  // are not part of it. Nothing if it is not known, or if a file changed so lately that a change
  // could go unnoticed. The default knows nothing.
  virtual std::optional<Digest> file_state() const;
  // Tells that these examples will be read next, about in this order, so that a datastore in a
  // network can read them ahead. The default does nothing.
  virtual void expect(const std::vector<int64_t>& indices) const;
};

using DatastorePtr = std::shared_ptr<const Datastore>;

// Returns the example's input, which is its only one. Throw Unsupported, naming the example, if it
// has several inputs or one of the other kind. Thread-safe.
Image read_image(const Datastore& store, int64_t index);
Array read_array(const Datastore& store, int64_t index);

// Returns the observations of `store` with the given indices, in that order. The classes are those
// of `store`. Throws InvalidArgument for an index out of range. Thread-safe.
DatastorePtr subset(DatastorePtr store, std::vector<int64_t> indices);

// Returns the same observations with the elements of input number `input` (of the target, if it is
// the number of inputs) in another order: element k is element from[k] of `store`, in each step of
// a sequence. The elements must be a vector of floats, and `from` must contain each of their
// numbers once; otherwise throws InvalidArgument. Digests of contents are those of the reordered
// arrays. `notice`, if not empty, is added to notices(). Thread-safe.
DatastorePtr reorder(DatastorePtr store, size_t input, std::vector<size_t> from,
                     const std::string& notice = {});

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

// Returns all images in order, read by `threads` threads, as read_image() does. Throws DataError
// for the invalid image with the lowest index.
std::vector<Image> read_all(const Datastore& store, int threads = 1);

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
DatastorePtr match_by_name(const Datastore& inputs, DatastorePtr targets);

// Returns examples with the inputs of all stores, index by index: example i has the inputs of
// example i of each store, in the order of the stores. Label, classes and target are those of the
// first store. `inputs`, if given, names the network's input layer for each input; otherwise inputs
// go to the network's input layers in their order. Names and digests of contents are combined from
// those of the stores. Throws InvalidArgument for null stores, fewer than two, different sizes, a
// target in another store than the first, or names that do not fit. Thread-safe.
DatastorePtr combine(std::vector<DatastorePtr> stores, std::vector<std::string> inputs = {});

// Which lengths target sequences may have.
enum class TargetLengths : uint8_t {
  as_inputs,  // as many steps as each input of their example that is a sequence
  any         // translations, transcripts
};

// The kind of label images.
inline ValueSpec label_image_spec() { return {.type = DType::i32}; }

// Returns the examples of `inputs` with a target in place of their label: the only input of example
// i of `targets`. Integers as targets are classes: their classes() and labels replace those of
// `inputs`. Throws InvalidArgument for different sizes, for examples of `inputs` that have targets
// already, for targets with several inputs or targets, and, naming the observation, for targets
// with a wrong number of steps; where this is not known before, reading throws DataError. So it
// does for label images of another size than their image. Thread-safe.
DatastorePtr with_targets(DatastorePtr inputs, DatastorePtr targets,
                          TargetLengths lengths = TargetLengths::as_inputs);

// The notices of all stores that are not null, each sentence once.
std::vector<std::string> notices_of(const std::vector<DatastorePtr>& stores);

// Digest of an image's size and pixels, and of an array's shape and elements.
Digest digest_of_image(const Image& image);
Digest digest_of_array(const Shape& shape, const float* values);
Digest digest_of_array(const Shape& shape, const int32_t* values);

// Throws Unsupported unless an input is an image: "[noise] is for images, ...". `what` is the name
// in brackets; `field`, if there is one, follows it: "[augmentation] scale is for images, ...".
void check_images(const Datastore& store, const std::string& what, const std::string& field = {});
// Throws Unsupported, naming the field, if images are augmented and no input is an image, or if
// sequences are augmented and no input is a sequence of floats: "[augmentation] jitter is for
// sequences of numbers, ...". Throws InvalidArgument as Augmentation::check().
void check_augmentation(const Datastore& store, const Augmentation& augmentation);
// Throws Unsupported unless examples are one image with a class label. `labels`: label images are
// possible targets.
void check_single_images(const Datastore& store, const std::string& what, bool labels = false);

// Number of observations of each class, in the order of classes().
std::vector<int64_t> count_each_label(const Datastore& store);

}  // namespace lockstep
