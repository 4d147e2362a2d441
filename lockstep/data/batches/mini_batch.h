// A mini-batch: arrays with a row for each observation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/numeric/dtype.h"
#include "lockstep/base/numeric/image_map.h"
#include "lockstep/base/numeric/shape.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// When the observations of a training are shuffled.
enum class Shuffle : uint8_t {
  every_epoch,
  once,  // all epochs have the order of the first one
  never  // the order of the listing
};

// One array of a mini-batch: an input, targets, labels, or what a preprocess function adds. Its
// rows lie one after the other, each row-major. They have one shape, unless they differ in their
// first dimension: with `offsets`, row i has the entries [offsets[i], offsets[i + 1]), which have
// one shape. A value type.
struct RowArray {
  std::string name = {};
  DType type = DType::f32;
  Shape shape = {};  // of a row; with `offsets`, of an entry
  int64_t rows = 0;
  std::vector<int64_t> offsets = {};  // none, or rows + 1 numbers from 0 on
  std::vector<std::byte> bytes = {};

  bool ragged() const { return !offsets.empty(); }
  // Bytes of a row; with `offsets`, of an entry.
  size_t row_bytes() const { return static_cast<size_t>(shape.elements()) * size_of(type); }
  int64_t elements() const { return static_cast<int64_t>(bytes.size() / size_of(type)); }
  // The bytes of rows [first, first + count). Throws InvalidArgument for other rows than it has.
  std::span<const std::byte> bytes_of(int64_t first, int64_t count) const;

  // Gives it `count` rows of one shape. Rows that it had before keep their values if their size is
  // the same; new elements are 0.
  void resize(int64_t count);
  // Gives it rows with these numbers of entries. The values of its elements are undefined.
  void resize(std::span<const int64_t> lengths);
  // All elements. Throw InvalidArgument, naming the array, unless T is their type: uint8_t, float,
  // int32_t or int64_t.
  template <class T>
  std::span<T> values() {
    check_type(DTypeOf<T>::value);
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  template <class T>
  std::span<const T> values() const {
    check_type(DTypeOf<T>::value);
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  // As a tensor: rows x shape; with `offsets`, all entries x shape. tensor() is a copy.
  TensorSpec tensor_spec() const;
  Tensor tensor() const;

  friend bool operator==(const RowArray&, const RowArray&) = default;

 private:
  void check_type(DType requested) const;
};

// One mini-batch of n observations.
struct MiniBatch {
  int64_t epoch = 0, index = 0;  // epoch from 0, mini-batch within the epoch from 0
  // Of sequences that are cut (sequence_length): the number of this segment of its observations,
  // from 0, and of all segments, which are consecutive mini-batches. Row i has the same sequence in
  // all of them; if it has ended, it has no steps. 0 segments: nothing is cut.
  int64_t segment = 0, segments = 0;
  std::vector<int64_t> observations;  // n indices into the listing
  // How often the epoch had each of them before, so that it is augmented differently each time.
  // Empty: no epoch has an observation twice.
  std::vector<int64_t> repetitions = {};
  // First the inputs of the network, in order: images (u8, channels x height x width) or arrays
  // (f32, or i32 for tokens). Their names are those of the input layers or of the data's inputs,
  // else "input", or "input_1", "input_2" and so on. Then "targets" (f32; pixels 0 to 255 are 0 to
  // 1), if there are targets of floats or images. Then "labels" (i32, indices into the classes):
  // the targets, if they are classes, for example of each step, or of each pixel (height x width,
  // -100 for pixels without a class); else one for each observation, if the data has classes or no
  // targets. Of images that are mixed (Augmentation::mixup, cutmix) then "other_labels" (i32), the
  // labels of the images that are mixed in, and "label_shares" (f32): the share of `labels` in the
  // loss, of which the others have the rest. Then what preprocess has added. Sequences are ragged:
  // an entry of a row is a step.
  std::vector<RowArray> arrays;
  std::vector<ImageMap> maps;  // n maps to apply to images among the inputs, or none
  // If options.device is set: a tensor for each of `arrays`, see RowArray::tensor(). On "cpu" they
  // are views, valid as long as this mini-batch, also in copies of it. set() removes them all.
  std::vector<Tensor> tensors;
  Digest observations_digest;  // digest of `observations`, for the receipt

  int64_t size() const { return static_cast<int64_t>(observations.size()); }
  // Whether rows begin, so that states by row are to be reset: at the first segment of sequences
  // that are cut, otherwise at the first mini-batch of an epoch.
  bool rows_begin() const { return segments > 0 ? segment == 0 : index == 0; }
  // Throws InvalidArgument unless all arrays and maps have the same number of rows, and bytes for
  // them.
  void check() const;
  // The array of input `k`. Throws InvalidArgument if there are not as many arrays.
  const RowArray& input(size_t k = 0) const;
  // The array of a name; if several have it, the first one. Throws InvalidArgument if there is
  // none.
  const RowArray& operator[](std::string_view name) const;
  RowArray& operator[](std::string_view name);
  // Null if there is none.
  const RowArray* find(std::string_view name) const;
  // The elements of the first i32 array with the name "labels"; none if there is none.
  std::span<const int32_t> labels() const;
  // The tensor of the array of that name. Throws InvalidArgument if it has none.
  const Tensor& tensor(std::string_view name) const;
  // Adds an array with a copy of these values, rows x shape, or replaces the first array of that
  // name. Throws InvalidArgument for a scalar.
  void set(std::string_view name, const Tensor& values);

 private:
  size_t index_of(std::string_view name) const;
};

}  // namespace lockstep
