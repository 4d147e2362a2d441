#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

int64_t edit_distance(std::span<const int32_t> a, std::span<const int32_t> b) {
  // One row of the table: the distances of the tokens of `a` until now to each beginning of `b`.
  std::vector<int64_t> distances(b.size() + 1);
  std::iota(distances.begin(), distances.end(), 0);
  for (const int32_t token : a) {
    int64_t before = distances[0]++;  // that of one token of each less
    for (size_t j = 1; j < distances.size(); ++j) {
      const int64_t replaced = before + (token == b[j - 1] ? 0 : 1);
      before = distances[j];
      distances[j] = std::min({replaced, distances[j] + 1, distances[j - 1] + 1});
    }
  }
  return distances.back();
}

double ErrorRate::value() const {
  return tokens > 0 ? static_cast<double>(errors) / static_cast<double>(tokens) : std::nan("");
}

std::vector<std::vector<int32_t>> ctc_greedy_decode(const Tensor& scores, const Tensor& lengths,
                                                    int32_t blank) {
  const Shape& shape = scores.shape();
  if (shape.rank() != 3 || scores.dtype() != DType::f32 || lengths.dtype() != DType::i32 ||
      lengths.shape() != Shape{shape[0]}) {
    throw InvalidArgument(
        "[ctc_greedy_decode] expected scores of n x steps x classes and n lengths "
        "of i32, received " +
        shape.to_string() + " and " + lengths.shape().to_string());
  }
  const int64_t steps = shape[1], classes = shape[2];
  if (blank < 0 || blank >= classes) {
    throw InvalidArgument("[ctc_greedy_decode] the blank class " + std::to_string(blank) +
                          " is not one of " + std::to_string(classes));
  }
  const Tensor plain = scores.to({}).to_row_major(), valid = lengths.to({});
  std::vector<std::vector<int32_t>> read(static_cast<size_t>(shape[0]));
  for (int64_t i = 0; i < shape[0]; ++i) {
    const int64_t length = valid.data<int32_t>()[i];
    if (length < 0 || length > steps) {
      throw InvalidArgument("[ctc_greedy_decode] length " + std::to_string(length) +
                            " of observation " + std::to_string(i) + " is outside of 0 to " +
                            std::to_string(steps));
    }
    int32_t last = blank;
    for (int64_t t = 0; t < length; ++t) {
      const float* const row = plain.data<float>() + (i * steps + t) * classes;
      const auto best =
          static_cast<int32_t>(predicted_class(std::span(row, static_cast<size_t>(classes))));
      if (best != blank && best != last) read[static_cast<size_t>(i)].push_back(best);
      last = best;
    }
  }
  return read;
}

}  // namespace lockstep
