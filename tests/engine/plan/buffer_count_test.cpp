// The number of a plan's buffers must not change its results: references to a buffer must stay
// valid while other buffers are added.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/plan/comparison.h"

namespace lockstep {
namespace {

using namespace plantest;

struct Builder {
  Graph graph;
  int parameters = 0;

  int add(OpPtr op, std::vector<int> inputs) {
    const std::string name = std::string(op->type()) + std::to_string(graph.nodes().size());
    return graph.add(std::move(op), std::move(inputs), name)[0];
  }
  int parameter(const Shape& shape) { return graph.add_parameter(parameters++, shape); }
  int convolution(int x, int64_t filters) {
    const int w = parameter({filters, graph.shape(x)[1], 3, 3});
    return add(ops::make_convolution2d({.padding = same_padding}, true),
               {x, w, parameter({filters})});
  }
  int dense(int x, int64_t units) {
    const int w = parameter({units, graph.shape(x).without_batch().elements()});
    return add(ops::make_fully_connected(true), {x, w, parameter({units})});
  }
  int relu(int x) { return add(ops::make_relu(), {x}); }
};

// Adds a network to the images `x`; returns its result.
using Build = std::function<int(Builder&, int x)>;

// Adds `more` further buffers that do not affect the network: a separate chain whose gradient is
// not requested.
Result run(const Build& build, int more, std::optional<Values>& values) {
  Builder b;
  const int x = b.graph.add_input({16, 3, 10, 10}, DType::f32);
  int aside = b.graph.add_input({1, 4}, DType::f32);
  for (int i = 0; i < more; ++i) aside = b.add(ops::make_leaky_relu(0.5), {aside});
  const int seed = b.graph.mark_output(build(b, x));
  b.graph.mark_output(aside);
  if (!values) values = random_values(b.graph, 7);  // the same for all runs
  Result result = Planned(b.graph, *values, {seed})(b.graph, *values, {seed});
  result.outputs.pop_back();
  result.inputs.pop_back();
  return result;
}

void expect_equal(const std::vector<Array>& a, const std::vector<Array>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].values, b[i].values) << what << " " << i;
}

void expect_the_same_for_any_number(const Build& build) {
  std::optional<Values> values;
  const Result wanted = run(build, 0, values);
  // The numbers make the buffers' memory grow at least once, from any initial size and by any
  // factor up to two. Some of them make it grow within each step of compilation.
  for (int more = 1; more <= 80; ++more) {
    SCOPED_TRACE(std::to_string(more) + " more buffers");
    Result result;
    ASSERT_NO_THROW(result = run(build, more, values));
    expect_equal(result.outputs, wanted.outputs, "output");
    expect_equal(result.parameters, wanted.parameters, "gradient of parameter");
    expect_equal(result.inputs, wanted.inputs, "gradient of input");
  }
}

TEST(BufferCount, OfAValueReadInTwoLayoutsChangesNothing) {
  expect_the_same_for_any_number([](Builder& b, int x) {
    x = b.convolution(x, 16);
    const int left = b.dense(b.add(ops::make_flatten(), {x}), 10);
    return b.add(ops::make_add(), {left, b.dense(b.relu(b.convolution(x, 16)), 10)});
  });
}

TEST(BufferCount, OfSharedWeightsInTwoLayoutsChangesNothing) {
  expect_the_same_for_any_number([](Builder& b, int x) {
    // The same memory as the weights of a convolution and of a product.
    const int w = b.parameter({16, 3 * 10 * 10}), shift = b.parameter({16});
    const int first = b.add(ops::make_fully_connected(true), {x, w, shift});
    const int second =
        b.add(ops::make_fully_connected(true), {b.add(ops::make_flatten(), {x}), w, shift});
    const int third = b.dense(b.convolution(b.convolution(x, 3), 3), 16);
    return b.add(ops::make_add(), {first, second, third});
  });
}

TEST(BufferCount, OfResidualBlocksChangesNothing) {
  expect_the_same_for_any_number([](Builder& b, int x) {
    x = b.relu(b.convolution(x, 16));
    for (int block = 0; block < 2; ++block) {
      const int inner = b.convolution(b.relu(b.convolution(x, 16)), 16);
      x = b.relu(b.add(ops::make_add(), {inner, x, x}));
    }
    const int pooled = b.add(ops::make_global_average_pooling2d(), {x});
    return b.add(ops::make_add(), {b.dense(pooled, 4), b.dense(x, 4)});
  });
}

}  // namespace
}  // namespace lockstep
