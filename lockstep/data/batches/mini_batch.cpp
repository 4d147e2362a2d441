#include "lockstep/data/batches/mini_batch.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"

namespace lockstep {

std::span<const std::byte> RowArray::bytes_of(int64_t first, int64_t count) const {
  if (first < 0 || count < 0 || first + count > rows) {
    throw InvalidArgument("[mini-batch] rows " + std::to_string(first) + " to " +
                          std::to_string(first + count - 1) + " of `" + name + "`, which has " +
                          std::to_string(rows));
  }
  const auto at = [&](int64_t row) {
    return static_cast<size_t>(ragged() ? offsets[static_cast<size_t>(row)] : row) * row_bytes();
  };
  return std::span(bytes).subspan(at(first), at(first + count) - at(first));
}

void RowArray::resize(int64_t count) {
  rows = count;
  offsets.clear();
  bytes.resize(static_cast<size_t>(count) * row_bytes());
}

void RowArray::resize(std::span<const int64_t> lengths) {
  rows = static_cast<int64_t>(lengths.size());
  offsets.assign(1, 0);
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
  bytes.resize(static_cast<size_t>(offsets.back()) * row_bytes());
}

TensorSpec RowArray::tensor_spec() const {
  return {batch_shape(ragged() ? offsets.back() : rows, shape), type, nullptr};
}

Tensor RowArray::tensor() const {
  return Tensor::view(const_cast<std::byte*>(bytes.data()), tensor_spec(), nullptr).clone();
}

void RowArray::check_type(DType requested) const {
  if (type == requested) return;
  throw InvalidArgument("[mini-batch] `" + name + "` has elements of " +
                        std::string(name_of(type)) + ", but " + std::string(name_of(requested)) +
                        " is requested");
}

void MiniBatch::check() const {
  if (!maps.empty() && !arrays.empty() &&
      static_cast<int64_t>(maps.size()) != arrays.front().rows) {
    throw InvalidArgument("[mini-batch] there are " + std::to_string(maps.size()) + " maps for " +
                          counted(arrays.front().rows, "row", "rows"));
  }
  for (const RowArray& array : arrays) {
    const RowArray& first = arrays.front();
    if (array.rows != first.rows) {
      throw InvalidArgument(
          "[mini-batch] `" + array.name + "` has " + counted(array.rows, "row", "rows") +
              ", but `" + first.name + "` has " + std::to_string(first.rows),
          "a preprocess function that changes the number of rows must change all arrays alike");
    }
    if (array.rows < 0) {
      throw InvalidArgument("[mini-batch] `" + array.name + "` has " + counted(array.rows, "row"));
    }
    const std::vector<int64_t>& offsets = array.offsets;
    if (array.ragged() &&
        (static_cast<int64_t>(offsets.size()) != array.rows + 1 || offsets.front() != 0 ||
         !std::is_sorted(offsets.begin(), offsets.end()))) {
      throw InvalidArgument("[mini-batch] the offsets of `" + array.name + "` are not " +
                            counted(array.rows + 1, "number") + " from 0 that never decrease");
    }
    const int64_t entries = array.ragged() ? offsets.back() : array.rows;
    const size_t wanted = static_cast<size_t>(entries) * array.row_bytes();
    if (array.bytes.size() == wanted) continue;
    throw InvalidArgument("[mini-batch] `" + array.name + "` has " +
                              std::to_string(array.bytes.size()) + " bytes, but " +
                              array.tensor_spec().to_string() + " needs " + std::to_string(wanted),
                          "RowArray::resize() and MiniBatch::set() change both");
  }
}

const RowArray& MiniBatch::input(size_t k) const {
  if (k < arrays.size()) return arrays[k];
  throw InvalidArgument("[mini-batch] input " + std::to_string(k) + " of " +
                        counted(static_cast<int64_t>(arrays.size()), "array", "arrays") +
                        " is requested; they count from 0");
}

size_t MiniBatch::index_of(std::string_view name) const {
  const auto found = std::find_if(arrays.begin(), arrays.end(),
                                  [&](const RowArray& array) { return array.name == name; });
  return static_cast<size_t>(found - arrays.begin());
}

const RowArray* MiniBatch::find(std::string_view name) const {
  const size_t at = index_of(name);
  return at < arrays.size() ? &arrays[at] : nullptr;
}

const RowArray& MiniBatch::operator[](std::string_view name) const {
  if (const RowArray* const found = find(name)) return *found;
  std::vector<std::string> known;
  for (const RowArray& array : arrays) known.push_back(array.name);
  throw InvalidArgument("[mini-batch] there is no array `" + std::string(name) + "`",
                        suggest(name, known));
}

RowArray& MiniBatch::operator[](std::string_view name) {
  return const_cast<RowArray&>(std::as_const(*this)[name]);
}

std::span<const int32_t> MiniBatch::labels() const {
  for (const RowArray& array : arrays) {
    if (array.name == "labels" && array.type == DType::i32) return array.values<int32_t>();
  }
  return {};
}

const Tensor& MiniBatch::tensor(std::string_view name) const {
  const RowArray& array = (*this)[name];
  const auto at = static_cast<size_t>(&array - arrays.data());
  if (at < tensors.size()) return tensors[at];
  throw InvalidArgument("[mini-batch] `" + std::string(name) + "` has no tensor",
                        "a queue makes tensors if its options name a device; RowArray::tensor() "
                        "makes one of any array");
}

void MiniBatch::set(std::string_view name, const Tensor& values) {
  const Tensor here = values.to(Device{}).to_row_major();
  RowArray made{.name = std::string(name),
                .type = here.dtype(),
                .shape = here.shape().without_batch(),
                .rows = here.shape()[0]};
  const auto* const from = static_cast<const std::byte*>(here.raw());
  made.bytes.assign(from, from + here.bytes());
  tensors.clear();
  const size_t at = index_of(name);
  if (at < arrays.size()) {
    arrays[at] = std::move(made);
  } else {
    arrays.push_back(std::move(made));
  }
}

}  // namespace lockstep
