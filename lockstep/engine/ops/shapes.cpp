// Other shapes, and other orders of elements.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/graph/kept_op.h"
#include "lockstep/engine/kernels/shapes/arange.h"
#include "lockstep/engine/kernels/shapes/concatenation.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/pointwise.h"
#include "lockstep/engine/ops/reshaping.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep::ops {

namespace {

class Flatten final : public Reshaping {
 public:
  std::string_view type() const override { return "flatten"; }

 private:
  Shape result(const Shape& x) const override {
    if (x.rank() < 1) {
      throw InvalidArgument("[flatten] expected an input of n x ..., received " + x.to_string());
    }
    return Shape{x[0], x.without_batch().elements()};
  }
};

}  // namespace

OpPtr make_flatten() { return std::make_shared<Flatten>(); }

template <Operand T>
T flatten(const T& x) {
  return applied(make_flatten(), {x});
}
LOCKSTEP_INSTANTIATE_1(flatten)

namespace {

class Reshape final : public Reshaping {
 public:
  explicit Reshape(Shape observation) : observation_(std::move(observation)) {}
  std::string_view type() const override { return "reshape"; }

 private:
  Shape result(const Shape& x) const override {
    if (x.rank() < 1) {
      throw InvalidArgument("[reshape] expected an input of n x ..., received " + x.to_string());
    }
    const int64_t given = x.without_batch().elements(), wanted = observation_.elements();
    if (given != wanted) {
      throw InvalidArgument("[reshape] " + observation_.to_string() + " has " +
                            counted(wanted, "element") + ", but an observation has " +
                            std::to_string(given) + " (input " + x.to_string() + ")");
    }
    return batch_shape(x[0], observation_);
  }

  Shape observation_;
};

}  // namespace

OpPtr make_reshape(Shape observation) { return std::make_shared<Reshape>(std::move(observation)); }

template <Operand T>
T reshape(const T& x, const Shape& observation) {
  return applied(make_reshape(observation), {x});
}
LOCKSTEP_INSTANTIATE_1(reshape, const Shape&)

namespace {

class Concatenation final : public FloatOp {
 public:
  explicit Concatenation(int axis) : axis_(axis) {}
  std::string_view type() const override { return "concat"; }
  bool takes_narrow(size_t) const override { return true; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 1, static_cast<size_t>(-1));
    std::vector<int64_t> dims = in[0].dims();
    const auto axis = static_cast<size_t>(resolved_axis(type(), axis_, in[0]));
    int64_t total = 0;
    for (const auto& shape : in) {
      std::vector<int64_t> others = shape.dims();
      if (others.size() == dims.size()) {
        total += others[axis];
        others[axis] = dims[axis];
      }
      if (others != dims) {
        throw InvalidArgument("[concat] inputs must agree in all dimensions but " +
                              std::to_string(axis_) + ", received " + in[0].to_string() + " and " +
                              shape.to_string());
      }
    }
    dims[axis] = total;
    return {Shape(dims)};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(
        table, kernels::ConcatenationProblem{{in.begin(), in.end()},
                                             resolved_axis(type(), axis_, in[0].shape)});
  }
  bool has_constant_slope() const override { return true; }
  std::vector<Value> tangent(std::span<const Value> inputs,
                             std::span<const Value> changes) const override {
    std::vector<Value> parts(changes.begin(), changes.end());
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].defined()) continue;
      parts[i] = broadcast_to(applied(make_scalar_like(0), {inputs[i]}), inputs[i].shape());
    }
    return apply_all(shared_from_this(), parts);
  }

 private:
  int axis_;
};

}  // namespace

OpPtr make_concat(int axis) { return kept_op<Concatenation>(axis); }

Tensor concat(const std::vector<Tensor>& parts, int axis) {
  return applied(make_concat(axis), parts);
}
Value concat(const std::vector<Value>& parts, int axis) {
  return applied(make_concat(axis), parts);
}

// Functions that move elements, made of views and joins.

namespace {

// The elements of [first, last) along an axis.
template <class T>
T part(const T& x, int axis, int64_t first, int64_t last) {
  std::vector<SliceRange> ranges(static_cast<size_t>(axis) + 1);
  ranges.back() = {first, last};
  return slice(x, ranges);
}

template <class T>
T reversed(const T& x, int axis) {
  std::vector<SliceRange> ranges(static_cast<size_t>(axis) + 1);
  ranges.back().step = -1;
  return slice(x, ranges);
}

Shape with_size(const Shape& x, int axis, int64_t size) {
  std::vector<int64_t> dims = x.dims();
  dims[static_cast<size_t>(axis)] = size;
  return Shape(dims);
}

// What is put before (after) the elements of an axis.
template <class T>
T padding(const T& x, int axis, int64_t width, PadMode mode, double value, bool before) {
  const int64_t size = x.shape()[axis];
  if (mode == PadMode::constant) {
    return full_like(x, with_size(x.shape(), axis, width), value);
  }
  const int64_t needed = mode == PadMode::edge ? 1 : width + 1;
  if (size < needed) {
    throw InvalidArgument("[pad] axis " + std::to_string(axis) + " of " + x.shape().to_string() +
                          " is too short for a padding of " + std::to_string(width));
  }
  if (mode == PadMode::edge) {
    const T edge = before ? part(x, axis, 0, 1) : part(x, axis, size - 1, size);
    return broadcast_to(edge, with_size(x.shape(), axis, width));
  }
  return reversed(before ? part(x, axis, 1, width + 1) : part(x, axis, size - 1 - width, size - 1),
                  axis);
}

}  // namespace

template <Operand T>
T full_like(const T& x, const Shape& shape, double value) {
  return named("full_like", [&] {
    return broadcast_to(applied(make_scalar_like(static_cast<float>(value)), {x}), shape);
  });
}
LOCKSTEP_INSTANTIATE_1(full_like, const Shape&, double)

template <Operand T>
T expand_dims(const T& x, int axis) {
  return named("expand_dims", [&] {
    const int rank = x.shape().rank() + 1;
    if (axis < -rank || axis >= rank) {
      throw InvalidArgument("[expand_dims] " + x.shape().to_string() + " cannot get an axis " +
                            std::to_string(axis));
    }
    std::vector<int64_t> dims = x.shape().dims();
    dims.insert(dims.begin() + (axis < 0 ? axis + rank : axis), 1);
    return reshaped(x, Shape(dims));
  });
}
LOCKSTEP_INSTANTIATE_1(expand_dims, int)

template <Operand T>
T squeeze(const T& x, const std::vector<int>& axes) {
  return named("squeeze", [&] {
    const std::vector<int> gone = resolved_axes("squeeze", axes, x.shape());
    std::vector<int64_t> dims;
    for (int a = 0; a < x.shape().rank(); ++a) {
      if (!std::binary_search(gone.begin(), gone.end(), a)) {
        dims.push_back(x.shape()[a]);
      } else if (x.shape()[a] != 1) {
        throw InvalidArgument("[squeeze] axis " + std::to_string(a) + " of " +
                              x.shape().to_string() + " has more than one element, or none");
      }
    }
    return reshaped(x, Shape(dims));
  });
}
LOCKSTEP_INSTANTIATE_1(squeeze, const std::vector<int>&)

namespace {

template <class T>
T stacked(const std::vector<T>& parts, int axis) {
  if (parts.empty()) throw InvalidArgument("[stack] takes 1 or more inputs, received 0");
  for (const T& p : parts) {
    if (p.shape() == parts[0].shape()) continue;
    throw InvalidArgument("[stack] expected inputs of one shape, received " +
                          parts[0].shape().to_string() + " and " + p.shape().to_string());
  }
  std::vector<T> expanded;
  for (const T& p : parts) expanded.push_back(expand_dims(p, axis));
  return concat(expanded, axis);
}

}  // namespace

Tensor stack(const std::vector<Tensor>& parts, int axis) {
  return named("stack", [&] { return stacked(parts, axis); });
}
Value stack(const std::vector<Value>& parts, int axis) {
  return named("stack", [&] { return stacked(parts, axis); });
}

template <Operand T>
std::vector<T> split(const T& x, int64_t sections, int axis) {
  return named("split", [&] {
    const int a = resolved_axis("split", axis, x.shape());
    const int64_t size = x.shape()[a];
    if (sections < 1 || size % sections != 0) {
      throw InvalidArgument("[split] axis " + std::to_string(a) + " of " + x.shape().to_string() +
                            " cannot be split into " + std::to_string(sections) + " equal parts");
    }
    std::vector<T> parts;
    for (int64_t i = 0, each = size / sections; i < sections; ++i) {
      parts.push_back(part(x, a, i * each, (i + 1) * each));
    }
    return parts;
  });
}
template std::vector<Tensor> split(const Tensor&, int64_t, int);
template std::vector<Value> split(const Value&, int64_t, int);

template <Operand T>
T flip(const T& x, const std::vector<int>& axes) {
  return named("flip", [&] {
    std::vector<SliceRange> ranges(static_cast<size_t>(x.shape().rank()));
    for (const int axis : resolved_axes("flip", axes, x.shape())) {
      ranges[static_cast<size_t>(axis)].step = -1;
    }
    return slice(x, ranges);
  });
}
LOCKSTEP_INSTANTIATE_1(flip, const std::vector<int>&)

template <Operand T>
T roll(const T& x, int64_t shift, int axis) {
  return named("roll", [&] {
    const int a = resolved_axis("roll", axis, x.shape());
    const int64_t size = x.shape()[a];
    const int64_t by = size == 0 ? 0 : (shift % size + size) % size;
    if (by == 0) return x;
    const T last = part(x, a, size - by, size);
    return concat(std::vector<T>{last, part(x, a, 0, size - by)}, a);
  });
}
LOCKSTEP_INSTANTIATE_1(roll, int64_t, int)

template <Operand T>
T tile(const T& x, const std::vector<int64_t>& repeats) {
  return named("tile", [&] {
    std::vector<int64_t> dims = x.shape().dims(), times = repeats;
    if (dims.size() < times.size()) dims.insert(dims.begin(), times.size() - dims.size(), 1);
    if (times.size() < dims.size()) times.insert(times.begin(), dims.size() - times.size(), 1);
    std::vector<int64_t> apart, repeated, joined;
    for (size_t a = 0; a < dims.size(); ++a) {
      if (times[a] < 0) {
        throw InvalidArgument("[tile] axis " + std::to_string(a) + " cannot be repeated " +
                              std::to_string(times[a]) + " times");
      }
      apart.insert(apart.end(), {1, dims[a]});
      repeated.insert(repeated.end(), {times[a], dims[a]});
      joined.push_back(times[a] * dims[a]);
    }
    return reshaped(broadcast_to(reshaped(x, Shape(apart)), Shape(repeated)), Shape(joined));
  });
}
LOCKSTEP_INSTANTIATE_1(tile, const std::vector<int64_t>&)

template <Operand T>
T pad(const T& x, const std::vector<PadWidth>& widths, PadMode mode, double value) {
  return named("pad", [&] {
    if (static_cast<int>(widths.size()) > x.shape().rank()) {
      throw InvalidArgument("[pad] " + std::to_string(widths.size()) + " widths for an input of " +
                            x.shape().to_string());
    }
    T result = x;
    for (size_t i = 0; i < widths.size(); ++i) {
      const auto [before, after] = widths[i];
      if (before < 0 || after < 0) {
        throw InvalidArgument("[pad] the widths of axis " + std::to_string(i) +
                              " must not be negative, received " + std::to_string(before) +
                              " and " + std::to_string(after));
      }
      const int axis = static_cast<int>(i);
      std::vector<T> parts;
      if (before > 0) parts.push_back(padding(result, axis, before, mode, value, true));
      parts.push_back(result);
      if (after > 0) parts.push_back(padding(result, axis, after, mode, value, false));
      if (parts.size() > 1) result = concat(parts, axis);
    }
    return result;
  });
}
LOCKSTEP_INSTANTIATE_1(pad, const std::vector<PadWidth>&, PadMode, double)

template <Operand T>
T diagonal(const T& x) {
  return named("diagonal", [&] {
    const Shape& shape = x.shape();
    if (shape.rank() < 2) {
      throw InvalidArgument("[diagonal] expected matrices, received " + shape.to_string());
    }
    const int64_t rows = shape[-2], columns = shape[-1], count = std::min(rows, columns);
    std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end() - 2);
    std::vector<SliceRange> ranges(dims.size() + 1);
    ranges.back() = {0, count * (columns + 1), columns + 1};
    if (count == 0) ranges.back() = {0, 0};
    dims.push_back(rows * columns);
    return slice(reshaped(x, Shape(dims)), ranges);
  });
}
LOCKSTEP_INSTANTIATE_1(diagonal)

// Numbers at equal distances, and triangles of matrices, which they choose.

namespace {

constexpr double kMostNumbers = 1e12;

void check_numbers(const char* function, double count) {
  if (count <= kMostNumbers) return;
  throw InvalidArgument(
      fmt::format("[{}] {} numbers are more than {}", function, count, kMostNumbers));
}

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
  if (!std::isfinite(start) || !std::isfinite(stop) || !std::isfinite(step) || step == 0) {
    throw InvalidArgument(
        fmt::format("[arange] no numbers from {} to {} by a step of {}", start, stop, step),
        "limits are finite, and a step is not 0");
  }
  check_numbers("arange", count);
  const auto elements = static_cast<int64_t>(std::max(count, 0.0));
  return std::make_shared<Arange>(kernels::ArangeProblem{elements, elements, start, stop, step});
}

OpPtr make_linspace(double start, double stop, int64_t count) {
  if (!std::isfinite(start) || !std::isfinite(stop) || count < 0) {
    throw InvalidArgument(fmt::format("[linspace] no {} numbers from {} to {}", count, start, stop),
                          "limits are finite, and a count is 0 or more");
  }
  check_numbers("linspace", static_cast<double>(count));
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
