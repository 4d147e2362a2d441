#include "lockstep/engine/nn/layers/initializer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/base/suggest.h"

namespace lockstep {
namespace {

constexpr std::string_view kConstant = "constant:";

// Modified Gram-Schmidt, applied twice, on the rows of a normal matrix, or on its columns if there
// are fewer.
void orthogonal(float* out, int64_t rows, int64_t columns, const RandomStream& stream) {
  const bool tall = rows > columns;
  const int64_t vectors = std::min(rows, columns), length = std::max(rows, columns);
  std::vector<double> q(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < q.size(); ++i) q[i] = stream.normal(i);
  for (int64_t v = 0; v < vectors; ++v) {
    double* x = q.data() + v * length;
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t u = 0; u < v; ++u) {
        const double* y = q.data() + u * length;
        double dot = 0;
        for (int64_t i = 0; i < length; ++i) dot += x[i] * y[i];
        for (int64_t i = 0; i < length; ++i) x[i] -= dot * y[i];
      }
    }
    double norm = 0;
    for (int64_t i = 0; i < length; ++i) norm += x[i] * x[i];
    norm = std::sqrt(norm);
    for (int64_t i = 0; i < length; ++i) x[i] /= norm;
  }
  for (int64_t v = 0; v < vectors; ++v) {
    for (int64_t i = 0; i < length; ++i) {
      const auto value = static_cast<float>(q[static_cast<size_t>(v * length + i)]);
      out[tall ? i * columns + v : v * columns + i] = value;
    }
  }
}

}  // namespace

const std::vector<std::string>& initializer_names() {
  static const std::vector<std::string> names{"glorot", "he",   "narrow-normal",   "orthogonal",
                                              "zeros",  "ones", "unit-forget-gate"};
  return names;
}

std::string constant_initializer(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(kConstant) + std::string(text.data(), end.ptr);
}

void initialize(Tensor& tensor, const ParameterSpec& spec, uint64_t seed, const std::string& name) {
  const RandomStream stream({.seed = seed, .use = RandomUse::initialize, .a = key_from_text(name)});
  float* out = tensor.data<float>();
  const int64_t count = tensor.shape().elements();
  const auto normal = [&](double deviation) {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<float>(deviation * stream.normal(static_cast<uint64_t>(i)));
    }
  };
  if (spec.initializer == "glorot") {
    const double bound = std::sqrt(6.0 / static_cast<double>(spec.fan_in + spec.fan_out));
    for (int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<float>(bound * (2 * stream.uniform(static_cast<uint64_t>(i)) - 1));
    }
  } else if (spec.initializer == "he") {
    normal(std::sqrt(2.0 / static_cast<double>(spec.fan_in)));
  } else if (spec.initializer == "narrow-normal") {
    normal(0.01);
  } else if (spec.initializer == "orthogonal") {
    const int64_t rows = tensor.shape().rank() == 0 ? 1 : tensor.shape()[0];
    orthogonal(out, rows, count / std::max<int64_t>(rows, 1), stream);
  } else if (spec.initializer == "zeros") {
    std::fill_n(out, count, 0.0f);
  } else if (spec.initializer == "ones") {
    std::fill_n(out, count, 1.0f);
  } else if (spec.initializer == "unit-forget-gate") {
    std::fill_n(out, count, 0.0f);
    std::fill_n(out + count / 4, count / 4, 1.0f);
  } else if (spec.initializer.starts_with(kConstant)) {
    double value = 0;
    const char* const end = spec.initializer.data() + spec.initializer.size();
    std::from_chars(spec.initializer.data() + kConstant.size(), end, value);
    std::fill_n(out, count, static_cast<float>(value));
  } else {
    throw InvalidArgument("[" + name + "] unknown initializer `" + spec.initializer + "`",
                          suggest(spec.initializer, initializer_names()));
  }
}

}  // namespace lockstep
