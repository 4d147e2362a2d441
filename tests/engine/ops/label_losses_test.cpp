// Losses by labels, with labels that are ignored, weights of classes and smoothing, and of
// triplets.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/engine/graph/graph.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/engine/plan/plan.h"
#include "tests/engine/ops/harness.h"

namespace lockstep::optest::label_losses {
namespace {

using Floats = std::vector<float>;

void expect_near(const Tensor& actual, const std::vector<double>& expected) {
  const Floats found = actual.to_vector();
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(found[i]), expected[i], 1e-6 + 2e-6 * std::abs(expected[i]))
        << i;
  }
}

const Tensor& scores() {
  static const Tensor x = Tensor::from(Floats{1, 2, -1, 0.5f, 0, 3, 2, -2, 0.25f, 0, 0, 0}, {4, 3});
  return x;
}

// Figures of PyTorch in fp64, with reduction="none".
TEST(LabelLosses, AreThoseOfPyTorch) {
  for (const DType type : {DType::i32, DType::i64}) {
    for (const Device device : devices()) {
      const Tensor x = scores().to(device), w = Tensor::from(Floats{0.5f, 2, 1}, {3}).to(device);
      const Tensor y =
          ops::astype(Tensor::from(std::vector<int32_t>{1, 2, -100, 0}, {4}), type).to(device);
      Tape tape;
      tape.watch(x);
      const Tensor loss = ops::softmax_cross_entropy(x, y, w, {.label_smoothing = 0.1});
      expect_near(loss, {0.785606749, 0.367604174, 0, 0.622546964});
      const Tensor g = tape.gradient(ops::sum(loss), {x}, {.create_graph = true})[0];
      expect_near(g, {0.480701549, -0.514679684, 0.033978135, 0.0570634698, -0.0219470784,
                      -0.0351163914, 0, 0, 0, -0.277777778, 0.122222222, 0.155555556});
      expect_near(tape.gradient(ops::sum(ops::square(g)), {x})[0],
                  {0.714036729, -0.750531874, 0.0364951451, 0.0125216735, 0.00052814053,
                   -0.013049814, 0, 0, 0, -0.104938272, 0.0461728395, 0.0587654321});
      expect_near(ops::cross_entropy(ops::softmax(x), y, w, {.label_smoothing = 0.1}),
                  {0.785606749, 0.367604174, 0, 0.622546964});
      const Tensor logs = ops::log_softmax(x, 1);
      expect_near(ops::nll(logs, y, w),
                  {0.6980244335363727, 0.12387295836936753, 0, 0.5493061443340549});
    }
  }
}

TEST(LabelLosses, WithoutSettingsAreTheFusedOne) {
  const Tensor y = Tensor::from(std::vector<int32_t>{1, 2, 0, 0}, {4});
  const Floats fused = ops::softmax_cross_entropy(scores(), y).to_vector();
  expect_near(ops::softmax_cross_entropy(scores(), y, {}), {fused.begin(), fused.end()});
  expect_near(ops::nll(ops::log_softmax(scores(), 1), y), {fused.begin(), fused.end()});
}

// A value for each label.
TEST(LabelLosses, OfSequencesHaveTheShapeOfTheLabels) {
  const Array values = random_array({2, 5, 3}, 4);
  const Tensor x = tensor_of(values);
  const std::vector<int32_t> labels{0, 4, 7, 2, 7, 1};
  const Tensor y = Tensor::from(labels, {2, 3});
  const Tensor loss = ops::softmax_cross_entropy(x, y, {}, {.ignore_index = 7});
  ASSERT_EQ(loss.shape(), (Shape{2, 3}));
  const Floats found = loss.to_vector();
  for (int64_t n = 0; n < 2; ++n) {
    for (int64_t at = 0; at < 3; ++at) {
      double sum = 0;
      for (int64_t c = 0; c < 5; ++c) sum += std::exp(values[(n * 5 + c) * 3 + at]);
      const int32_t label = labels[static_cast<size_t>(n * 3 + at)];
      const double expected = label == 7 ? 0 : std::log(sum) - values[(n * 5 + label) * 3 + at];
      EXPECT_NEAR(static_cast<double>(found[static_cast<size_t>(n * 3 + at)]), expected, 1e-6);
    }
  }
}

// Neither NaN nor infinities of what is ignored, or of other classes, reach a loss or a slope.
TEST(LabelLosses, WhatDoesNotCountIsLeftOut) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor logs =
      Tensor::from(Floats{-infinity, -1, -2, NAN, NAN, NAN, -infinity, -3, -1}, {3, 3});
  const Tensor y = Tensor::from(std::vector<int32_t>{1, -1, 2}, {3});
  Tape tape;
  tape.watch(logs);
  const Tensor loss = ops::nll(logs, y, {}, -1);
  EXPECT_EQ(loss.to_vector(), (Floats{1, 0, 1}));
  EXPECT_EQ(tape.gradient(ops::sum(loss), {logs})[0].to_vector(),
            (Floats{0, -1, 0, 0, 0, 0, 0, 0, -1}));
}

// The slope of log(0) is not a number, but these zeros do not count.
TEST(LabelLosses, ProbabilitiesOfZeroHaveNoSlope) {
  const Tensor p = Tensor::from(Floats{0, 1, 0, 0, 0.5f, 0.5f, 0, 0, 1}, {3, 3});
  const Tensor y = Tensor::from(std::vector<int32_t>{1, 2, -1}, {3});
  const Tensor weights = Tensor::from(Floats{std::numeric_limits<float>::infinity(), 3, 4}, {3});
  for (const bool weighted : {false, true}) {
    Tape tape;
    tape.watch(p);
    const Tensor loss =
        ops::cross_entropy(p, y, weighted ? weights : Tensor(), {.ignore_index = -1});
    const float of_half = weighted ? 4 : 1;
    EXPECT_EQ(loss.to_vector(), (Floats{0, of_half * 0.693147182f, 0}));
    EXPECT_EQ(tape.gradient(ops::sum(loss), {p})[0].to_vector(),
              (Floats{0, weighted ? -3.0f : -1.0f, 0, 0, 0, -2 * of_half, 0, 0, 0}));
  }
  // Smoothing counts all classes, but those of labels that are ignored.
  Tape tape;
  tape.watch(p);
  const Tensor none = Tensor::from(std::vector<int32_t>{-1, -1, -1}, {3});
  const Tensor loss = ops::cross_entropy(p, none, {}, {.ignore_index = -1, .label_smoothing = 0.1});
  EXPECT_EQ(tape.gradient(ops::sum(loss), {p})[0].to_vector(), Floats(9, 0));
}

// Values, gradients and those of their squares by PyTorch in fp64: two observations with three
// positions, of which one has no class.
TEST(LabelLosses, SoftDiceIsThatOfPyTorch) {
  const Floats values{1, 2, -1, 0.5f, 0, 3, 2, -2, 0.25f, 0, 0, 0, 0.5f, -1, 1.5f, 2, -0.5f, 0.25f};
  struct Case {
    bool weighted;
    double smooth;
    std::vector<double> losses, slopes, second;
  };
  const std::vector<Case> cases{
      {false,
       1,
       {0.5219995073150123, 0.3970946915821945},
       {0.013173995004, 0.003019051366, 0, -0.032299446562, 0.001349576569, 0, 0.019125451558,
        -0.004368627935, 0, -0.017534905555, -0.049766671193, 0.018021784194, 0.005685850918,
        0.020936892998, -0.043916989227, 0.011849054636, 0.028829778195, 0.025895205034},
       {-0.000551139987, -6.235671e-06, 0, 0.002090282611, -6.6864729e-05, 0, -0.001539142624,
        7.31004e-05, 0, 0.000795185759, -0.000171327342, 0.000740109529, 5.644844e-05,
        0.00024288437, -0.001977444293, -0.000851634198, -7.1557028e-05, 0.001237334764}},
      {true,
       0.01,
       {0.8605443733568319, 0.5574851905638318},
       {0.025460892088, -0.005677955499, 0, -0.096678835275, 0.011214844219, 0, 0.071217943186,
        -0.00553688872, 0, -0.010407697553, -0.038002179764, 0.039890302397, 0.026678944499,
        0.035749101708, -0.087123655391, -0.016271246946, 0.002253078055, 0.047233352994},
       {-0.006051688542, 0.001727711057, 0, 0.01619233885, -0.001917276822, 0, -0.010140650309,
        0.000189565765, 0, -8.6907373e-05, 9.848031e-06, 0.004984901945, 4.9008252e-05,
        0.000829967487, -0.011584584688, 3.7899121e-05, -0.000839815518, 0.006599682743}}};
  for (const DType type : {DType::i32, DType::i64}) {
    for (const Device device : devices()) {
      const Tensor x = Tensor::from(values, {2, 3, 3}).to(device);
      const Tensor y =
          ops::astype(Tensor::from(std::vector<int32_t>{1, 2, -100, 0, 0, 1}, {2, 3}), type)
              .to(device);
      const Tensor w = Tensor::from(Floats{0.5f, 2, 1}, {3}).to(device);
      for (const Case& c : cases) {
        Tape tape;
        tape.watch(x);
        const Tensor loss =
            ops::dice_loss(ops::softmax(x), y, c.weighted ? w : Tensor(), {.smooth = c.smooth});
        expect_near(loss, c.losses);
        const Tensor g = tape.gradient(ops::sum(loss), {x}, {.create_graph = true})[0];
        expect_near(g, c.slopes);
        expect_near(tape.gradient(ops::sum(ops::square(g)), {x})[0], c.second);
      }
    }
  }
}

TEST(LabelLosses, SoftDiceLeavesOutWhatHasNoClass) {
  const Tensor p = Tensor::from(Floats{0.25f, NAN, 1, 0.75f, NAN, 0}, {1, 2, 3});
  const Tensor y = Tensor::from(std::vector<int32_t>{1, 7, 0}, {1, 3});
  Tape tape;
  tape.watch(p);
  const Tensor loss = ops::dice_loss(p, y, {}, {.ignore_index = 7});
  expect_near(loss, {(1 - 3 / 3.25 + 1 - 2.5 / 2.75) / 2});
  const Floats slopes = tape.gradient(ops::sum(loss), {p})[0].to_vector();
  EXPECT_EQ(slopes[1], 0);
  EXPECT_EQ(slopes[4], 0);
  for (const float slope : slopes) EXPECT_TRUE(std::isfinite(slope));
  // Without any class it is 0, and one label for each observation is possible, too.
  expect_near(ops::dice_loss(p, Tensor::from(std::vector<int32_t>{7, 7, 7}, {1, 3}), {},
                             {.ignore_index = 7}),
              {0});
  expect_near(ops::dice_loss(Tensor::from(Floats{0.25f, 0.75f}, {1, 2}),
                             Tensor::from(std::vector<int32_t>{1}, {1})),
              {(1 - 1 / 1.25 + 1 - 2.5 / 2.75) / 2});
}

TEST(LabelLosses, RefuseWhatDoesNotFit) {
  const Tensor y = Tensor::from(std::vector<int32_t>{1, 2, 0, 3}, {4});
  expect_refusal([&] { ops::nll(scores(), y); }, {"[nll]", "index 3", "position 3"});
  expect_refusal([&] { ops::nll(scores(), Tensor::zeros({4})); }, {"[nll]", "i32 or i64", "4 f32"});
  expect_refusal([&] { ops::nll(scores(), Tensor::zeros({3}, DType::i32)); },
                 {"[nll]", "received 4x3 and 3 i32"});
  expect_refusal([&] { ops::softmax_cross_entropy(scores(), y, Tensor::zeros({2})); },
                 {"[softmax_cross_entropy]", "3 weights", "received 2"});
  expect_refusal([&] { ops::dice_loss(scores(), y, {}, {.smooth = 0}); },
                 {"[dice_loss]", "smooth must be above 0, received 0"});
  expect_refusal([&] { ops::dice_loss(scores(), Tensor::zeros({3}, DType::i32)); },
                 {"[dice_loss]", "received 4x3 and 3 i32"});
  for (const double smoothing : {-0.1, 1.5, std::nan("")}) {
    expect_refusal([&] { ops::cross_entropy(scores(), y, {}, {.label_smoothing = smoothing}); },
                   {"[cross_entropy]", "label_smoothing must be from 0 to 1"});
  }
}

// A plan does not know them before it runs.
TEST(LabelLosses, LabelsOfNoClassGiveNanInPlans) {
  Graph graph;
  GraphBuilder builder(graph, "test");
  const Value x(&builder, graph.add_input({4, 3}, DType::f32));
  const Value labels(&builder, graph.add_input({4}, DType::i32));
  graph.mark_output(ops::nll(x, labels).number());
  PackedParameters packed({});
  PlanRun run(std::make_shared<const Plan>(graph, std::vector<Shape>(), PlanOptions{}), packed, {});
  const Floats logs = scores().to_vector();
  const std::vector<int32_t> some{1, 2, 0, 3};
  run.set_input(0, logs.data(), logs.size() * sizeof(float));
  run.set_input(1, some.data(), some.size() * sizeof(int32_t));
  run.forward({});
  Floats found(4);
  run.get_output(0, found.data(), found.size() * sizeof(float));
  EXPECT_EQ(found[0], -logs[1]);
  EXPECT_EQ(found[1], -logs[3 + 2]);
  EXPECT_EQ(found[2], -logs[6]);
  EXPECT_TRUE(std::isnan(found[3]));
}

TEST(TripletMargin, IsThatOfPyTorch) {
  for (const Device device : devices()) {
    const Tensor a = Tensor::from(Floats{0, 1, 2, 1, 1, 1}, {2, 3}).to(device);
    const Tensor p = Tensor::from(Floats{0.5f, 1, 2, 1, 1, 1}, {2, 3}).to(device);
    const Tensor n = Tensor::from(Floats{0, 1, 2.25f, 4, 1, 1}, {2, 3}).to(device);
    Tape tape;
    tape.watch(a);
    const Tensor loss = ops::triplet_margin(a, p, n);
    expect_near(loss, {1.25, 0});
    expect_near(tape.gradient(ops::sum(loss), {a})[0],
                {-1.000004, -2.000012e-6, 1.000002, 0, 0, 0});
  }
  const Tensor x = Tensor::zeros({2, 3});
  expect_refusal(
      [&] {
        ops::triplet_margin(x, x, Tensor::zeros({2, 2}));
      },
      {"[triplet_margin]", "2x3 and 2x2"});
  expect_refusal([&] { ops::triplet_margin(x, x, x, std::nan("")); },
                 {"[triplet_margin]", "margin and epsilon must be finite", "nan"});
}

}  // namespace
}  // namespace lockstep::optest::label_losses
