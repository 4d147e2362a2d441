#include "lockstep/engine/autograd/tape.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

using Numbers = std::vector<float>;

Tensor from(Numbers values) {
  return Tensor::from(std::span<const float>(values), Shape{static_cast<int64_t>(values.size())});
}

// x * x, elementwise, because the mean is over one element per row.
Tensor squares(const Tensor& x) { return ops::mean_squared_error(x, Tensor::zeros(x.shape())); }

TEST(Tape, GivesTheGradientOfAScalar) {
  const Tensor x = from({1, -2, 3});
  Tape tape;
  tape.watch(x);
  const Tensor loss = ops::sum(squares(x));
  EXPECT_EQ(loss.item(), 14);
  EXPECT_EQ(tape.gradient(loss, {x})[0].to_vector(), (Numbers{2, -4, 6}));
}

TEST(Tape, AddsTheGradientsOfATensorUsedTwice) {
  const Tensor x = from({1, -2, 3});
  Tape tape;
  tape.watch(x);
  const Tensor twice = ops::add({x, x});                // in one op
  const Tensor y = ops::add({twice, ops::relu(x), x});  // and in several ops
  EXPECT_EQ(tape.gradient(ops::sum(y), {x})[0].to_vector(), (Numbers{4, 3, 4}));
}

TEST(Tape, UsesOneTensorAsBothInputsOfAnOp) {
  const Tensor x = from({1, 2, 3});
  Tape tape;
  tape.watch(x);
  // (x - x)^2: both gradients are 0; x against a constant: 2 (x - c).
  EXPECT_EQ(tape.gradient(ops::sum(ops::mean_squared_error(x, x)), {x})[0].to_vector(),
            (Numbers{0, 0, 0}));
  // A product with itself: weights and input of one op.
  const Tensor m = Tensor::from(std::span<const float>(Numbers{1, 2, 3, 4}), {2, 2});
  tape.watch(m);
  const Tensor product = ops::fully_connected(m, m, {});  // m m^T
  EXPECT_EQ(product.to_vector(), (Numbers{5, 11, 11, 25}));
  EXPECT_EQ(tape.gradient(ops::sum(product), {m})[0].to_vector(), (Numbers{8, 12, 8, 12}));
}

TEST(Tape, RecordsReshapedAsAnOp) {
  const Tensor x = from({1, -2, 3, 4});
  Tape outer, tape;
  outer.watch(x);
  tape.watch(x);
  const Tensor square = x.reshaped({2, 2});
  const Tensor again = squares(square.reshaped({4}));
  for (Tape* t : {&tape, &outer}) {
    const auto gradients = t->gradient(ops::sum(again.reshaped({4, 1})), {x, square});
    EXPECT_EQ(gradients[0].shape(), x.shape());
    EXPECT_EQ(gradients[0].to_vector(), (Numbers{2, -4, 6, 8}));
    EXPECT_EQ(gradients[1].shape(), square.shape());
  }
  // Elsewhere it stays a view.
  const Tensor other = from({1, 2});
  EXPECT_EQ(other.reshaped({2, 1}).raw(), other.raw());
  EXPECT_FALSE(tape.reads(other));
}

TEST(Tape, ReshapedTensorsDoNotOwnThoseBefore) {
  Tensor x = from({1, -2, 3, 4});
  // A chain of owners this long would exhaust the stack when it is destroyed.
  for (int i = 0; i < 300'000; ++i) x = x.reshaped(i % 2 == 0 ? Shape{2, 2} : Shape{4});
  EXPECT_EQ(x.to_vector(), (Numbers{1, -2, 3, 4}));
}

TEST(Tape, GivesGradientsOfIntermediateTensors) {
  const Tensor x = from({1, -2, 3});
  Tape tape;
  tape.watch(x);
  const Tensor h = ops::relu(x), square = squares(h), loss = ops::sum(square);
  const auto gradients = tape.gradient(loss, {h, x, square, loss});
  EXPECT_EQ(gradients[0].to_vector(), (Numbers{2, 0, 6}));
  EXPECT_EQ(gradients[1].to_vector(), (Numbers{2, 0, 6}));
  EXPECT_EQ(gradients[2].to_vector(), (Numbers{1, 1, 1}));
  EXPECT_EQ(gradients[3].to_vector(), (Numbers{1}));
  EXPECT_EQ(gradients[3].shape().rank(), 0);
}

TEST(Tape, GivesZerosForTensorsThatTheScalarDoesNotDependOn) {
  const Tensor x = from({1, 2}), other = Tensor::zeros({3, 1}), constant = from({4, 5});
  Tape tape;
  tape.watch(std::vector<Tensor>{x, other});
  const Tensor unused = ops::relu(other);
  const Tensor loss = ops::sum(ops::add({x, constant}));
  const auto gradients = tape.gradient(loss, {other, unused, x});
  EXPECT_EQ(gradients[0].to_vector(), (Numbers{0, 0, 0}));
  EXPECT_EQ(gradients[0].shape(), (Shape{3, 1}));
  EXPECT_EQ(gradients[1].to_vector(), (Numbers{0, 0, 0}));
  EXPECT_EQ(gradients[2].to_vector(), (Numbers{1, 1}));
}

TEST(Tape, TwoRequestsGiveTheSameGradients) {
  const Tensor x = optest::tensor_of(optest::random_array({2, 11, 5, 5}, 1));
  const Tensor w = optest::tensor_of(optest::random_array({22, 11, 3, 3}, 2));
  Tape tape;
  tape.watch(x);
  tape.watch(w);
  const Tensor y = ops::relu(ops::convolution2d(x, w, {}, {.padding = same_padding}));
  const Tensor loss = ops::mean(y);
  const auto once = tape.gradient(loss, {x, w});
  const Tensor other = tape.gradient(ops::sum(y), {w})[0];  // another scalar in between
  const auto again = tape.gradient(loss, {w, x, w});
  EXPECT_EQ(again[1].to_vector(), once[0].to_vector());
  EXPECT_EQ(again[0].to_vector(), once[1].to_vector());
  EXPECT_EQ(again[2].to_vector(), once[1].to_vector());
  EXPECT_NE(other.to_vector(), once[1].to_vector());
  EXPECT_NE(once[1].to_vector(), Numbers(once[1].to_vector().size(), 0));
}

TEST(Tape, GivesGradientsThatLaterOnesDoNotOverwrite) {
  const Tensor x = from({1, 2});
  Tape tape;
  tape.watch(x);
  const Tensor loss = ops::sum(ops::add({x, ops::relu(x)}));
  const Tensor first = tape.gradient(loss, {x})[0];
  first.data<float>()[0] = 99;
  EXPECT_EQ(tape.gradient(loss, {x})[0].to_vector(), (Numbers{2, 2}));
}

TEST(Tape, RecordsOnAllThatWatch) {
  const Tensor x = from({3});
  Tape outer;
  outer.watch(x);
  EXPECT_EQ(Tape::current(), &outer);
  const Tensor before = squares(x);
  Tensor inside, inner_gradient;
  {
    Tape inner;
    EXPECT_EQ(Tape::current(), &inner);
    inner.watch(x);
    inside = squares(x);
    inner_gradient = inner.gradient(ops::sum(inside), {x})[0];
  }
  EXPECT_EQ(Tape::current(), &outer);
  EXPECT_EQ(inner_gradient.to_vector(), (Numbers{6}));
  // Operations recorded while an inner tape exists also count for the outer one.
  const Tensor loss = ops::sum(ops::add({before, inside, x}));
  EXPECT_EQ(outer.gradient(loss, {x})[0].to_vector(), (Numbers{13}));
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& e) {
    return std::string("argument: ") + e.what();
  } catch (const Unsupported& e) {
    return std::string("unsupported: ") + e.what();
  }
  return "none";
}

Tensor cube(const Tensor& x) { return ops::multiply({x, x, x}); }

TEST(Tape, RefusesDerivativesOfGradients) {
  const Tensor x = from({3});
  Tape tape;
  tape.watch(x);
  const Tensor slope = tape.gradient(ops::sum(cube(x)), {x})[0];
  EXPECT_EQ(slope.to_vector(), (Numbers{27}));
  // The gradient itself, values computed from it, and a loss with it as one term.
  const Tensor penalty = ops::sum(ops::multiply({slope, slope}));
  const Tensor loss = ops::sum(ops::add({cube(x), ops::relu(slope)}));
  for (const Tensor& scalar : {slope, penalty, loss}) {
    const std::string message = refusal([&] { tape.gradient(scalar, {x}); });
    EXPECT_EQ(message.find("unsupported: [tape] the scalar was computed from gradients"), 0u)
        << message;
  }
  // A clone is a constant.
  const Tensor constant = slope.clone();
  const Tensor weighed = ops::sum(ops::multiply({constant, x}));
  EXPECT_EQ(tape.gradient(weighed, {x})[0].to_vector(), (Numbers{27}));
}

TEST(Tape, DifferentiatesAnInnerTapesGradients) {
  const Tensor x = from({3}), w = from({2}), apart = from({5});
  Tape outer;
  outer.watch(w);
  Tensor slope, other;
  {
    Tape inner;
    inner.watch(std::vector<Tensor>{x, apart});
    slope = inner.gradient(ops::sum(ops::multiply({cube(x), w})), {x})[0];
    other = inner.gradient(ops::sum(cube(apart)), {apart})[0];
  }
  EXPECT_EQ(slope.to_vector(), (Numbers{54}));
  const Tensor score = ops::multiply({w, w});
  const Tensor loss = ops::sum(ops::add({score, slope}));
  // w^2 + 3 x^2 w.
  EXPECT_EQ(outer.gradient(loss, {w})[0].to_vector(), (Numbers{4 + 27}));
  // This loss does not depend on the inner tape's gradient with respect to w.
  const Tensor fine = ops::sum(ops::add({score, other}));
  EXPECT_EQ(outer.gradient(fine, {w})[0].to_vector(), (Numbers{4}));
}

TEST(Tape, DifferentiatesItsOwnGradientsIfTheyAreRecorded) {
  const Tensor x = from({3});
  Tape tape;
  tape.watch(x);
  const GradientOptions recorded{.create_graph = true};
  Tensor y = ops::multiply({cube(x), cube(x)});  // x^6
  const Numbers derivatives{6 * 243, 30 * 81, 120 * 27, 360 * 9, 720 * 3, 720};
  for (const float derivative : derivatives) {
    y = tape.gradient(ops::sum(y), {x}, recorded)[0];
    EXPECT_EQ(y.to_vector(), (Numbers{derivative}));
  }
}

TEST(Tape, RefusesWhatItHasNotSeen) {
  const Tensor x = from({1, 2}), late = from({1, 2});
  Tape tape;
  tape.watch(x);
  const Tensor early = ops::sum(squares(late));
  tape.watch(late);
  const Tensor loss = ops::sum(squares(x));
  EXPECT_NE(refusal([&] { tape.gradient(early, {late}); }).find("not computed from"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              tape.gradient(loss, {x, from({1, 2})});
            }).find("tensor 2 (2 f32)"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              tape.gradient(loss, {x, Tensor()});
            }).find("tensor 2, for which"),
            std::string::npos);
  const std::vector<uint8_t> bytes{1, 2};
  const Tensor pixels = Tensor::from(std::span<const uint8_t>(bytes), {2});
  tape.watch(pixels);
  EXPECT_NE(refusal([&] { tape.gradient(loss, {pixels}); }).find("integer elements"),
            std::string::npos);
  Tensor elsewhere;
  std::thread([&] { elsewhere = ops::sum(squares(x)); }).join();
  EXPECT_NE(refusal([&] { tape.gradient(elsewhere, {x}); }).find("not computed from"),
            std::string::npos);
}

TEST(Tape, RecordsOnlyWatchedTensors) {
  const Tensor x = from({1, 2});
  Tape tape;
  const Tensor early = ops::relu(x);
  tape.watch(x);
  EXPECT_THROW(tape.gradient(ops::sum(early), {x}), InvalidArgument);
  EXPECT_EQ(tape.gradient(ops::sum(ops::relu(x)), {x})[0].to_vector(), (Numbers{1, 1}));
}

TEST(Tape, RecordsOnItsOwnThreadOnly) {
  Tape tape;
  std::thread([] { EXPECT_EQ(Tape::current(), nullptr); }).join();
  EXPECT_EQ(Tape::current(), &tape);
}

TEST(Tape, KeepsWhatItNeedsWhenTheCallerForgets) {
  const Tensor x = optest::tensor_of(optest::random_array({2, 3, 6, 6}, 3));
  Tape tape;
  tape.watch(x);
  Tensor loss;
  {
    const Tensor w = optest::tensor_of(optest::random_array({7, 3, 3, 3}, 4));
    loss = ops::sum(ops::max_pooling2d(ops::relu(ops::convolution2d(x, w, {})), {}));
  }
  const auto first = tape.gradient(loss, {x})[0].to_vector();
  const Tensor noise = Tensor::full({2, 7, 4, 4}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(tape.gradient(loss, {x})[0].to_vector(), first);
}

TEST(Tape, RefusesGradientsOfWhatIsNotAScalar) {
  const Tensor x = from({1, 2});
  Tape tape;
  tape.watch(x);
  const auto message = [&](const Tensor& t) -> std::string {
    try {
      tape.gradient(t, {x});
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message(ops::relu(x)).find("[tape]"), 0u);
  EXPECT_NE(message(ops::relu(x)).find("2 f32"), std::string::npos);
  EXPECT_NE(message(Tensor()).find("undefined"), std::string::npos);
  EXPECT_NE(message(Tensor::zeros({}, DType::i32)).find("i32"), std::string::npos);
  // One element is enough, for any rank.
  const Tensor one = Tensor::full({1, 1}, 2);
  tape.watch(one);
  EXPECT_EQ(tape.gradient(squares(one), {one})[0].to_vector(), (Numbers{4}));
}

// For users who write ops themselves.
TEST(Tape, RunsBackwardFunctionsThatAreRecorded) {
  const Tensor x = from({1, 2});
  Tape tape;
  tape.watch(x);
  EXPECT_TRUE(tape.tracks(std::vector<Tensor>{Tensor(), x}));
  EXPECT_FALSE(tape.tracks(std::vector<Tensor>{Tensor(), from({1})}));
  const Tensor constant = from({5, 5}), y = from({10, 20});  // y = 10 x without an op
  std::vector<bool> asked;
  tape.record({x, constant, Tensor()}, {y},
              [&](const std::vector<Tensor>& dy, const std::vector<bool>& wanted) {
                asked = wanted;
                Numbers d = dy[0].to_vector();
                for (float& v : d) v *= 10;
                return std::vector<Tensor>{from(d), Tensor(), Tensor()};
              });
  EXPECT_EQ(tape.gradient(ops::sum(y), {x})[0].to_vector(), (Numbers{10, 10}));
  EXPECT_EQ(asked, (std::vector<bool>{true, false, false}));
}

TEST(Tape, WhatBackwardFunctionsRecordWhileTheyRunDoesNotDisturbTheGradient) {
  for (int length = 1; length <= 40; ++length) {
    Tape tape;
    const Tensor x = from({3, 5});
    tape.watch(x);
    Tensor y = x;
    for (int i = 0; i < length; ++i) {  // each is the identity, without an op
      const Tensor next = from(y.to_vector());
      tape.record({y}, {next}, [x](const std::vector<Tensor>& dy, const std::vector<bool>&) {
        for (int k = 0; k < 3; ++k) ops::relu(x);  // recorded, as x is watched
        return std::vector<Tensor>{dy[0]};
      });
      y = next;
    }
    EXPECT_EQ(tape.gradient(ops::sum(y), {x})[0].to_vector(), (Numbers{1, 1})) << length;
  }
}

TEST(Convert, SeesRowMajorMemoryAsAnotherShapeAndKeepsEveryElement) {
  const Tensor x = optest::tensor_of(optest::random_array({2, 11, 5, 3}, 5));
  const TensorSpec blocked = optest::image_layout({}, x.shape());
  const Tensor there = convert(x, blocked);
  EXPECT_EQ(there.spec(), blocked);
  EXPECT_EQ(there.to_vector(), x.to_vector());
  const Tensor flat = convert(there, {Shape{2, 165}, DType::f32, nullptr});
  EXPECT_EQ(flat.shape(), (Shape{2, 165}));
  EXPECT_EQ(flat.to_vector(), x.to_vector());
  EXPECT_EQ(convert(flat, blocked).to_vector(), x.to_vector());
  EXPECT_EQ(convert(x, x.spec()).id(), x.id());
}

}  // namespace
}  // namespace lockstep
