// All ops: functions on tensors, which tapes record and which custom loops and custom layers use.
//
// relu() and the like run an op at once. make_relu() and the like return the op itself, for custom
// layers (LayerBuilder::applied()). Shapes are n x ...: the first dimension counts observations,
// the second channels (c), the others are space: l, h x w, or d x h x w. All functions are
// thread-safe. They throw InvalidArgument, naming the op, for inputs that do not fit.
#pragma once

#include <cstdint>
#include <optional>
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

// ---- Reductions along axes, shapes, matrices; on a Tensor and on a Value, as above ----

// The elements from `start` to before `stop` along an axis, every `step`-th, as in Python: negative
// positions count from the end, positions beyond the ends are moved to them, and a negative step
// goes backward. Without start and stop: all.
struct SliceRange {
  std::optional<int64_t> start = std::nullopt, stop = std::nullopt;
  int64_t step = 1;
};

#define LOCKSTEP_DECLARE_FOR(T)                                                                  \
  /* Sum, mean, largest and smallest element along axes (negative: from the last). keep_dims: */ \
  /* the axes stay, with size 1. Sums are in double. Equal largest elements share the         */ \
  /* derivative. Throw InvalidArgument for axes that x does not have, and, but for sum(), if  */ \
  /* there is nothing to reduce.                                                              */ \
  T sum(const T& x, const std::vector<int>& axes, bool keep_dims = false);                       \
  T mean(const T& x, const std::vector<int>& axes, bool keep_dims = false);                      \
  T max(const T& x, const std::vector<int>& axes, bool keep_dims = false);                       \
  T min(const T& x, const std::vector<int>& axes, bool keep_dims = false);                       \
  /* x repeated along axes of 1 and missing axes, by NumPy's rules. */                           \
  T broadcast_to(const T& x, const Shape& shape);                                                \
  /* Axis i of the result is axis axes[i] of x. */                                               \
  T permute_dims(const T& x, const std::vector<int>& axes);                                      \
  /* ranges[i] of axis i; further axes are whole. */                                             \
  T slice(const T& x, const std::vector<SliceRange>& ranges);
LOCKSTEP_DECLARE_FOR(Tensor)
LOCKSTEP_DECLARE_FOR(Value)
#undef LOCKSTEP_DECLARE_FOR

// ---- Elementwise, any shape ----

// Rectified linear unit: max(0, x) for each element of x, which has any shape. NaN gives NaN. The
// gradient at 0 is 0. Thread-safe.
Tensor relu(const Tensor& x);

OpPtr make_relu();

// min(max(0, x), ceiling) for each element of x, which has any shape. NaN gives NaN. The gradient
// at 0 and at the ceiling is 0. Throws InvalidArgument unless `ceiling` is finite and above 0.
// Thread-safe.
Tensor clipped_relu(const Tensor& x, double ceiling);

OpPtr make_clipped_relu(double ceiling);

// In the activations below NaN gives NaN, no other element gives NaN, and infinities give the
// limits.

// x for x > 0, otherwise scale * x. The gradient at 0 is scale. Throws InvalidArgument unless
// `scale` is finite and not negative.
Tensor leaky_relu(const Tensor& x, double scale = 0.01);

// Exponential linear unit (Clevert, Unterthiner, Hochreiter 2016): x for x > 0, otherwise alpha *
// (exp(x) - 1). The gradient at 0 is alpha. Throws InvalidArgument unless `alpha` is finite and not
// negative.
Tensor elu(const Tensor& x, double alpha = 1);

// Gaussian error linear unit (Hendrycks, Gimpel 2016): x * (1 + erf(x / sqrt(2))) / 2. The tanh
// approximation is x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2.
enum class GeluApproximation : uint8_t { none, tanh };
Tensor gelu(const Tensor& x, GeluApproximation approximation = GeluApproximation::none);

// x / (1 + exp(-x)).
Tensor swish(const Tensor& x);

Tensor tanh(const Tensor& x);

// 1 / (1 + exp(-x)).
Tensor sigmoid(const Tensor& x);

// log(1 + exp(x)).
Tensor softplus(const Tensor& x);

OpPtr make_leaky_relu(double scale);
OpPtr make_elu(double alpha);
OpPtr make_gelu(GeluApproximation approximation);
OpPtr make_swish();
OpPtr make_tanh();
OpPtr make_sigmoid();
OpPtr make_softplus();

// Sum of tensors with equal shapes, added from first to last. Throws InvalidArgument if shapes
// differ or `terms` is empty. Thread-safe.
Tensor addition(const std::vector<Tensor>& terms);

OpPtr make_addition();

// Elementwise product of tensors with equal shapes, multiplied from first to last. The gradient of
// each factor is the output gradient times all other factors, also where elements are 0. Throws
// InvalidArgument if shapes differ or `factors` is empty. Thread-safe.
Tensor multiplication(const std::vector<Tensor>& factors);

OpPtr make_multiplication();

// Dropout (Srivastava et al. 2014) with keyed random numbers.
//
// Each element becomes 0 with probability p and x / (1 - p) otherwise. The choice is a function of
// (step.seed, layer, step.iteration, position in the mini-batch, element) only, so it does not
// depend on the thread, worker or device that computes it. Row r of x is the observation at
// position step.first_row + r of the mini-batch. x: n x .... Throws InvalidArgument unless 0 <= p <
// 1. Thread-safe.
Tensor dropout(const Tensor& x, double p, uint64_t layer, const StepInfo& step);

OpPtr make_dropout(double p, uint64_t layer);

// ---- Matrices ----

// y[n, o] = bias[o] + sum over i of weights[o, i] * x[n, i], where i runs over all elements of an
// observation in row-major order. x: n x ... with i elements per observation; weights: o x i; bias:
// o, or undefined for none. Result: n x o. Throws InvalidArgument if shapes do not fit.
// Thread-safe.
Tensor fully_connected(const Tensor& x, const Tensor& weights, const Tensor& bias);

// Inputs: x, weights and, if `bias` is true, bias.
OpPtr make_fully_connected(bool bias);

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
Tensor convolution2d(const Tensor& x, const Tensor& weights, const Tensor& bias,
                     const Convolution2dParams& params = {});

// The op itself, for plans. Inputs: x, weights and, if `bias` is true, bias.
OpPtr make_convolution2d(const Convolution2dParams& params, bool bias);

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
Tensor convolution1d(const Tensor& x, const Tensor& weights, const Tensor& bias,
                     const Convolution1dParams& params = {});
Tensor convolution3d(const Tensor& x, const Tensor& weights, const Tensor& bias,
                     const Convolution3dParams& params = {});

OpPtr make_convolution1d(const Convolution1dParams& params, bool bias);
OpPtr make_convolution3d(const Convolution3dParams& params, bool bias);

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
Tensor transposed_convolution2d(const Tensor& x, const Tensor& weights, const Tensor& bias,
                                const TransposedConvolution2dParams& params = {});

// The op itself, for plans. Inputs: x, weights and, if `bias` is true, bias.
OpPtr make_transposed_convolution2d(const TransposedConvolution2dParams& params, bool bias);

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
Tensor max_pooling2d(const Tensor& x, const Pooling2dParams& params = {});
Tensor average_pooling2d(const Tensor& x, const Pooling2dParams& params = {});
// Average over all rows and columns. Result: n x c x 1 x 1.
Tensor global_average_pooling2d(const Tensor& x);

OpPtr make_max_pooling2d(const Pooling2dParams& params);
OpPtr make_average_pooling2d(const Pooling2dParams& params);
OpPtr make_global_average_pooling2d();

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
Tensor max_pooling1d(const Tensor& x, const Pooling1dParams& params = {});
Tensor max_pooling3d(const Tensor& x, const Pooling3dParams& params = {});
Tensor average_pooling1d(const Tensor& x, const Pooling1dParams& params = {});
Tensor average_pooling3d(const Tensor& x, const Pooling3dParams& params = {});
// Average over all of space. Results: n x c x 1 and n x c x 1 x 1 x 1.
Tensor global_average_pooling1d(const Tensor& x);
Tensor global_average_pooling3d(const Tensor& x);

OpPtr make_max_pooling1d(const Pooling1dParams& params);
OpPtr make_max_pooling3d(const Pooling3dParams& params);
OpPtr make_average_pooling1d(const Pooling1dParams& params);
OpPtr make_average_pooling3d(const Pooling3dParams& params);
OpPtr make_global_average_pooling1d();
OpPtr make_global_average_pooling3d();

// ---- Normalization ----

struct BatchNormalizationResult {
  Tensor y;         // the shape of x
  Tensor mean;      // c: mean of the batch over observations and space
  Tensor variance;  // c: variance of the batch, divided by the count (biased)
};

// Batch normalization (Ioffe, Szegedy 2015) of each channel with the statistics of x itself:
// y = scale * (x - mean) / sqrt(variance + epsilon) + shift.
// x: n x c or n x c x space (1 to 3 axes); scale, shift: c. The gradient flows through the
// statistics to x. No gradient flows back from the results mean and variance. Throws
// InvalidArgument if shapes do not fit or x has one value for each channel. Thread-safe.
BatchNormalizationResult batch_normalization_training(const Tensor& x, const Tensor& scale,
                                                      const Tensor& shift, double epsilon = 1e-5);

// The same with given statistics (c elements each), which get no gradient.
Tensor batch_normalization(const Tensor& x, const Tensor& scale, const Tensor& shift,
                           const Tensor& mean, const Tensor& variance, double epsilon = 1e-5);

// Training: inputs x, scale, shift; outputs y, mean, variance. Otherwise: inputs x, scale, shift,
// mean, variance; output y. The op fuses with a relu that follows it, and then with a max pooling
// whose stride equals its window and which has no padding.
OpPtr make_batch_normalization(double epsilon, bool training);

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
Tensor group_normalization(const Tensor& x, const Tensor& scale, const Tensor& shift,
                           int64_t groups, double epsilon = 1e-5);

OpPtr make_group_normalization(int64_t groups, double epsilon);

// (x - offset) * factor for each channel, as f32. x: n x c or n x c x space, f32 or u8; offset,
// factor: c. Throws InvalidArgument if shapes do not fit. Thread-safe.
Tensor normalize_images(const Tensor& x, const Tensor& offset, const Tensor& factor);

OpPtr make_normalize_images();

// ---- Reductions and shapes ----

// Sum (mean) of all elements of x: a scalar. The elements are added in double precision, in the
// order of the fixed tree over elements. mean() throws InvalidArgument if x has no elements.
// Thread-safe.
Tensor sum(const Tensor& x);
Tensor mean(const Tensor& x);

// Computes factor times the sum.
OpPtr make_sum(double factor = 1);

// Joins tensors along `axis` (1: channels). Throws InvalidArgument if any other dimension differs.
// Thread-safe.
Tensor concatenation(const std::vector<Tensor>& parts, int axis = 1);

OpPtr make_concatenation(int axis = 1);

// Turns each observation into one row: n x ... becomes n x (product of the rest), row-major.
// Thread-safe.
Tensor flatten(const Tensor& x);

OpPtr make_flatten();

// Gives each observation another shape, row-major: n x ... becomes n x observation. Throws
// InvalidArgument if the numbers of elements differ. Thread-safe.
Tensor reshape(const Tensor& x, const Shape& observation);

OpPtr make_reshape(Shape observation);

// ---- Losses: one value for each observation, of which the caller computes means or sums ----

// exp(x) / (sum over channels of exp(x)). x: n x c or n x c x space. Throws InvalidArgument for
// other shapes. Thread-safe.
Tensor softmax(const Tensor& x);

// The op fuses with a cross-entropy that follows it.
OpPtr make_softmax();

// -log(probability of the label) of each observation: n values. probabilities: n x c. labels: n,
// i32, 0 <= label < c (other labels give NaN); or n x c, f32: the share of each class, one-hot (see
// one_hot()) or smoothed. With shares the loss is -(sum of share x log(probability)). Throws
// InvalidArgument if shapes or types do not fit. Thread-safe.
Tensor cross_entropy(const Tensor& probabilities, const Tensor& labels);

// The same from logits: cross_entropy(softmax(logits), labels). It stays exact for logits that are
// far apart.
Tensor softmax_cross_entropy(const Tensor& logits, const Tensor& labels);

// Inputs: probabilities, labels or shares; output: loss.
OpPtr make_cross_entropy();
// Inputs: logits, labels or shares. Outputs: loss, probabilities. No gradient flows back from the
// probabilities.
OpPtr make_softmax_cross_entropy();

// Mean of (prediction - target)^2 over the elements of each observation: n values. prediction,
// target: n x .... Throws InvalidArgument if their shapes differ. Thread-safe.
Tensor mean_squared_error(const Tensor& prediction, const Tensor& target);

OpPtr make_mean_squared_error();

}  // namespace lockstep::ops
