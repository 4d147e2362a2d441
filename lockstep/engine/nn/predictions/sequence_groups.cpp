#include "lockstep/engine/nn/predictions/sequence_groups.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "lockstep/engine/nn/inputs/sequences.h"

namespace lockstep {
namespace {

// Observations of one capacity of steps.
using Capacities = std::map<int64_t, std::vector<int64_t>>;

Capacities by_capacity(const Tensor& lengths) {
  Capacities found;
  for (int64_t i = 0; i < lengths.shape()[0]; ++i) {
    found[steps_capacity(lengths.data<int32_t>()[i])].push_back(i);
  }
  return found;
}

}  // namespace

// All steps of an input that is a sequence.
Tensor whole_lengths(const Tensor& input) {
  const std::vector<int32_t> whole(static_cast<size_t>(input.shape()[0]),
                                   static_cast<int32_t>(input.shape()[1]));
  return Tensor::from(std::span(whole), Shape{input.shape()[0]});
}

Tensor SequenceGroups::run(const Run& run, bool sequence, Device device) const {
  Tensor result;
  for (const auto& [capacity, all] : by_capacity(lengths_)) {
    for (size_t first = 0; first < all.size(); first += static_cast<size_t>(together_)) {
      const size_t count = std::min(static_cast<size_t>(together_), all.size() - first);
      const std::span<const int64_t> rows = std::span(all).subspan(first, count);
      const Tensor lengths = lengths_of(rows);
      const Tensor scores = run(steps_of_rows(rows, capacity).to(device), lengths.to(device), rows)
                                .to({})
                                .to_row_major();
      if (!result.defined()) result = results(scores.shape(), sequence);
      put(scores, rows, sequence ? capacity : 0, result);
    }
  }
  return result.to(device);
}

Tensor SequenceGroups::lengths_of(std::span<const int64_t> rows) const {
  std::vector<int32_t> own(static_cast<size_t>(together_), 0);
  for (size_t i = 0; i < rows.size(); ++i) own[i] = static_cast<int32_t>(length(rows[i]));
  return Tensor::from(std::span<const int32_t>(own), Shape{together_});
}

Tensor SequenceGroups::steps_of_rows(std::span<const int64_t> rows, int64_t capacity) const {
  const int64_t steps = input_.shape()[1];
  const size_t step_bytes = input_.bytes() / static_cast<size_t>(observations() * steps);
  Tensor some =
      Tensor::zeros(shape_of_dims({together_, capacity}, input_.shape().dims(), 2), input_.dtype());
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(
        static_cast<std::byte*>(some.raw()) + i * static_cast<size_t>(capacity) * step_bytes,
        static_cast<const std::byte*>(input_.raw()) +
            static_cast<size_t>(rows[i] * steps) * step_bytes,
        static_cast<size_t>(length(rows[i])) * step_bytes);
  }
  return some;
}

Tensor SequenceGroups::results(const Shape& scores, bool sequence) const {
  std::vector<int64_t> all = scores.dims();
  all[0] = observations();
  if (sequence) all[1] = input_.shape()[1];
  return Tensor::zeros(Shape(all), DType::f32);
}

void SequenceGroups::put(const Tensor& scores, std::span<const int64_t> rows, int64_t capacity,
                         const Tensor& result) const {
  const int64_t each = scores.shape().elements() / together_;
  const int64_t row_elements = result.shape().elements() / observations();
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t valid = capacity > 0 ? each / capacity * length(rows[i]) : each;
    std::copy_n(scores.data<float>() + static_cast<int64_t>(i) * each, valid,
                result.data<float>() + rows[i] * row_elements);
  }
}

}  // namespace lockstep
