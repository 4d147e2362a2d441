// All ops: functions of tensors, for custom loops, and of values, for custom layers.
//
// Shapes are n x ...: the first dimension counts observations, the second channels (c), the others
// are space: l, h x w, or d x h x w. All functions are thread-safe. They throw InvalidArgument,
// naming the op, for inputs that do not fit.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "lockstep/base/fields.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/base/numeric/shape.h"
#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/ops/op_list.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// Elementwise arithmetic, with broadcasting by NumPy's rules (ops::add() and the like).
#define LOCKSTEP_DECLARE_FOR(T)        \
  T operator+(const T& a, const T& b); \
  T operator-(const T& a, const T& b); \
  T operator*(const T& a, const T& b); \
  T operator/(const T& a, const T& b); \
  T operator+(const T& a, double b);   \
  T operator-(const T& a, double b);   \
  T operator*(const T& a, double b);   \
  T operator/(const T& a, double b);   \
  T operator+(double a, const T& b);   \
  T operator-(double a, const T& b);   \
  T operator*(double a, const T& b);   \
  T operator/(double a, const T& b);   \
  T operator-(const T& a);
LOCKSTEP_DECLARE_FOR(Tensor)
LOCKSTEP_DECLARE_FOR(Value)
#undef LOCKSTEP_DECLARE_FOR

}  // namespace lockstep

namespace lockstep::ops {

// What ops are applied to. A Tensor is computed at once and recorded by tapes that watch it. A
// Value is a result in the graph of a layer (custom_layer.h), to which the op is added.
template <class T>
concept Operand = std::same_as<T, Tensor> || std::same_as<T, Value>;
template <class T>
using Same = std::type_identity_t<T>;  // not deduced, so that {} is possible

// ---- Elementwise functions, with broadcasting ----

// The functions of op_list.h: exp(x), add(a, b) and so on. On a Tensor they compute at once and are
// recorded by tapes that watch it; on a Value (custom layers) they are added to its graph. Shapes
// are broadcast by NumPy's rules: they are aligned at the last axis, and axes of 1 and missing axes
// repeat. Derivatives of any order are ops again. Throw InvalidArgument, naming the op, for shapes
// that cannot be broadcast and types other than f32. Thread-safe.
#define LOCKSTEP_DECLARE(name, text) \
  Tensor name(const Tensor& x);      \
  Value name(const Value& x);
LOCKSTEP_UNARY_OPS(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE
#define LOCKSTEP_DECLARE_FOR(name, T) \
  T name(const T& a, const T& b);     \
  T name(const T& a, double b);       \
  T name(double a, const T& b);
#define LOCKSTEP_DECLARE(name, text) \
  LOCKSTEP_DECLARE_FOR(name, Tensor) \
  LOCKSTEP_DECLARE_FOR(name, Value)
LOCKSTEP_BINARY_OPS(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE
#undef LOCKSTEP_DECLARE_FOR

// a where the condition is not 0, otherwise b. Elements that are not taken reach neither the result
// nor a derivative, not even NaN. The condition has no derivative.
#define LOCKSTEP_DECLARE_FOR(T)                        \
  T where(const T& condition, const T& a, const T& b); \
  T where(const T& condition, const T& a, double b);   \
  T where(const T& condition, double a, const T& b);
LOCKSTEP_DECLARE_FOR(Tensor)
LOCKSTEP_DECLARE_FOR(Value)
#undef LOCKSTEP_DECLARE_FOR

// Comparisons and logic: 1 or 0, without derivatives; any number but 0, and NaN, is true.
#define LOCKSTEP_DECLARE_FOR(T)            \
  T greater(const T& a, const T& b);       \
  T greater(const T& a, double b);         \
  T greater_equal(const T& a, const T& b); \
  T greater_equal(const T& a, double b);   \
  T not_equal(const T& a, const T& b);     \
  T not_equal(const T& a, double b);       \
  T logical_and(const T& a, const T& b);   \
  T logical_or(const T& a, const T& b);    \
  T logical_xor(const T& a, const T& b);
LOCKSTEP_DECLARE_FOR(Tensor)
LOCKSTEP_DECLARE_FOR(Value)
#undef LOCKSTEP_DECLARE_FOR
template <Operand T>
T logical_not(const T& x);
template <Operand T>
T isnan(const T& x);
template <Operand T>
T isfinite(const T& x);
// x moved to the nearest limit if it is outside; the derivative is 1 between the limits and at
// them, otherwise 0. NaN stays NaN. Throws InvalidArgument for limits that are not in order.
template <Operand T>
T clip(const T& x, double low, double high);

// ---- Reductions along axes, shapes, matrices; on a Tensor and on a Value, as above ----

// The elements from `start` to before `stop` along an axis, every `step`-th, as in Python: negative
// positions count from the end, positions beyond the ends are moved to them, and a negative step
// goes backward. Without start and stop: all.
struct SliceRange {
  std::optional<int64_t> start = std::nullopt, stop = std::nullopt;
  int64_t step = 1;

  auto operator<=>(const SliceRange&) const = default;
};

// Sum, mean, product, largest and smallest element along axes (negative: from the last). keep_dims:
// the axes stay, with size 1. Sums and products are in double, and so is the first derivative of a
// product; further ones multiply halves in f32. Equal largest elements share the derivative. Throw
// InvalidArgument for axes that x does not have, and, but for sum() and prod(), if there is nothing
// to reduce.
template <Operand T>
T sum(const T& x, const std::vector<int>& axes, bool keep_dims = false);
template <Operand T>
T mean(const T& x, const std::vector<int>& axes, bool keep_dims = false);
template <Operand T>
T prod(const T& x, const std::vector<int>& axes, bool keep_dims = false);
template <Operand T>
T max(const T& x, const std::vector<int>& axes, bool keep_dims = false);
template <Operand T>
T min(const T& x, const std::vector<int>& axes, bool keep_dims = false);
// Sum (mean) of all elements of x: a scalar. The elements are added in double, in the order of the
// fixed tree over elements. mean() throws InvalidArgument if x has no elements.
template <Operand T>
T sum(const T& x);
template <Operand T>
T mean(const T& x);

// Axes may be negative in what follows: from the last. Elements may be f32, i32, i64 or u8.
//
// x repeated along axes of 1 and missing axes, by NumPy's rules.
template <Operand T>
T broadcast_to(const T& x, const Shape& shape);
// Axis i of the result is axis axes[i] of x.
template <Operand T>
T permute_dims(const T& x, const std::vector<int>& axes);
// ranges[i] of axis i; further axes are whole.
template <Operand T>
T slice(const T& x, const std::vector<SliceRange>& ranges);

// The position of the first of the largest (smallest) elements along an axis, as i64; the first NaN
// wins. keep_dims: the axis stays, with size 1. No derivative. Throw InvalidArgument for an axis
// that x does not have or that has no elements.
template <Operand T>
T argmax(const T& x, int axis, bool keep_dims = false);
template <Operand T>
T argmin(const T& x, int axis, bool keep_dims = false);

// The sums of all elements up to each one along an axis, added in order in double.
template <Operand T>
T cumsum(const T& x, int axis);

// x[..., indices[...], ...]: the axes of the indices, any number, take the place of the axis. x:
// f32, i32, i64 or u8; indices: i32 or i64, from 0. An index outside of the axis is refused by
// eager calls on the CPU, which name it and its position; elsewhere it reads nothing and gives NaN
// (0 of whole numbers). The derivative is scatter_add(). Throws InvalidArgument, too, for types and
// axes that do not fit.
template <Operand T>
T take(const T& x, const Same<T>& indices, int axis);

// The same, element by element: y[i, j, k] = x[i, indices[i, j, k], k] along axis 1 of three. The
// indices have the shape of x, but for the axis; the result has that of the indices.
template <Operand T>
T gather(const T& x, const Same<T>& indices, int axis);

// Zeros of `shape`, to which updates, of the shape that take() gives, are added to the elements
// from which take() would read them. Those of one element are added in order of their positions, in
// double, and rounded once. An index outside of the axis as in take(); it adds nothing.
template <Operand T>
T scatter_add(const T& updates, const Same<T>& indices, const Shape& shape, int axis);

// Rows of weights (v x d) by indices of any shape: result ... x d. As take() along axis 0.
template <Operand T>
T embedding(const T& weights, const Same<T>& indices);

// 1 at the index, otherwise 0, along a new last axis of `classes` >= 1 elements. indices: ..., i32
// or i64; others than 0 to classes - 1 give NaN. No derivative.
template <Operand T>
T one_hot(const T& indices, int64_t classes);

// x as another type: f32, i32, i64 or u8. Floats are cut toward zero and NaN becomes 0; what an
// integer type does not hold becomes its nearest number. Integers become the nearest float. Only
// f32 as f32 has a derivative.
template <Operand T>
T astype(const T& x, DType to);

// Variance, divided by count - correction, and its square root; the Euclidean norm;
// log(sum(exp(x))) without overflow; whether all elements, or any, are not 0 (NaN is not). Where
// roots are 0, their derivatives are 0. Throw InvalidArgument for axes that x does not have, and
// var() and std() if there are not more elements than `correction`.
template <Operand T>
T var(const T& x, const std::vector<int>& axes, bool keep_dims = false, double correction = 0);
template <Operand T>
T std(const T& x, const std::vector<int>& axes, bool keep_dims = false, double correction = 0);
template <Operand T>
T norm(const T& x, const std::vector<int>& axes, bool keep_dims = false);
template <Operand T>
T logsumexp(const T& x, const std::vector<int>& axes, bool keep_dims = false);
template <Operand T>
T all(const T& x, const std::vector<int>& axes, bool keep_dims = false);
template <Operand T>
T any(const T& x, const std::vector<int>& axes, bool keep_dims = false);
// exp(x) / sum(exp(x)) along an axis, and its logarithm.
template <Operand T>
T softmax(const T& x, int axis);
template <Operand T>
T log_softmax(const T& x, int axis);

// Functions that move elements. Axes may be negative: from the last. They throw InvalidArgument for
// axes that x does not have and for sizes that do not fit.
//
// `value` in all elements of `shape`, f32, on the device of x, which is f32.
template <Operand T>
T full_like(const T& x, const Shape& shape, double value);
// expand_dims() inserts an axis of size 1. squeeze() removes axes of size 1; an empty list changes
// nothing.
template <Operand T>
T expand_dims(const T& x, int axis);
template <Operand T>
T squeeze(const T& x, const std::vector<int>& axes);
// Values of one shape along a new axis, and equal parts of an axis.
Tensor stack(const std::vector<Tensor>& parts, int axis = 0);
Value stack(const std::vector<Value>& parts, int axis = 0);
template <Operand T>
std::vector<T> split(const T& x, int64_t sections, int axis);
// The elements backward along axes; moved along an axis by `shift`, the last ones to the front; and
// repeated along axes, aligned at the last one.
template <Operand T>
T flip(const T& x, const std::vector<int>& axes);
template <Operand T>
T roll(const T& x, int64_t shift, int axis);
template <Operand T>
T tile(const T& x, const std::vector<int64_t>& repeats);
// More elements before and after those of the first axes, widths[i] for axis i: `value`, a mirror
// image without the element at the edge, or that element. f32.
enum class PadMode : uint8_t { constant, reflect, edge };
struct PadWidth {
  int64_t before = 0, after = 0;
};
template <Operand T>
T pad(const T& x, const std::vector<PadWidth>& widths, PadMode mode = PadMode::constant,
      double value = 0);
// Of the last two axes: ... x n x m becomes ... x min(n, m).
template <Operand T>
T diagonal(const T& x);

// The lower triangle of the last two axes, and the upper one: elements whose column less their row
// is at most k (at least k), zeros elsewhere. f32.
template <Operand T>
T tril(const T& x, int64_t k = 0);
template <Operand T>
T triu(const T& x, int64_t k = 0);

// start, start + step and so on, before stop; and `count` numbers from start to stop, with both. A
// vector of f32, each number computed in double and rounded once, on the device of `like`, which
// must be f32; its shape and its elements have no effect. Without `like`, on the CPU. Plans compute
// them in each run, and astype() makes indices of them. Throw InvalidArgument for limits that are
// not finite, a step of 0, a count below 0, and more than 1e12 numbers.
template <Operand T>
T arange(const T& like, double start, double stop, double step = 1);
Tensor arange(double start, double stop, double step = 1);
template <Operand T>
T linspace(const T& like, double start, double stop, int64_t count);
Tensor linspace(double start, double stop, int64_t count);

// Joins tensors along `axis` (1: channels; negative: from the last). Throws InvalidArgument if any
// other dimension differs. Thread-safe.
Tensor concat(const std::vector<Tensor>& parts, int axis = 1);
Value concat(const std::vector<Value>& parts, int axis = 1);

// Turns each observation into one row: n x ... becomes n x (product of the rest), row-major.
// Thread-safe.
template <Operand T>
T flatten(const T& x);

// Gives each observation another shape, row-major: n x ... becomes n x observation. Throws
// InvalidArgument if the numbers of elements differ. Thread-safe.
template <Operand T>
T reshape(const T& x, const Shape& observation);

// ---- Elementwise, any shape ----

// Rectified linear unit: max(0, x) for each element of x, which has any shape. NaN gives NaN. The
// gradient at 0 is 0. Thread-safe.
template <Operand T>
T relu(const T& x);

// min(max(0, x), ceiling) for each element of x, which has any shape. NaN gives NaN. The gradient
// at 0 and at the ceiling is 0. Throws InvalidArgument unless `ceiling` is finite and above 0.
// Thread-safe.
template <Operand T>
T clipped_relu(const T& x, double ceiling);

// In the activations below NaN gives NaN, no other element gives NaN, and infinities give the
// limits.

// x for x > 0, otherwise scale * x. The gradient at 0 is scale. Throws InvalidArgument unless
// `scale` is finite and not negative.
template <Operand T>
T leaky_relu(const T& x, double scale = 0.01);

// Exponential linear unit (Clevert, Unterthiner, Hochreiter 2016): x for x > 0, otherwise alpha *
// (exp(x) - 1). The gradient at 0 is alpha. Throws InvalidArgument unless `alpha` is finite and not
// negative.
template <Operand T>
T elu(const T& x, double alpha = 1);

// Gaussian error linear unit (Hendrycks, Gimpel 2016): x * (1 + erf(x / sqrt(2))) / 2. The tanh
// approximation is x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2.
enum class GeluApproximation : uint8_t { none, tanh };
template <Operand T>
T gelu(const T& x, GeluApproximation approximation = GeluApproximation::none);

// x / (1 + exp(-x)).
template <Operand T>
T swish(const T& x);

template <Operand T>
T tanh(const T& x);

// 1 / (1 + exp(-x)).
template <Operand T>
T sigmoid(const T& x);

// log(1 + exp(x)).
template <Operand T>
T softplus(const T& x);

// Sum of tensors with equal shapes, added from first to last. Throws InvalidArgument if shapes
// differ or `terms` is empty. Thread-safe.
Tensor add(const std::vector<Tensor>& terms);
Value add(const std::vector<Value>& terms);

// Elementwise product of tensors with equal shapes, multiplied from first to last. The gradient of
// each factor is the output gradient times all other factors, also where elements are 0. Throws
// InvalidArgument if shapes differ or `factors` is empty. Thread-safe.
Tensor multiply(const std::vector<Tensor>& factors);
Value multiply(const std::vector<Value>& factors);

// Dropout (Srivastava et al. 2014) with keyed random numbers.
//
// Each element becomes 0 with probability p and x / (1 - p) otherwise. The choice is a function of
// (step.seed, layer, step.iteration, position in the mini-batch, element) only, so it does not
// depend on the thread, worker or device that computes it. Row r of x is the observation at
// position step.first_row + r of the mini-batch. x: n x .... Throws InvalidArgument unless 0 <= p <
// 1. Thread-safe.
Tensor dropout(const Tensor& x, double p, uint64_t layer, const RandomContext& step);
Value dropout(const Value& x, double p, uint64_t layer);

// Random numbers of the shape of `like` (n x ...), as a function of (step.seed, draw,
// step.iteration, position in the mini-batch, element) only, so that they do not depend on the
// thread, worker or device that computes them. Row r of the result is the observation at position
// step.first_row + r. `draw` tells the draws of a network apart: key_from_text(name) of the layer,
// for example; two calls with one `draw` give the same numbers. Axis 0 of `like` must hold the
// observations: a parameter's rows would get other numbers in each shard. No derivative flows back.
// random_uniform(): in [0, 1), multiples of 2^-24. random_normal(): mean 0, standard deviation 1.
// random_bernoulli(): 1 with the probability in the element of p, otherwise 0; its shape is p's.
// Throw InvalidArgument for scalars. Thread-safe.
Tensor random_uniform(const Tensor& like, uint64_t draw, const RandomContext& step);
Value random_uniform(const Value& like, uint64_t draw);
Tensor random_normal(const Tensor& like, uint64_t draw, const RandomContext& step);
Value random_normal(const Value& like, uint64_t draw);
Tensor random_bernoulli(const Tensor& p, uint64_t draw, const RandomContext& step);
Value random_bernoulli(const Value& p, uint64_t draw);

// ---- Matrices ----

// y[n, o] = bias[o] + sum over i of weights[o, i] * x[n, i], where i runs over all elements of an
// observation in row-major order. x: n x ... with i elements per observation; weights: o x i; bias:
// o, or undefined for none. Result: n x o. Throws InvalidArgument if shapes do not fit.
// Thread-safe.
template <Operand T>
T fully_connected(const T& x, const Same<T>& weights, const Same<T>& bias);

#define LOCKSTEP_DECLARE_FOR(T)                                                                    \
  /* y[..., i, j] = sum over k of a[..., i, k] * b[..., k, j]. a: ... x m x k; b: ... x k x n;  */ \
  /* result: ... x m x n. Axes before the last two count products and are broadcast by NumPy's  */ \
  /* rules. A vector is a row on the left, a column on the right, and its axis of 1 is not in   */ \
  /* the result. Sums of no terms are 0. Throws InvalidArgument for scalars and shapes that do  */ \
  /* not fit.                                                                                   */ \
  T matmul(const T& a, const T& b);                                                                \
  /* The sum of products of two vectors of one length: a scalar. */                                \
  T dot(const T& a, const T& b);                                                                   \
  /* y[i, j] = a[i] * b[j] of two vectors. */                                                      \
  T outer(const T& a, const T& b);                                                                 \
  /* The last two axes change places. x: ... x m x n; result: ... x n x m. */                      \
  T matrix_transpose(const T& x);
LOCKSTEP_DECLARE_FOR(Tensor)
LOCKSTEP_DECLARE_FOR(Value)
#undef LOCKSTEP_DECLARE_FOR

// ---- Windows over space: convolutions and pooling ----

struct Convolution2dParams {
  Size2d stride{1, 1};
  Padding2d padding{};
  Size2d dilation{1, 1};  // 1: neighboring elements
  int64_t groups = 1;     // number of groups of channels and filters
};

// y[n, o, i, j] = bias[o] + sum over c, p, q of weights[o, c, p, q] * x[n, c, i*s + p*d - t, ...]
// with stride s, dilation d and top padding t. This is a cross-correlation, as in other
// deep-learning libraries.
// x: n x c x h x w; weights: o x c/groups x kh x kw; bias: o, or undefined for none.
// Result: n x o x oh x ow, oh = (h + padding - d*(kh - 1) - 1) / stride + 1, rounded down.
// Throws InvalidArgument if shapes do not fit. Thread-safe.
template <Operand T>
T convolution2d(const T& x, const Same<T>& weights, const Same<T>& bias,
                const Convolution2dParams& params = {});

struct Convolution1dParams {
  int64_t stride = 1;
  Padding1d padding{};
  int64_t dilation = 1;  // 1: neighboring elements
  int64_t groups = 1;    // number of groups of channels and filters
};

struct Convolution3dParams {
  Size3d stride{1, 1, 1};
  Padding3d padding{};
  Size3d dilation{1, 1, 1};
  int64_t groups = 1;
};

// Like convolution2d(), for sequences (x: n x c x l; weights: o x c/groups x k) and for images with
// depth (x: n x c x d x h x w; weights: o x c/groups x kd x kh x kw). bias: o, or undefined for
// none. Throw InvalidArgument if shapes do not fit. Thread-safe.
template <Operand T>
T convolution1d(const T& x, const Same<T>& weights, const Same<T>& bias,
                const Convolution1dParams& params = {});
template <Operand T>
T convolution3d(const T& x, const Same<T>& weights, const Same<T>& bias,
                const Convolution3dParams& params = {});

struct TransposedConvolution2dParams {
  Size2d stride{1, 1};
  Padding2d padding{};  // cropped from the result; "same": the result's size is input size x stride
  Size2d dilation{1, 1};  // 1: neighboring elements
  int64_t groups = 1;     // number of groups of channels and filters
};

// The gradient of a convolution with respect to its input, used as a forward op (Zeiler et al.
// 2010). Each element of x adds `weights` times itself to the result. The corner of its window is
// at stride * position - padding. The bias is then added.
// x: n x c x h x w; weights: c x o/groups x kh x kw; bias: o, or undefined for none.
// Result: n x o x oh x ow, oh = stride * (h - 1) + d*(kh - 1) + 1 - padding.
// Throws InvalidArgument if shapes do not fit. Thread-safe.
template <Operand T>
T transposed_convolution2d(const T& x, const Same<T>& weights, const Same<T>& bias,
                           const TransposedConvolution2dParams& params = {});

struct Pooling2dParams {
  Size2d pool{2, 2};
  Size2d stride{1, 1};
  Padding2d padding{};
  bool count_padding = true;  // averages divide by the whole window including padding (zeros)
};

// Maximum (average) over windows of x: n x c x h x w. Result: n x c x oh x ow, oh = (h + padding -
// pool) / stride + 1, rounded down. The gradient of a maximum goes to the first of equal elements.
// Throws InvalidArgument if the window does not fit or the padding is not smaller than the window.
// Thread-safe.
template <Operand T>
T max_pooling2d(const T& x, const Pooling2dParams& params = {});
template <Operand T>
T average_pooling2d(const T& x, const Pooling2dParams& params = {});
// Average over all rows and columns. Result: n x c x 1 x 1.
template <Operand T>
T global_average_pooling2d(const T& x);

struct Pooling1dParams {
  int64_t pool = 2, stride = 1;
  Padding1d padding{};
  bool count_padding = true;  // averages divide by the whole window including padding (zeros)
};

struct Pooling3dParams {
  Size3d pool{2, 2, 2}, stride{1, 1, 1};
  Padding3d padding{};
  bool count_padding = true;
};

// Like the two-dimensional functions, over n x c x l and n x c x d x h x w.
template <Operand T>
T max_pooling1d(const T& x, const Pooling1dParams& params = {});
template <Operand T>
T max_pooling3d(const T& x, const Pooling3dParams& params = {});
template <Operand T>
T average_pooling1d(const T& x, const Pooling1dParams& params = {});
template <Operand T>
T average_pooling3d(const T& x, const Pooling3dParams& params = {});
// Average over all of space. Results: n x c x 1 and n x c x 1 x 1 x 1.
template <Operand T>
T global_average_pooling1d(const T& x);
template <Operand T>
T global_average_pooling3d(const T& x);

// ---- Recurrent layers ----

// Sequences are x (n x steps x c) with lengths (n, i32): the first lengths[i] steps of row i are
// valid. `steps` is a capacity: the bits of a result depend on the valid steps alone. h
// is the hidden size. `reverse` computes from the last valid step to the first, which is the
// backward half of a bidirectional layer. y is 0 at steps that are not valid; h (and c) are those
// after the last step, or h0 (c0) where the length is 0. A length that is not 0 to `steps` is
// refused by eager calls on the CPU; elsewhere the results of its row are NaN. Second derivatives
// add ops for each step. Throw InvalidArgument for shapes and types that do not fit. Thread-safe.
template <Operand T>
struct LstmResult {
  T y;     // n x steps x h
  T h, c;  // n x h
};
template <Operand T>
struct RecurrentResult {
  T y;  // n x steps x h
  T h;  // n x h
};

// Long short-term memory (Hochreiter, Schmidhuber 1997; forget gate: Gers et al. 2000). Gates in
// the order i, f, g, o, as in PyTorch: weights 4h x c, recurrent weights 4h x h, bias 4h (the sum
// of PyTorch's two); h0, c0: n x h.
struct LstmParams {
  bool reverse = false;
};
template <Operand T>
LstmResult<T> lstm(const T& x, const Same<T>& lengths, const Same<T>& weights,
                   const Same<T>& recurrent_weights, const Same<T>& bias, const Same<T>& h0,
                   const Same<T>& c0, const LstmParams& params = {});

// Gated recurrent unit (Cho et al. 2014). Gates in the order r, z, n, as in PyTorch: weights 3h x
// c, recurrent weights 3h x h, both biases 3h; h0: n x h. reset_after: n = tanh(W x + b + r (U h +
// d)), as in PyTorch; otherwise tanh(W x + b + U (r h) + d), as in the paper.
struct GruParams {
  bool reset_after = true;
  bool reverse = false;
};
template <Operand T>
RecurrentResult<T> gru(const T& x, const Same<T>& lengths, const Same<T>& weights,
                       const Same<T>& recurrent_weights, const Same<T>& bias,
                       const Same<T>& recurrent_bias, const Same<T>& h0,
                       const GruParams& params = {});

// Elman's recurrent network: the activation of W x + b + U h. weights h x c, recurrent weights h x
// h, bias h; h0: n x h.
enum class RnnActivation : uint8_t { tanh, relu };
struct RnnParams {
  RnnActivation activation = RnnActivation::tanh;
  bool reverse = false;
};
template <Operand T>
RecurrentResult<T> rnn(const T& x, const Same<T>& lengths, const Same<T>& weights,
                       const Same<T>& recurrent_weights, const Same<T>& bias, const Same<T>& h0,
                       const RnnParams& params = {});

// ---- Normalization ----

template <Operand T>
struct BatchNormalizationResult {
  T y;         // the shape of x
  T mean;      // c: mean of the batch over observations and space
  T variance;  // c: variance of the batch, divided by the count (biased)
};

// Batch normalization (Ioffe, Szegedy 2015) of each channel with the statistics of x itself:
// y = scale * (x - mean) / sqrt(variance + epsilon) + shift.
// x: n x c or n x c x space (1 to 3 axes); scale, shift: c. The gradient flows through the
// statistics to x. No gradient flows back from the results mean and variance. Throws
// InvalidArgument if shapes do not fit or x has one value for each channel. Thread-safe.
template <Operand T>
BatchNormalizationResult<T> batch_normalization_training(const T& x, const Same<T>& scale,
                                                         const Same<T>& shift,
                                                         double epsilon = 1e-5);

// The same with given statistics (c elements each), which get no gradient.
template <Operand T>
T batch_normalization(const T& x, const Same<T>& scale, const Same<T>& shift, const Same<T>& mean,
                      const Same<T>& variance, double epsilon = 1e-5);

inline constexpr int64_t group_per_channel = 0;

// Group normalization (Wu, He 2018). Layer normalization (Ba, Kiros, Hinton 2016) and instance
// normalization (Ulyanov, Vedaldi, Lempitsky 2016) are its special cases.
//
// y = scale * (x - mean) / sqrt(variance + epsilon) + shift. The statistics are those of one
// observation and one group of channels, over the group's channels and space. The variance is
// divided by the count. x: n x c or n x c x space; scale, shift: c. The c channels are divided into
// `groups` groups of adjacent channels. 1 group is layer normalization; c groups or
// group_per_channel is instance normalization. The gradient flows through the statistics. Throws
// InvalidArgument if shapes do not fit, `groups` does not divide c or a group has one value.
// Thread-safe.
template <Operand T>
T group_normalization(const T& x, const Same<T>& scale, const Same<T>& shift, int64_t groups,
                      double epsilon = 1e-5);

// (x - offset) * factor for each channel, as f32. x: n x c or n x c x space, f32 or u8; offset,
// factor: c. Throws InvalidArgument if shapes do not fit. Thread-safe.
template <Operand T>
T normalize_images(const T& x, const Same<T>& offset, const Same<T>& factor);

// ---- Sequences: n x t x c, observations x steps x channels ----

// `lengths` are i32, one for each observation: step t of observation i is valid if t < lengths[i].
// t is a capacity, at most 2^24: the bits of results and gradients depend on the valid steps alone.
// Gradients of other steps are 0. Eager calls on the CPU refuse lengths outside of 0 to t;
// elsewhere the nearest of these counts. All throw InvalidArgument, naming the op, for shapes,
// types and settings that do not fit. Thread-safe.

struct AttentionParams {
  int64_t heads = 1;
  // Query i sees keys 0 to i, also where there are more keys than queries (PyTorch: upper left).
  bool causal = false;
  // With causal: the last valid query sees all valid keys, the one before it one less, and so on
  // (PyTorch: lower right), as in generation step by step.
  bool from_end = false;
  std::optional<double> scale = std::nullopt;  // by default 1 / sqrt(channels of a head)
  // The probability with which a query's weight for a key becomes 0; others are divided by 1 -
  // probability. A function of (step.seed, layer, step.iteration, position in the mini-batch, head,
  // query, key) only, as in dropout().
  double dropout = 0;
  uint64_t layer = 0;  // key_from_text(the layer's name); another one draws other numbers
};

// Scaled dot-product attention (Vaswani et al. 2017) of several heads: head h has channels h * c /
// heads and so on, and y[i] = sum over keys j of softmax(scale * queries[i] . keys[j]) * values[j].
// PyTorch's scaled_dot_product_attention. queries: n x tq x c; keys: n x tk x c; values: n x tk x
// cv; result: n x tq x cv. Lengths of keys and queries; undefined: all steps are valid. A result is
// 0 for queries that are not valid, and where no key is seen. No matrix of queries by keys is in
// memory. Throws InvalidArgument for shapes and settings that do not fit. Thread-safe.
Tensor attention(const Tensor& queries, const Tensor& keys, const Tensor& values,
                 const Tensor& key_lengths = {}, const Tensor& query_lengths = {},
                 const AttentionParams& params = {}, const RandomContext& step = {});
Value attention(const Value& queries, const Value& keys, const Value& values,
                const Value& key_lengths = {}, const Value& query_lengths = {},
                const AttentionParams& params = {});

// Rotary positions (Su et al. 2021): in each head, pair i of the channels at step t is rotated by
// the angle (first + t) * base^(-2 i / channels of a head). Pairs are channels i and i + half of
// the head (GPT-NeoX, Llama in Transformers), or 2 i and 2 i + 1 if `interleaved`. Throws
// InvalidArgument for an odd number of channels in a head.
struct RotaryParams {
  int64_t heads = 1;
  double base = 10000;
  int64_t first = 0;  // the position of step 0
  bool interleaved = false;
};
template <Operand T>
T rotary(const T& x, const RotaryParams& params = {});

// steps x channels: sin(t * base^(-i / channels)) in even channels i, and the cosine of the same
// angle in the next one (Vaswani et al. 2017). f32 on the device of `like`, which must be f32.
template <Operand T>
T sinusoidal_positions(const T& like, int64_t steps, int64_t channels, double base = 10000);

// x / sqrt(mean(x^2) + epsilon) * scale over the last axis (Zhang, Sennrich 2019). x: ... x c;
// scale: c.
template <Operand T>
T rms_norm(const T& x, const Same<T>& scale, double epsilon = 1e-5);

// n x steps: 1 where a step is valid, otherwise 0.
template <Operand T>
T step_mask(const T& lengths, int64_t steps);
// The last valid step and the mean of the valid steps of x, n x t x ...: n x ...; zeros where there
// are none.
template <Operand T>
T last_step(const T& x, const Same<T>& lengths);
template <Operand T>
T mean_over_steps(const T& x, const Same<T>& lengths);

// ---- Losses: one value for each observation, of which the caller computes means or sums ----

// exp(x) / (sum over channels of exp(x)). x: n x c or n x c x space. Throws InvalidArgument for
// other shapes. Thread-safe.
template <Operand T>
T softmax(const T& x);

// -log(probability of the label) of each observation: n values. probabilities: n x c. labels: n,
// i32, 0 <= label < c (other labels give NaN); or n x c, f32: the share of each class, one-hot (see
// one_hot()) or smoothed. With shares the loss is -(sum of share x log(probability)). Throws
// InvalidArgument if shapes or types do not fit. Thread-safe.
template <Operand T>
T cross_entropy(const T& probabilities, const Same<T>& labels);

// The same from logits: cross_entropy(softmax(logits), labels). It stays exact for logits that are
// far apart.
template <Operand T>
T softmax_cross_entropy(const T& logits, const Same<T>& labels);

// The same losses with settings, and the loss from logarithms of probabilities. They are made of
// other ops, so they have derivatives of any order. scores: n x c or n x c x space; labels: n or n
// x space, i32 or i64; weights of classes: c, or undefined for none. One value for each label; for
// a label of ignore_index, 0. label_smoothing: that share of a label is divided among all classes.
// With weights, each class's part of the loss is multiplied by that class's weight. The losses are
// not divided by the sum of weights: they are PyTorch's with reduction="none". Labels of no class
// give NaN; eager calls on the CPU refuse them. Throw InvalidArgument if shapes or types do not
// fit, and for more than 2^24 classes.
struct CrossEntropyParams {
  int64_t ignore_index = -100;
  double label_smoothing = 0;
};
template <Operand T>
T cross_entropy(const T& probabilities, const Same<T>& labels, const Same<T>& weights,
                const CrossEntropyParams& params = {});
template <Operand T>
T softmax_cross_entropy(const T& logits, const Same<T>& labels, const Same<T>& weights,
                        const CrossEntropyParams& params = {});
template <Operand T>
T nll(const T& log_probabilities, const Same<T>& labels, const Same<T>& weights = {},
      int64_t ignore_index = -100);

// The soft Dice loss (Milletari et al. 2016): the mean over the classes, weighted if there are
// weights, of 1 - (2 sum(p t) + smooth) / (sum(p) + sum(t) + smooth), where p are a class's
// probabilities and t is 1 where the label is the class, otherwise 0. The sums are over the space
// of an observation without labels of ignore_index. probabilities, labels and weights as for nll();
// one value for each observation: n. Made of other ops. Throws InvalidArgument if shapes or types
// do not fit, and unless smooth is finite and above 0. Weights are divided by their sum, which is
// not checked: it must be above 0, and no weight below 0.
struct DiceParams {
  double smooth = 1;
  int64_t ignore_index = -100;
};
template <Operand T>
T dice_loss(const T& probabilities, const Same<T>& labels, const Same<T>& weights = {},
            const DiceParams& params = {});

// Connectionist temporal classification (Graves et al. 2006): -log of the sum of the probabilities
// of all alignments of the labels, one value for each observation. PyTorch's F.ctc_loss of
// log_softmax(logits) with reduction="none". logits: n x t x k; labels: n x l, i32, of other
// classes than the blank one; lengths of both. Where no alignment exists, because there are fewer
// steps than labels and blanks between equal ones, the loss is infinite, or 0 with zero_infinity,
// and its gradient is 0 (PyTorch: NaN without zero_infinity). Labels of no class or of the blank
// one give NaN; eager calls on the CPU refuse them. Throws InvalidArgument if shapes or types do
// not fit.
struct CtcParams {
  int64_t blank = 0;
  bool zero_infinity = false;
};
template <Operand T>
T ctc_loss(const T& logits, const Same<T>& lengths, const Same<T>& labels,
           const Same<T>& label_lengths, const CtcParams& params = {});

// Mean of (prediction - target)^2 over the elements of each observation: n values. prediction,
// target: n x .... Throws InvalidArgument if their shapes differ. Thread-safe.
template <Operand T>
T mean_squared_error(const T& prediction, const Same<T>& target);

// The losses below are made of the ops above, so they have derivatives of any order. Names,
// defaults and careful forms are PyTorch's. The mean is over the elements of an observation.
// prediction, target: n x ..., of one shape; they throw InvalidArgument for others. Both get
// gradients.

// Mean of |prediction - target|.
template <Operand T>
T l1(const T& prediction, const Same<T>& target);
// Mean of d^2 / 2 for |d| <= delta, otherwise of delta * (|d| - delta / 2), d = prediction -
// target. Throws InvalidArgument unless delta is finite and above 0.
template <Operand T>
T huber(const T& prediction, const Same<T>& target, double delta = 1);
// huber() with delta = beta, divided by beta; l1() for beta = 0.
template <Operand T>
T smooth_l1(const T& prediction, const Same<T>& target, double beta = 1);
// Mean of max(0, margin - target * prediction), for targets of -1 and 1.
template <Operand T>
T hinge(const T& prediction, const Same<T>& target, double margin = 1);
// (a . b) / (|a| |b|) over all elements, with norms of at least epsilon: from -1 to 1.
template <Operand T>
T cosine_similarity(const T& a, const Same<T>& b, double epsilon = 1e-8);
// max(0, |anchor - positive| - |anchor - negative| + margin), with Euclidean distances of what
// differs plus epsilon: an observation is a triplet. All have one shape.
template <Operand T>
T triplet_margin(const T& anchor, const Same<T>& positive, const Same<T>& negative,
                 double margin = 1, double epsilon = 1e-6);
// Mean of -(target * log(p) + (1 - target) * log(1 - p)), with logarithms of at least -100 and
// their slopes of at most 1e12. probabilities and target: from 0 to 1.
template <Operand T>
T binary_cross_entropy(const T& probabilities, const Same<T>& target);
// binary_cross_entropy(sigmoid(logits), target), finite for large logits, and without
// cancellation where logits agree with targets of 0 and 1.
template <Operand T>
T binary_cross_entropy_with_logits(const T& logits, const Same<T>& target);
// The Kullback-Leibler divergence: sum of target * (log(target) - log_probabilities), where
// elements with target 0 count nothing. PyTorch's with reduction="batchmean".
template <Operand T>
T kl_div(const T& log_probabilities, const Same<T>& target);

}  // namespace lockstep::ops
