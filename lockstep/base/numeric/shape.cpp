#include "lockstep/base/numeric/shape.h"

#include <limits>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// With this limit, byte counts and sums of a few of them fit into 64 bits.
constexpr int64_t kMostElements = int64_t{1} << 59;

}  // namespace

Dims::Dims(std::span<const int64_t> dims) : size_(dims.size()) {
  if (size_ > kShort) long_ = std::make_unique_for_overwrite<int64_t[]>(size_);
  std::copy(dims.begin(), dims.end(), long_ ? long_.get() : short_.data());
}

void Shape::count() {
  for (int64_t d : dims_) {
    if (d < 0) throw InvalidArgument("[shape] dimension " + std::to_string(d) + " is negative");
    if (__builtin_mul_overflow(elements_, d, &elements_) || elements_ > kMostElements) {
      throw InvalidArgument("[shape] " + to_string() + " has more elements than can be counted");
    }
  }
}

int64_t Shape::operator[](int axis) const {
  const int i = axis < 0 ? axis + rank() : axis;
  if (i < 0 || i >= rank()) {
    throw InvalidArgument("[shape] " + to_string() + " has no dimension " + std::to_string(axis));
  }
  return dims_[static_cast<size_t>(i)];
}

Shape Shape::with_batch(int64_t n) const {
  if (dims_.empty()) throw InvalidArgument("[shape] a scalar has no dimension for observations");
  std::vector<int64_t> dims = dims_;
  dims[0] = n;
  return Shape(dims);
}

Shape Shape::without_batch() const {
  if (dims_.empty()) throw InvalidArgument("[shape] a scalar has no dimension for observations");
  return Shape(std::span(dims_).subspan(1));
}

std::string Shape::to_string() const {
  if (dims_.empty()) return "scalar";
  std::string text;
  for (int64_t d : dims_) {
    if (!text.empty()) text += 'x';
    text += std::to_string(d);
  }
  return text;
}

Shape batch_shape(int64_t n, const Shape& observation) {
  std::vector<int64_t> dims = observation.dims();
  dims.insert(dims.begin(), n);
  return Shape(dims);
}

}  // namespace lockstep
