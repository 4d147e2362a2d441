// Functions that move elements, made of views and joins.
#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/elementwise/pointwise.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/shapes/views.h"

namespace lockstep::ops {
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
  const int rank = expanded.empty() ? 1 : expanded[0].shape().rank();
  return concat(expanded, axis < 0 ? axis + rank : axis);
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

}  // namespace lockstep::ops
