// References for all ops: plain loops in double precision that share no code with the library.
// Gradients are those of sum(dy * y) with respect to the named input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::reference {

// Row-major.
struct Array {
  std::vector<int64_t> dims;
  std::vector<double> values;

  Array() = default;
  explicit Array(std::vector<int64_t> d, double value = 0);
  int64_t count() const { return static_cast<int64_t>(values.size()); }
  double& operator[](int64_t i) { return values[static_cast<size_t>(i)]; }
  double operator[](int64_t i) const { return values[static_cast<size_t>(i)]; }
  int64_t dim(int axis) const { return dims[static_cast<size_t>(axis)]; }
};

// A window over rows (first) and columns (second).
struct Window {
  int64_t stride[2] = {1, 1};
  int64_t dilation[2] = {1, 1};
  int64_t before[2] = {0, 0};  // padding
  int64_t after[2] = {0, 0};
  int64_t groups = 1;
};
// The window whose padding keeps ceil(size / stride) positions, with an odd element at the end.
Window same_window(const Array& x, int64_t kernel_height, int64_t kernel_width, Window w);

// x: n x c x h x w, weights: o x c/groups x kh x kw, bias: o or empty.
Array convolution(const Array& x, const Array& weights, const Array& bias, const Window& w);
Array convolution_diff_x(const Array& x, const Array& weights, const Window& w, const Array& dy);
Array convolution_diff_weights(const Array& x, const Array& weights, const Window& w,
                               const Array& dy);
Array convolution_diff_bias(const Array& dy);

enum class Pooling { max, average_with_padding, average_without_padding };
Array pooling(const Array& x, Pooling kind, int64_t height, int64_t width, const Window& w);
Array pooling_diff(const Array& x, Pooling kind, int64_t height, int64_t width, const Window& w,
                   const Array& dy);

struct Statistics {
  Array mean, variance;
};
// Over observations and space; the variance divides by the count.
Statistics statistics(const Array& x);
Array batch_normalization(const Array& x, const Array& scale, const Array& shift,
                          const Statistics& s, double epsilon);
struct BatchNormalizationDiff {
  Array x, scale, shift;
};
// `through_statistics`: the statistics are those of x, so x also has an effect through them.
BatchNormalizationDiff batch_normalization_diff(const Array& x, const Array& scale,
                                                const Statistics& s, double epsilon,
                                                bool through_statistics, const Array& dy);

// x: n x anything, weights: o x i, bias: o or empty.
Array fully_connected(const Array& x, const Array& weights, const Array& bias);
Array fully_connected_diff_x(const Array& x, const Array& weights, const Array& dy);
Array fully_connected_diff_weights(const Array& x, const Array& weights, const Array& dy);
Array fully_connected_diff_bias(const Array& dy);

Array relu(const Array& x);
Array relu_diff(const Array& x, const Array& dy);

Array addition(const std::vector<Array>& terms);

Array concatenation(const std::vector<Array>& parts, int axis);
std::vector<Array> concatenation_diff(const std::vector<Array>& parts, int axis, const Array& dy);

// Over dimension 1.
Array softmax(const Array& x);
Array softmax_diff(const Array& x, const Array& dy);

// -log p of the label; n values.
Array cross_entropy(const Array& probabilities, const Array& labels);
Array cross_entropy_diff(const Array& probabilities, const Array& labels, const Array& dy);
// Class shares instead of labels.
Array shared_cross_entropy(const Array& probabilities, const Array& shares);
Array shared_cross_entropy_diff(const Array& probabilities, const Array& shares, const Array& dy);
Array shared_cross_entropy_diff_shares(const Array& probabilities, const Array& dy);
Array softmax_cross_entropy(const Array& logits, const Array& labels);
Array softmax_cross_entropy_diff(const Array& logits, const Array& labels, const Array& dy);

Array mean_squared_error(const Array& prediction, const Array& target);
// With respect to the prediction; the target's is its negative.
Array mean_squared_error_diff(const Array& prediction, const Array& target, const Array& dy);

Array sum(const Array& x, double factor);

Array normalize_images(const Array& x, const Array& offset, const Array& factor);
Array normalize_images_diff(const Array& x, const Array& factor, const Array& dy);

}  // namespace lockstep::reference
