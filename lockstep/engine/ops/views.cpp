#include "lockstep/engine/ops/views.h"

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/kept_op.h"
#include "lockstep/engine/kernels/interface/element_types.h"
#include "lockstep/engine/kernels/losses/one_hot.h"
#include "lockstep/engine/kernels/shapes/strided_copy.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/ops/pointwise.h"
#include "lockstep/engine/ops/reduce.h"
#include "lockstep/engine/ops/reshaping.h"

namespace lockstep::ops {
namespace {

std::vector<int64_t> row_major_strides(const Shape& shape) {
  std::vector<int64_t> strides(static_cast<size_t>(shape.rank()));
  int64_t stride = 1;
  for (int a = shape.rank(); a-- > 0;) {
    strides[static_cast<size_t>(a)] = stride;
    stride *= shape[a];
  }
  return strides;
}

// Takes the elements of a view.
class Strided : public Op {
 public:
  std::vector<TensorSpec> infer(std::span<const TensorSpec> in) const final {
    check_count(*this, in.size(), 1, 1);
    kernels::with_type(type(), in[0].dtype, [](auto) {});
    return {{taken(in[0].shape).shape, in[0].dtype, nullptr}};
  }
  kernels::Kernel compile(const kernels::Table& table, std::span<const TensorSpec> in) const final {
    const StridedView from = taken(in[0].shape);
    return kernels::compile(table, kernels::StridedCopyProblem{in[0].plain(), from.shape,
                                                               from.offset, from.strides, false});
  }
  std::vector<Value> gradient(const AppliedOp& of) const final;
  std::optional<StridedView> view(const Shape& x) const final { return taken(x); }

 private:
  // The view of x. Throws InvalidArgument, naming the op.
  virtual StridedView taken(const Shape& x) const = 0;
};

// A view that does not depend on the input's shape.
class Taken final : public Strided {
 public:
  Taken(std::string type, StridedView view) : type_(std::move(type)), view_(std::move(view)) {}
  std::string_view type() const override { return type_; }

 private:
  StridedView taken(const Shape&) const override { return view_; }
  std::string type_;
  StridedView view_;
};

// Puts elements into those of a view, and zeros elsewhere: the gradient of taking them.
class Placed final : public FloatOp {
 public:
  Placed(std::string type, Shape dst, StridedView view)
      : type_(std::move(type)), dst_(std::move(dst)), view_(std::move(view)) {}
  std::string_view type() const override { return type_; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 1, 1);
    return {dst_};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(
        table, kernels::StridedCopyProblem{in[0].plain(), dst_, view_.offset, view_.strides, true});
  }
  std::vector<Value> gradient(const AppliedOp& of) const override {
    return {applied(kept_op<Taken>(type_, view_), {of.diff_outputs[0]})};
  }

 private:
  std::string type_;
  Shape dst_;
  StridedView view_;
};

std::vector<Value> Strided::gradient(const AppliedOp& of) const {
  const Shape& x = of.inputs[0].shape();
  const StridedView all = taken(x);
  // Elements that were repeated are added up first.
  std::vector<int> repeated;
  StridedView once{Shape{}, all.offset, {}};
  std::vector<int64_t> dims;
  for (int a = 0; a < all.shape.rank(); ++a) {
    const int64_t stride = all.strides[static_cast<size_t>(a)];
    if (stride == 0) {
      repeated.push_back(a);
    } else {
      dims.push_back(all.shape[a]);
      once.strides.push_back(stride);
    }
  }
  once.shape = Shape(dims);
  const Value& diff = of.diff_outputs[0];
  const Value d = repeated.empty() ? diff : sum(diff, repeated, false);
  if (once.shape.elements() == x.elements() && once.offset == 0 &&
      once.strides == row_major_strides(once.shape)) {
    return {reshaped(d, x)};
  }
  return {applied(kept_op<Placed>(std::string(type()), x, once), {d})};
}

class BroadcastTo final : public Strided {
 public:
  explicit BroadcastTo(Shape shape) : shape_(std::move(shape)) {}
  std::string_view type() const override { return "broadcast_to"; }
  bool broadcasts() const override { return true; }

 private:
  StridedView taken(const Shape& x) const override {
    const int missing = shape_.rank() - x.rank();
    StridedView result{shape_, 0, std::vector<int64_t>(static_cast<size_t>(shape_.rank()), 0)};
    const std::vector<int64_t> strides = row_major_strides(x);
    bool fits = missing >= 0;
    for (int a = 0; fits && a < x.rank(); ++a) {
      if (x[a] == shape_[missing + a]) {
        result.strides[static_cast<size_t>(missing + a)] =
            x[a] == 1 ? 0 : strides[static_cast<size_t>(a)];
      } else if (x[a] != 1) {
        fits = false;
      }
    }
    if (fits) return result;
    throw InvalidArgument("[broadcast_to] " + x.to_string() + " cannot be broadcast to " +
                          shape_.to_string());
  }
  Shape shape_;
};

class Permutation final : public Strided {
 public:
  explicit Permutation(std::vector<int> axes) : axes_(std::move(axes)) {}
  std::string_view type() const override { return "permute_dims"; }

 private:
  StridedView taken(const Shape& x) const override {
    if (static_cast<int>(axes_.size()) != x.rank()) {
      throw InvalidArgument("[permute_dims] expected " + std::to_string(x.rank()) +
                            " axes for an input of " + x.to_string() + ", received " +
                            std::to_string(axes_.size()));
    }
    resolved_axes(type(), axes_, x);
    const std::vector<int64_t> strides = row_major_strides(x);
    StridedView result;
    std::vector<int64_t> dims;
    for (const int axis : axes_) {
      const int a = axis < 0 ? axis + x.rank() : axis;
      dims.push_back(x[a]);
      result.strides.push_back(strides[static_cast<size_t>(a)]);
    }
    result.shape = Shape(dims);
    return result;
  }
  std::vector<int> axes_;
};

class Slice final : public Strided {
 public:
  explicit Slice(std::vector<SliceRange> ranges) : ranges_(std::move(ranges)) {}
  std::string_view type() const override { return "slice"; }

 private:
  StridedView taken(const Shape& x) const override {
    if (static_cast<int>(ranges_.size()) > x.rank()) {
      throw InvalidArgument("[slice] " + std::to_string(ranges_.size()) +
                            " ranges for an input of " + x.to_string());
    }
    StridedView result;
    result.strides = row_major_strides(x);
    std::vector<int64_t> dims = x.dims();
    for (size_t a = 0; a < ranges_.size(); ++a) {
      const SliceRange& range = ranges_[a];
      if (range.step == 0)
        throw InvalidArgument("[slice] the step of axis " + std::to_string(a) + " is 0");
      const int64_t size = dims[a], least = range.step < 0 ? -1 : 0, most = size + least;
      const auto bounded = [&](const std::optional<int64_t>& at, int64_t otherwise) {
        if (!at) return otherwise;
        return std::clamp(*at < 0 ? *at + size : *at, least, most);
      };
      const int64_t start = bounded(range.start, range.step < 0 ? size - 1 : 0);
      const int64_t stop = bounded(range.stop, range.step < 0 ? -1 : size);
      const int64_t distance = range.step < 0 ? start - stop : stop - start;
      const int64_t step = range.step < 0 ? -range.step : range.step;
      dims[a] = distance <= 0 ? 0 : (distance + step - 1) / step;
      if (dims[a] > 0) result.offset += start * result.strides[a];
      result.strides[a] *= range.step;
    }
    result.shape = Shape(dims);
    return result;
  }
  std::vector<SliceRange> ranges_;
};

class ReshapeTo final : public Reshaping {
 public:
  explicit ReshapeTo(Shape shape) : shape_(std::move(shape)) {}
  std::string_view type() const override { return "reshape"; }

 private:
  Shape result(const Shape& x) const override {
    if (x.elements() == shape_.elements()) return shape_;
    throw InvalidArgument("[reshape] " + x.to_string() + " cannot become " + shape_.to_string());
  }
  Shape shape_;
};

class Detached final : public Reshaping {
 public:
  std::string_view type() const override { return "detach"; }
  bool has_zero_slope() const override { return true; }

 private:
  Shape result(const Shape& x) const override { return x; }
};

class OneHot final : public Op {
 public:
  explicit OneHot(int64_t classes) : classes_(classes) {}
  std::string_view type() const override { return "one_hot"; }
  std::vector<TensorSpec> infer(std::span<const TensorSpec> in) const override {
    check_count(*this, in.size(), 1, 1);
    if (in[0].dtype != DType::i32 && in[0].dtype != DType::i64) {
      throw InvalidArgument("[one_hot] expected indices of i32 or i64, received " +
                            in[0].to_string());
    }
    if (classes_ < 1) {
      throw InvalidArgument("[one_hot] expected at least 1 class, received " +
                            std::to_string(classes_));
    }
    std::vector<int64_t> dims = in[0].shape.dims();
    dims.push_back(classes_);
    return {{Shape(dims), DType::f32, nullptr}};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    return kernels::compile(table, kernels::OneHotProblem{in[0].plain(), classes_});
  }
  bool has_zero_slope() const override { return true; }

 private:
  int64_t classes_;
};

}  // namespace

std::vector<int> resolved_axes(std::string_view op, std::span<const int> axes, const Shape& x) {
  std::vector<int> result;
  for (const int axis : axes) {
    if (axis < -x.rank() || axis >= x.rank()) {
      throw InvalidArgument("[" + std::string(op) + "] " + x.to_string() + " has no axis " +
                            std::to_string(axis));
    }
    result.push_back(axis < 0 ? axis + x.rank() : axis);
  }
  std::sort(result.begin(), result.end());
  if (std::adjacent_find(result.begin(), result.end()) != result.end()) {
    throw InvalidArgument("[" + std::string(op) + "] an axis is named twice");
  }
  return result;
}

int resolved_axis(std::string_view op, int axis, const Shape& x) {
  return resolved_axes(op, {&axis, 1}, x).front();
}

Value reshaped(const Value& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return applied(kept_op<ReshapeTo>(shape), {x});
}

Tensor reshaped(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return applied(kept_op<ReshapeTo>(shape), {x});
}

Value detached(const Value& x) { return applied(kept_op<Detached>(), {x}); }
Tensor detached(const Tensor& x) { return applied(kept_op<Detached>(), {x}); }

template <Operand T>
T one_hot(const T& indices, int64_t classes) {
  return applied(std::make_shared<OneHot>(classes), {indices});
}
LOCKSTEP_INSTANTIATE_1(one_hot, int64_t)

namespace {

Shape shape_by_channel(const Shape& x) {
  std::vector<int64_t> dims(static_cast<size_t>(x.rank()), 1);
  dims[1] = x[1];
  return Shape(dims);
}

}  // namespace

Value by_channel(const Value& vector, const Shape& x) {
  return reshaped(vector, shape_by_channel(x));
}
Tensor by_channel(const Tensor& vector, const Shape& x) {
  return reshaped(vector, shape_by_channel(x));
}

template <Operand T>
T broadcast_to(const T& x, const Shape& shape) {
  return named("broadcast_to",
               [&] { return x.shape() == shape ? x : applied(kept_op<BroadcastTo>(shape), {x}); });
}
LOCKSTEP_INSTANTIATE_1(broadcast_to, const Shape&)

template <Operand T>
T permute_dims(const T& x, const std::vector<int>& axes) {
  return applied(kept_op<Permutation>(axes), {x});
}
LOCKSTEP_INSTANTIATE_1(permute_dims, const std::vector<int>&)

template <Operand T>
T slice(const T& x, const std::vector<SliceRange>& ranges) {
  return applied(kept_op<Slice>(ranges), {x});
}
LOCKSTEP_INSTANTIATE_1(slice, const std::vector<SliceRange>&)

}  // namespace lockstep::ops
