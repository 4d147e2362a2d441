#include "lockstep/engine/graph/graph.h"

#include <gtest/gtest.h>

#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/ops/op_makers.h"

namespace lockstep {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::vector<std::string> names_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const auto& node : graph.nodes()) names.push_back(node.name);
  return names;
}

using Names = std::vector<std::string>;

// x -> batch normalization -> relu, with the intermediate values.
struct NormalizedRelu {
  Graph graph;
  int x, y;
  std::vector<int> normalized;  // y, mean, variance

  NormalizedRelu() {
    x = graph.add_input({4, 3, 5, 5}, DType::f32);
    normalized = graph.add(ops::make_batch_normalization(1e-5, true),
                           {x, graph.add_parameter(0, {3}), graph.add_parameter(1, {3})}, "norm");
    y = graph.add(ops::make_relu(), {normalized[0]}, "rectify")[0];
  }
};

// logits -> softmax -> cross-entropy.
struct Classified {
  Graph graph;
  int logits, labels, probabilities, loss;

  Classified() {
    logits = graph.add_input({4, 10}, DType::f32);
    labels = graph.add_input({4}, DType::i32);
    probabilities = graph.add(ops::make_softmax(), {logits}, "soft")[0];
    loss = graph.add(ops::make_cross_entropy(), {probabilities, labels}, "loss")[0];
  }
};

TEST(Graph, NamesTheNodeWhereShapesDoNotFit) {
  Graph graph;
  const int x = graph.add_input({4, 3, 8, 8}, DType::f32);
  const int w = graph.add_parameter(0, {16, 5, 3, 3});
  const std::string text = message_of([&] {
    graph.add(ops::make_convolution2d({}, false), {x, w}, "stem/conv");
  });
  EXPECT_EQ(text.rfind("[stem/conv] [convolution2d] ", 0), 0u) << text;
  EXPECT_NE(text.find("4x3x8x8"), std::string::npos) << text;
  EXPECT_EQ(graph.nodes().size(), 0u) << "what was refused is not in the graph";
}

TEST(Graph, TheSameSlotIsTheSameValue) {
  Graph graph;
  const int a = graph.add_parameter(3, {2}), s = graph.add_state(3, {2});
  EXPECT_EQ(graph.add_parameter(3, {2}), a);
  EXPECT_EQ(graph.add_state(3, {2}), s);
  EXPECT_NE(a, s);
  EXPECT_NE(graph.add_parameter(4, {2}), a);
  EXPECT_NE(graph.add_input({2}, DType::f32), graph.add_input({2}, DType::f32));
  EXPECT_EQ(graph.inputs(), 2);
}

TEST(Graph, FusesBatchNormalizationWithRelu) {
  NormalizedRelu g;
  g.graph.mark_output(g.y);
  g.graph.mark_output(g.normalized[1]);
  g.graph.mark_output(g.normalized[2]);
  const Graph fused = g.graph.fused();
  EXPECT_EQ(names_of(fused), Names{"norm+rectify"});
  ASSERT_EQ(fused.outputs().size(), 3u);
  EXPECT_EQ(fused.outputs()[0], fused.nodes()[0].outputs[0]);
  EXPECT_EQ(fused.outputs()[1], fused.nodes()[0].outputs[1]) << "the statistics stay readable";
  EXPECT_EQ(fused.outputs()[2], fused.nodes()[0].outputs[2]);
}

TEST(Graph, FusesThreeOpsWhereTheBackEndHasAKernelForThem) {
  NormalizedRelu g;
  const auto pooled =
      g.graph.add(ops::make_max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}), {g.y}, "pool");
  g.graph.mark_output(pooled[0]);
  g.graph.mark_output(g.normalized[1]);
  const Graph fused = g.graph.fused();
  EXPECT_EQ(names_of(fused), Names{"norm+rectify+pool"});
  EXPECT_EQ(fused.shape(fused.outputs()[0]), (Shape{4, 3, 2, 2}));
  EXPECT_EQ(fused.outputs()[1], fused.nodes()[0].outputs[1]);
  kernels::Table table = kernels::table_for({});
  EXPECT_EQ(names_of(g.graph.fused({}, &table)), Names{"norm+rectify+pool"});
  table.normalization_with_max_pooling = false;
  EXPECT_EQ(names_of(g.graph.fused({}, &table)), (Names{"norm+rectify", "pool"}));
}

// x -> convolution with bias -> batch normalization -> relu.
TEST(Graph, HandsTheBiasOverToTheNormalizationWhereTheBackEndAddsIt) {
  for (const bool read_twice : {false, true}) {
    SCOPED_TRACE(read_twice);
    Graph graph;
    const int x = graph.add_input({4, 2, 5, 5}, DType::f32), bias = graph.add_parameter(3, {3});
    const int between = graph.add(ops::make_convolution2d({}, true),
                                  {x, graph.add_parameter(2, {3, 2, 3, 3}), bias}, "conv")[0];
    const auto normalized =
        graph.add(ops::make_batch_normalization(1e-5, true),
                  {between, graph.add_parameter(0, {3}), graph.add_parameter(1, {3})}, "norm");
    graph.mark_output(graph.add(ops::make_relu(), {normalized[0]}, "rectify")[0]);
    if (read_twice) graph.mark_output(between);
    kernels::Table table = kernels::table_for({});
    EXPECT_EQ(graph.fused({}, &table).nodes()[0].inputs.size(), 3u);
    table.normalization_with_bias = true;
    const Graph fused = graph.fused({}, &table);
    EXPECT_EQ(names_of(fused), (Names{"conv", "norm+rectify"}));
    EXPECT_EQ(fused.nodes()[0].inputs.size(), read_twice ? 3u : 2u);
    EXPECT_EQ(fused.nodes()[1].inputs.size(), read_twice ? 3u : 4u);
    if (!read_twice) {
      EXPECT_EQ(fused.values()[static_cast<size_t>(fused.nodes()[1].inputs[3])].slot, 3);
    }
  }
}

TEST(Graph, FusesSoftmaxWithCrossEntropyAndKeepsTheProbabilities) {
  Classified g;
  g.graph.mark_output(g.probabilities);
  g.graph.mark_output(g.loss);
  const Graph fused = g.graph.fused();
  EXPECT_EQ(names_of(fused), Names{"soft+loss"});
  EXPECT_EQ(fused.nodes()[0].op->type(), "softmax_cross_entropy");
  EXPECT_EQ(fused.shape(fused.outputs()[0]), (Shape{4, 10}));
  EXPECT_EQ(fused.shape(fused.outputs()[1]), Shape{4});
}

TEST(Graph, DoesNotFuseWhereTheValueBetweenIsAnOutput) {
  NormalizedRelu g;
  g.graph.mark_output(g.y);
  g.graph.mark_output(g.normalized[0]);
  EXPECT_EQ(names_of(g.graph.fused()), (Names{"norm", "rectify"}));
}

TEST(Graph, DoesNotFuseWhereTheValueBetweenHasAnotherReader) {
  {
    NormalizedRelu g;
    const int sum = g.graph.add(ops::make_add(), {g.y, g.normalized[0]}, "sum")[0];
    g.graph.mark_output(sum);
    EXPECT_EQ(names_of(g.graph.fused()), (Names{"norm", "rectify", "sum"}));
  }
  {
    Classified g;
    const int sum = g.graph.add(ops::make_add(), {g.logits, g.probabilities}, "sum")[0];
    g.graph.mark_output(sum);
    g.graph.mark_output(g.loss);
    EXPECT_EQ(names_of(g.graph.fused()), (Names{"soft", "loss", "sum"}));
  }
}

// The pair would run at the second op's position, after an op that reads the statistics.
TEST(Graph, DoesNotFuseWhereAFurtherResultHasAReader) {
  NormalizedRelu g;
  const int doubled =
      g.graph.add(ops::make_add(), {g.normalized[1], g.normalized[1]}, "doubled")[0];
  g.graph.mark_output(g.y);
  g.graph.mark_output(doubled);
  EXPECT_EQ(names_of(g.graph.fused()), (Names{"norm", "rectify", "doubled"}));
}

// The fused op returns the probabilities without a separate gradient.
TEST(Graph, DoesNotFuseWhereABackwardRunStartsFromTheValueBetween) {
  Classified g;
  const int probabilities = g.graph.mark_output(g.probabilities);
  const int loss = g.graph.mark_output(g.loss);
  const std::vector<int> both{probabilities, loss}, one{loss};
  EXPECT_EQ(names_of(g.graph.fused(both)), (Names{"soft", "loss"}));
  EXPECT_EQ(names_of(g.graph.fused(one)), Names{"soft+loss"});
}

TEST(Graph, FusesEveryPairOfAChainAndLeavesTheOrderSound) {
  Graph graph;
  int x = graph.add_input({2, 4, 6, 6}, DType::f32);
  const int skip = x;
  for (int i = 0; i < 3; ++i) {
    const std::string number = std::to_string(i);
    x = graph.add(ops::make_batch_normalization(1e-5, true),
                  {x, graph.add_parameter(2 * i, {4}), graph.add_parameter(2 * i + 1, {4})},
                  "norm" + number)[0];
    x = graph.add(ops::make_relu(), {x}, "relu" + number)[0];
    x = graph.add(ops::make_relu(), {x}, "again" + number)[0];  // does not fuse
  }
  x = graph.add(ops::make_add(), {x, skip}, "sum")[0];
  graph.mark_output(x);
  const Graph fused = graph.fused();
  EXPECT_EQ(names_of(fused), (Names{"norm0+relu0", "again0", "norm1+relu1", "again1", "norm2+relu2",
                                    "again2", "sum"}));
  for (size_t i = 0; i < fused.nodes().size(); ++i) {
    for (int v : fused.nodes()[i].inputs) {
      const auto& value = fused.values()[static_cast<size_t>(v)];
      if (value.source == Graph::Source::computed) {
        EXPECT_LT(value.slot, static_cast<int>(i));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
