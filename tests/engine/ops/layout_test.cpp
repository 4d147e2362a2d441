// Chains of ops in which tensors have the layouts that the kernels choose, compared with the same
// chains of the reference.
#include <gtest/gtest.h>

#include <tuple>

#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {
namespace {

// A graph of cases. Only the ops of the cases are used, not their inputs.
class Chain {
 public:
  int input(const Array& array) {
    values_.push_back(array);
    leaves_.push_back(size() - 1);
    return size() - 1;
  }
  int add(const Case& c, const std::vector<int>& inputs) {
    nodes_.push_back({c, inputs, size()});
    values_.push_back(c.forward(values_of(inputs))[0]);
    return size() - 1;
  }
  // Adds random weights for all inputs of the case except the first.
  int add_with_weights(const Case& c, int x) {
    std::vector<int> inputs{x};
    for (size_t k = 1; k < c.inputs.size(); ++k) {
      Array weights = c.inputs[k].value;
      weights = c.op->type() == "batch_normalization" && k == 1
                    ? random_array(weights.dims, seed_++, 0.5, 1.5)
                    : random_array(weights.dims, seed_++, -0.5, 0.5);
      inputs.push_back(input(weights));
    }
    return add(c, inputs);
  }
  const Array& value(int v) const { return values_[static_cast<size_t>(v)]; }
  std::vector<int64_t> dims(int v) const { return value(v).dims; }

  int convolution(int x, int64_t filters, int64_t kernel, int64_t stride = 1, bool bias = true,
                  int64_t groups = 1) {
    const auto d = dims(x);
    const Case c = optest::convolution(
        "", d, {filters, d[1] / groups, kernel, kernel},
        {.stride = {stride, stride}, .padding = same_padding, .groups = groups}, bias);
    return add_with_weights(c, x);
  }
  int batch_normalization(int x, bool relu) {
    return add_with_weights(optest::batch_normalization("", value(x), {.relu = relu}), x);
  }
  int relu(int x) { return add(optest::relu("", value(x)), {x}); }
  int pool(int x, reference::Pooling kind, const ops::Pooling2dParams& params) {
    return add(optest::pooling("", value(x), kind, params), {x});
  }
  int addition(int a, int b) { return add(optest::addition(dims(a), 2), {a, b}); }
  int concatenation(int a, int b) {
    return add(optest::concatenation({dims(a), dims(b)}, 1), {a, b});
  }
  int fully_connected(int x, int64_t units) {
    return add_with_weights(optest::fully_connected("", dims(x), units), x);
  }

  // Compares every value, and the gradients of a weighted sum of the last one with respect to every
  // value.
  void check() const {
    std::vector<Tensor> tensors(values_.size());
    Tape tape;
    for (int leaf : leaves_) {
      tensors[static_cast<size_t>(leaf)] = tensor_of(value(leaf));
      tape.watch(tensors[static_cast<size_t>(leaf)]);
    }
    for (const Node& node : nodes_) {
      std::vector<Tensor> inputs;
      for (int i : node.inputs) inputs.push_back(tensors[static_cast<size_t>(i)]);
      tensors[static_cast<size_t>(node.output)] = apply_op(node.test.op, inputs)[0];
    }
    const Array dy = random_array(values_.back().dims, 999);
    const Tensor scalar = apply_op(make_weighted_sum(dy), {tensors.back()})[0];
    const std::vector<Tensor> gradients = tape.gradient(scalar, tensors);
    const std::vector<Array> expected = reference_gradients(dy);
    for (size_t v = 0; v < values_.size(); ++v) {
      SCOPED_TRACE("value " + std::to_string(v) + ", " + tensors[v].spec().to_string());
      EXPECT_LE(relative_error(array_of(tensors[v]), values_[v]), 1e-5);
      EXPECT_LE(relative_error(array_of(gradients[v]), expected[v], floor_), 1e-5);
    }
  }

  // A convolution's bias before batch normalization has the gradient 0.
  void set_floor(double floor) { floor_ = floor; }

 private:
  struct Node {
    Case test;
    std::vector<int> inputs;
    int output;
  };

  int size() const { return static_cast<int>(values_.size()); }

  std::vector<Array> values_of(const std::vector<int>& indices) const {
    std::vector<Array> values;
    for (int i : indices) values.push_back(value(i));
    return values;
  }

  std::vector<Array> reference_gradients(const Array& dy) const {
    std::vector<Array> d;
    for (const Array& value : values_) d.emplace_back(value.dims);
    d.back() = dy;
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      const auto parts =
          node->test.backward(values_of(node->inputs), d[static_cast<size_t>(node->output)]);
      for (size_t k = 0; k < parts.size(); ++k) {
        Array& sum = d[static_cast<size_t>(node->inputs[k])];
        for (int64_t i = 0; i < parts[k].count(); ++i) sum[i] += parts[k][i];
      }
    }
    return d;
  }

  std::vector<Array> values_;
  std::vector<int> leaves_;
  std::vector<Node> nodes_;
  uint64_t seed_ = 500;
  double floor_ = 0;
};

using reference::Pooling;

// Channels and observations. With 16 and 32 observations images lie in the lanes of vectors, on
// processors with kernels for that; with 8 on those with AVX2 and without AVX-512.
class Layouts : public testing::TestWithParam<std::tuple<int64_t, int64_t>> {};

// conv, bn, relu, max pool, conv, added to a skip, fully connected.
TEST_P(Layouts, ResidualNetworkMatchesTheReference) {
  const auto [channels, n] = GetParam();
  Chain net;
  const int x = net.input(random_array({n, 3, 10, 9}, 1));
  const int first = net.convolution(x, channels, 3, 1, false);
  const int activated = net.relu(net.batch_normalization(first, false));
  const int pooled = net.pool(activated, Pooling::max, {.pool = {2, 2}, .stride = {2, 2}});
  const int inner =
      net.batch_normalization(net.convolution(pooled, 2 * channels, 3, 1, false), true);
  const int outer = net.convolution(inner, 2 * channels, 3);
  const int skip = net.convolution(pooled, 2 * channels, 1);
  const int joined = net.relu(net.addition(outer, skip));
  net.fully_connected(joined, 5);
  net.check();
}

TEST_P(Layouts, StridesPoolingAndConcatenationMatchTheReference) {
  const auto [channels, n] = GetParam();
  Chain net;
  const int x = net.input(random_array({n, 3, 9, 11}, 20));
  const int first = net.relu(net.convolution(x, channels, 5, 2));
  const int left = net.convolution(first, channels, 3, 2);
  const int right =
      net.pool(first, Pooling::max, {.pool = {3, 3}, .stride = {2, 2}, .padding = same_padding});
  const int both = net.concatenation(left, right);
  const int average = net.pool(both, Pooling::average_without_padding,
                               {.pool = {3, 3}, .stride = {1, 1}, .padding = padding(1)});
  const int grouped = net.convolution(average, 2 * channels, 3, 1, true, 2);
  const int depthwise = net.convolution(grouped, 2 * channels, 3, 1, true, 2 * channels);
  net.fully_connected(net.fully_connected(depthwise, 17), 4);
  net.check();
}

// Ops read the same tensor in different layouts, and one op reads it twice.
TEST_P(Layouts, ATensorReadInSeveralLayoutsGetsAllGradients) {
  const auto [channels, n] = GetParam();
  Chain net;
  const int x = net.input(random_array({n, channels, 6, 5}, 3));
  const int y = net.convolution(x, channels, 3);
  const int a = net.addition(y, y);
  const int b = net.addition(a, x);
  const int c = net.concatenation(b, y);
  const int d = net.addition(net.convolution(c, channels, 1), y);
  net.fully_connected(d, 3);
  net.check();
}

// The windows of all ops in a chain of 3 x 3 convolutions, with and without ReLU and pooling behind
// the normalization.
TEST_P(Layouts, PoolingOfEveryKindMatchesTheReference) {
  const auto [channels, n] = GetParam();
  Chain net;
  const int x = net.input(random_array({n, 2, 9, 11}, 4));
  const int a = net.batch_normalization(net.convolution(x, channels, 3, 1, false), false);
  const int b =
      net.pool(a, Pooling::max, {.pool = {3, 2}, .stride = {2, 1}, .padding = padding(1)});
  const int c = net.convolution(b, channels, 3);
  const int d = net.pool(c, Pooling::average_with_padding,
                         {.pool = {3, 3}, .stride = {1, 2}, .padding = padding(1)});
  const int e = net.pool(d, Pooling::average_without_padding,
                         {.pool = {2, 3}, .stride = {2, 2}, .padding = same_padding});
  net.fully_connected(net.relu(e), 3);
  net.check();
}

// If windows are too large for a mark in a byte, a maximum uses other layouts. An average does not.
TEST(Layout, LargeWindowsMatchTheReference) {
  for (const Pooling kind : {Pooling::max, Pooling::average_with_padding}) {
    Chain net;
    const int x = net.input(random_array({16, 2, 18, 17}, 5));
    const int pooled =
        net.pool(net.convolution(x, 3, 3), kind, {.pool = {16, 16}, .stride = {1, 1}});
    net.fully_connected(net.convolution(pooled, 2, 1), 3);
    net.check();
  }
}

INSTANTIATE_TEST_SUITE_P(Channels, Layouts,
                         testing::Combine(testing::Values(1, 7, 8, 11, 16, 17, 22, 33),
                                          testing::Values(2, 3, 8, 16, 32)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "_of_" +
                                  std::to_string(std::get<1>(test.param));
                         });

// Chains are fast because ops without a preferred layout keep the layout of their input.
TEST(Layout, FlowsThroughElementwiseOpsNormalizationAndPooling) {
  for (const auto& [n, channels] : std::vector<std::pair<int64_t, int64_t>>{
           {2, 11}, {2, 16}, {2, 32}, {16, 3}, {16, 16}, {32, 5}}) {
    const Shape shape{n, channels, 8, 8};
    const TensorSpec spec = image_layout({}, shape);
    const Tensor x = convert(tensor_of(random_array(shape.dims(), 1)), spec);
    const Tensor ones = Tensor::full({channels}, 1);
    EXPECT_EQ(ops::relu(x).spec(), spec);
    EXPECT_EQ(ops::add({x, x, tensor_of(random_array(shape.dims(), 2))}).spec(), spec);
    EXPECT_EQ(ops::batch_normalization_training(x, ones, ones).y.spec(), spec);
    EXPECT_EQ(ops::batch_normalization(x, ones, ones, ones, ones).spec(), spec);
    const Tensor pooled = ops::max_pooling2d(x, {.pool = {2, 2}, .stride = {2, 2}});
    EXPECT_EQ(pooled.spec(), image_layout({}, pooled.shape()));
    // Channels join in the layout of most, if they fill its blocks.
    const bool lanes = n % 16 == 0, fills = lanes || channels % 16 == 0;
    const int64_t few = lanes ? 2 : 16;
    const Tensor joined =
        ops::concat({x, tensor_of(random_array(Shape{n, few, 8, 8}.dims(), 3)), x}, 1);
    const Shape all{n, 2 * channels + few, 8, 8};
    EXPECT_EQ(joined.spec(), fills ? image_layout({}, all) : TensorSpec({all, DType::f32, nullptr}))
        << spec.to_string() << " " << joined.spec().to_string();
  }
}

}  // namespace
}  // namespace lockstep::optest
