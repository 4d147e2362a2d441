// Numbers at equal distances, and triangles of matrices, which they choose.
#include "lockstep/engine/kernels/shapes/arange.h"

#include <fmt/format.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/shapes/views.h"

namespace lockstep::ops {
namespace {

constexpr double kMost = 1e12;  // elements

class Arange final : public FloatOp {
 public:
  explicit Arange(const kernels::ArangeProblem& problem) : problem_(problem) {}
  std::string_view type() const override { return "arange"; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 1, 1);
    return {Shape{problem_.count}};
  }
  kernels::Kernel compile(const kernels::Table& table, std::span<const TensorSpec>) const override {
    return kernels::compile(table, problem_);
  }
  bool has_zero_slope() const override { return true; }

 private:
  kernels::ArangeProblem problem_;
};

OpPtr make_arange(double start, double stop, double step) {
  const double count = std::ceil((stop - start) / step);
  if (!std::isfinite(start) || !std::isfinite(stop) || !std::isfinite(step) || step == 0 ||
      !(count <= kMost)) {
    throw InvalidArgument(
        fmt::format("[arange] no numbers from {} to {} by a step of {}", start, stop, step),
        "limits are finite, and a step is not 0");
  }
  const auto elements = static_cast<int64_t>(std::max(count, 0.0));
  return std::make_shared<Arange>(kernels::ArangeProblem{elements, elements, start, stop, step});
}

OpPtr make_linspace(double start, double stop, int64_t count) {
  if (!std::isfinite(start) || !std::isfinite(stop) || count < 0 ||
      !(static_cast<double>(count) <= kMost)) {
    throw InvalidArgument(fmt::format("[linspace] no {} numbers from {} to {}", count, start, stop),
                          "limits are finite, and a count is 0 or more");
  }
  // From both ends, so that both are exact.
  const double step = count > 1 ? (stop - start) / static_cast<double>(count - 1) : 0;
  return std::make_shared<Arange>(
      kernels::ArangeProblem{count, (count + 1) / 2, start, stop, step});
}

// The elements of matrices whose column less their row is in the triangle; zeros elsewhere.
template <class T, class InTriangle>
T triangle(const T& x, const InTriangle& in_triangle) {
  const Shape shape = x.shape();
  if (shape.rank() < 2) {
    throw InvalidArgument("[triangle] expected matrices, received " + shape.to_string());
  }
  const T columns = arange(x, 0, static_cast<double>(shape[-1]));
  const T rows = expand_dims(arange(x, 0, static_cast<double>(shape[-2])), 1);
  return where(in_triangle(columns - rows), x, 0);
}

}  // namespace

template <Operand T>
T arange(const T& like, double start, double stop, double step) {
  return applied(make_arange(start, stop, step), {like});
}
LOCKSTEP_INSTANTIATE_1(arange, double, double, double)

template <Operand T>
T linspace(const T& like, double start, double stop, int64_t count) {
  return named("linspace", [&] { return applied(make_linspace(start, stop, count), {like}); });
}
LOCKSTEP_INSTANTIATE_1(linspace, double, double, int64_t)

Tensor arange(double start, double stop, double step) {
  return arange(Tensor::scalar(0), start, stop, step);
}
Tensor linspace(double start, double stop, int64_t count) {
  return linspace(Tensor::scalar(0), start, stop, count);
}

template <Operand T>
T tril(const T& x, int64_t k) {
  return named("tril", [&] {
    return triangle(x, [k](const T& to) { return less_equal(to, static_cast<double>(k)); });
  });
}
LOCKSTEP_INSTANTIATE_1(tril, int64_t)

template <Operand T>
T triu(const T& x, int64_t k) {
  return named("triu", [&] {
    return triangle(x, [k](const T& to) { return greater_equal(to, static_cast<double>(k)); });
  });
}
LOCKSTEP_INSTANTIATE_1(triu, int64_t)

}  // namespace lockstep::ops
