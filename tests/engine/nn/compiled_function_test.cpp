#include "lockstep/engine/nn/runner/compiled_function.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/ops/ops.h"

namespace lockstep {
namespace {

Tensor numbers(const Shape& shape, uint64_t key) {
  return ops::random_normal(Tensor::zeros(shape), key, {.seed = 5});
}

std::vector<uint32_t> bits_of(const Tensor& t) {
  std::vector<uint32_t> bits;
  for (const float v : t.to_vector()) bits.push_back(std::bit_cast<uint32_t>(v));
  return bits;
}

// The same function of tensors and of values.
template <ops::Operand T>
std::vector<T> loss_of(const std::vector<T>& x) {
  const T image = ops::astype(x[1], DType::f32) / 255;
  const T each = ops::sum(ops::softplus(x[0]) - x[0] * image, {1});
  return {each, ops::logsumexp(x[0] * x[2], {1}) + 0.5 * ops::sum(ops::square(x[2]))};
}

Tensor pixels(const Shape& shape) {
  return ops::astype(ops::clip(numbers(shape, 9) * 60 + 128, 0, 255), DType::u8);
}

// First derivatives and those of their norm.
std::vector<Tensor> gradients_of(const std::function<std::vector<Tensor>()>& f,
                                 const std::vector<Tensor>& with_respect_to) {
  Tape tape;
  for (const Tensor& x : with_respect_to) tape.watch(x);
  const std::vector<Tensor> y = f();
  const Tensor scalar = ops::mean(y[0] * y[1]);
  const auto first = tape.gradient(scalar, with_respect_to, {.create_graph = true});
  const Tensor norm = ops::sum(ops::square(first[0])) + ops::sum(ops::square(first[1]));
  const auto second = tape.gradient(norm, with_respect_to);
  return {first[0], first[1], second[0], second[1]};
}

void expect_near(const Tensor& one, const Tensor& other) {
  const std::vector<float> a = one.to_vector(), b = other.to_vector();
  ASSERT_EQ(a.size(), b.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - b[i], 2);
    size += std::pow(double{b[i]}, 2);
  }
  EXPECT_LE(difference, 1e-12 * size);
}

TEST(CompiledFunction, HasTheBitsOfItsOpsOnTensors) {
  const CompiledFunction compiled(loss_of<Value>);
  for (const int64_t rows : {1, 3, 64}) {
    for (const int64_t columns : {1, 17, 784}) {
      const Tensor logits = numbers({rows, columns}, 1), scale = numbers({columns}, 2);
      const Tensor image = pixels({rows, columns});
      const std::vector<Tensor> one = loss_of<Tensor>({logits, image, scale});
      const std::vector<Tensor> other = compiled({logits, image, scale});
      ASSERT_EQ(other.size(), one.size());
      for (size_t k = 0; k < one.size(); ++k) {
        EXPECT_EQ(other[k].shape(), one[k].shape());
        EXPECT_EQ(bits_of(other[k]), bits_of(one[k])) << rows << " x " << columns;
      }
      const auto given = gradients_of(
          [&] {
            return compiled({logits, image, scale});
          },
          {logits, scale});
      const auto expected = gradients_of(
          [&] {
            return loss_of<Tensor>({logits, image, scale});
          },
          {logits, scale});
      EXPECT_EQ(bits_of(given[0]), bits_of(expected[0])) << rows << " x " << columns;
      EXPECT_EQ(bits_of(given[1]), bits_of(expected[1])) << rows << " x " << columns;
      expect_near(given[2], expected[2]);
      expect_near(given[3], expected[3]);
    }
  }
}

TEST(CompiledFunction, MultipliesAndDrawsLikeTensors) {
  const CompiledFunction compiled([](const std::vector<Value>& x) {
    const Value y = ops::matmul(x[0], x[1]);
    return std::vector<Value>{y * ops::random_normal(y, 3), ops::tanh(y)};
  });
  const Tensor a = numbers({33, 40}, 1), b = numbers({40, 25}, 2);
  const Tensor y = ops::matmul(a, b);
  for (const uint64_t iteration : {1, 2}) {
    const RandomContext step{.seed = 7, .iteration = iteration, .first_row = 5};
    const auto results = compiled({a, b}, step);
    EXPECT_EQ(bits_of(results[0]), bits_of(y * ops::random_normal(y, 3, step)));
    EXPECT_EQ(bits_of(results[1]), bits_of(ops::tanh(y)));
  }
}

TEST(CompiledFunction, ReturnsArgumentsAndOneValueTwice) {
  const CompiledFunction compiled([](const std::vector<Value>& x) {
    const Value y = x[0] + 1;
    return std::vector<Value>{x[0], y, y};
  });
  const Tensor x = numbers({2, 3}, 1);
  const auto results = compiled({x});
  EXPECT_EQ(bits_of(results[0]), bits_of(x));
  EXPECT_EQ(bits_of(results[1]), bits_of(x + 1));
  EXPECT_EQ(bits_of(results[2]), bits_of(x + 1));
  Tape tape;
  tape.watch(x);
  const auto recorded = compiled({x});
  const auto gradient = tape.gradient(ops::sum(recorded[0] + recorded[1] * recorded[2]), {x})[0];
  EXPECT_EQ(bits_of(gradient), bits_of((x + 1) + (x + 1) + 1));
}

TEST(CompiledFunction, CallsItsBodyOnceForEachShapeAndType) {
  std::atomic<int> calls = 0;
  const CompiledFunction compiled([&](const std::vector<Value>& x) {
    ++calls;
    return std::vector<Value>{ops::astype(x[0], DType::f32) * 2};
  });
  const CompiledFunction copy = compiled;
  for (int i = 0; i < 3; ++i) {
    for (const int64_t n : {1, 2}) copy({Tensor::zeros({n})});
    compiled({pixels({2})});
  }
  EXPECT_EQ(calls, 3);
  {
    Tape tape;  // that tracks an argument: it is compiled with derivatives
    const Tensor x = Tensor::zeros({1});
    tape.watch(x);
    for (int i = 0; i < 2; ++i) compiled({x});
  }
  EXPECT_EQ(calls, 4);
  // The 64 last ones are kept.
  for (int64_t n = 1; n <= 65; ++n) compiled({Tensor::zeros({n})});
  calls = 0;
  compiled({Tensor::zeros({65})});
  compiled({Tensor::zeros({2})});
  EXPECT_EQ(calls, 0);
  compiled({Tensor::zeros({1})});
  EXPECT_EQ(calls, 1);
}

TEST(CompiledFunction, IsCalledByThreadsTogether) {
  const CompiledFunction compiled(loss_of<Value>);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 20; ++i) {
        const int64_t rows = 1 + i % 3;
        const Tensor logits = numbers({rows, 50}, static_cast<uint64_t>(t));
        const Tensor scale = numbers({50}, 2), image = pixels({rows, 50});
        const auto one = loss_of<Tensor>({logits, image, scale});
        const auto other = compiled({logits, image, scale});
        wrong += bits_of(one[0]) != bits_of(other[0]) || bits_of(one[1]) != bits_of(other[1]);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

using Values = std::vector<Value>;

TEST(CompiledFunction, DifferentiatesByResultsThatOthersAreComputedFrom) {
  const CompiledFunction f([](const Values& x) {
    const Value h = ops::tanh(x[0]);
    return Values{h, ops::square(h)};
  });
  const Tensor x = numbers({4}, 1);
  Tape tape;
  tape.watch(x);
  const auto y = f({x});
  EXPECT_EQ(bits_of(tape.gradient(ops::sum(y[1]), {y[0]})[0]), bits_of(y[0] * 2));
}

TEST(CompiledFunction, LeavesOutResultsThatNothingDependsOn) {
  const CompiledFunction f([](const Values& x) {
    return Values{ops::square(x[0]), ops::log(x[0])};
  });
  const Tensor x = Tensor::zeros({2});
  Tape tape;
  tape.watch(x);
  const auto y = f({x});
  const Tensor scalar = ops::sum(y[0]);
  EXPECT_EQ(tape.gradient(scalar, {x})[0].to_vector(), std::vector<float>(2, 0));  // not 0 / 0
  const Tensor first = tape.gradient(scalar, {x}, {.create_graph = true})[0];
  EXPECT_EQ(tape.gradient(ops::sum(first), {x})[0].to_vector(), std::vector<float>(2, 2));
}

TEST(CompiledFunction, FusesNoPairsThatRoundOtherwise) {
  const CompiledFunction f(
      [](const Values& x) { return Values{ops::cross_entropy(ops::softmax(x[0]), x[1])}; });
  const Tensor logits = Tensor::from(std::vector<float>{0, 200}, {1, 2});
  const Tensor label = Tensor::from(std::vector<int32_t>{0}, {1});
  const auto expected = bits_of(ops::cross_entropy(ops::softmax(logits), label));
  EXPECT_EQ(bits_of(f({logits, label})[0]), expected);
  Tape tape;
  tape.watch(logits);
  EXPECT_EQ(bits_of(f({logits, label})[0]), expected);
}

TEST(CompiledFunction, KeepsCallsOfOneTapeApart) {
  const CompiledFunction f([](const Values& x) { return Values{ops::exp(x[0]) * x[1]}; });
  const Tensor a = numbers({3, 5}, 1), b = numbers({3, 5}, 2);
  Tape outer;
  outer.watch(b);
  Tensor second, expected;
  {
    Tape tape;
    tape.watch(a);
    const Tensor y = f({a, b})[0], z = f({y, a})[0], same = f({a, a})[0];
    const Tensor u = ops::exp(a) * b, v = ops::exp(u) * a, w = ops::exp(a) * a;
    for (int i = 0; i < 2; ++i) {  // the second time after a repeated forward run
      expect_near(tape.gradient(ops::sum(z + same), {a})[0],
                  tape.gradient(ops::sum(v + w), {a})[0]);
    }
    second = tape.gradient(ops::sum(y), {a})[0];
    expected = tape.gradient(ops::sum(u), {a})[0];
  }
  EXPECT_EQ(bits_of(outer.gradient(ops::sum(second), {b})[0]),
            bits_of(outer.gradient(ops::sum(expected), {b})[0]));
}

TEST(CompiledFunction, RefusesDerivativesOfArgumentsThatWereWatchedLater) {
  const CompiledFunction f([](const Values& x) { return Values{x[0] * x[1]}; });
  const Tensor a = numbers({3}, 1), b = numbers({3}, 2);
  Tape tape;
  tape.watch(a);
  const Tensor y = f({a, b})[0];
  EXPECT_EQ(bits_of(tape.gradient(ops::sum(y), {a})[0]), bits_of(b));
  tape.watch(b);
  try {
    tape.gradient(ops::sum(y), {b});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Unsupported& e) {
    EXPECT_STREQ(e.what(),
                 "[CompiledFunction] argument 2 has no derivative: no tape tracked it at the call");
  }
}

TEST(CompiledFunction, TakesEmptyTensors) {
  const CompiledFunction f([](const Values& x) { return Values{ops::exp(x[0]) + 1}; });
  const Tensor x = Tensor::zeros({0, 3});
  Tape tape;
  tape.watch(x);
  const Tensor y = f({x})[0];
  EXPECT_EQ(y.shape(), (Shape{0, 3}));
  EXPECT_EQ(tape.gradient(ops::sum(y), {x})[0].shape(), (Shape{0, 3}));
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(CompiledFunction, RefusesWhatItCannotCompute) {
  const Tensor x = Tensor::zeros({2, 3});
  const auto refused = [&](const CompiledFunction::Body& body, const std::vector<Tensor>& given) {
    return message_of([&] { CompiledFunction{body}(given); });
  };
  EXPECT_EQ(message_of([] { CompiledFunction(CompiledFunction::Body()); }),
            "[CompiledFunction] expected a function, received an empty one");
  EXPECT_EQ(refused([](const Values& v) { return v; }, {}),
            "[CompiledFunction] expected at least one argument");
  EXPECT_EQ(refused([](const Values& v) { return v; }, {x, Tensor()}),
            "[CompiledFunction] argument 2 is undefined");
  EXPECT_EQ(refused([](const Values&) { return Values{}; }, {x}),
            "[CompiledFunction] the function has no results");
  EXPECT_EQ(refused(
                [](const Values& v) {
                  return Values{v[0], Value()};
                },
                {x}),
            "[CompiledFunction] result 2 is undefined");
  EXPECT_EQ(refused([](const Values& v) { return Values{ops::argmax(v[0], 1)}; }, {x}),
            "[CompiledFunction] result 1 is 2 i64, expected f32");
  EXPECT_NE(refused([](const Values& v) { return Values{v[0] + v[1]}; }, {x, Tensor::zeros({2, 4})})
                .find("[add]"),
            std::string::npos);
  Value kept;
  const CompiledFunction keeps([&](const Values& v) {
    if (!kept.defined()) kept = v[0];
    return Values{kept};
  });
  std::vector<std::string> messages;
  for (const int64_t n : {2, 1}) {
    messages.push_back(message_of([&] { keeps({Tensor::zeros({n})}); }));
  }
  EXPECT_EQ(messages[0], "nothing was thrown");
  EXPECT_EQ(messages[1],
            "[CompiledFunction] result 1 was not computed from the arguments of this call");
  EXPECT_NE(refused([](const Values& v) { return Values{ops::random_normal(v[0], 3)}; }, {x})
                .find("draws random numbers, and no step is given"),
            std::string::npos);
  // It may be called again after a refusal.
  const CompiledFunction adds([](const Values& v) { return Values{v[0] + v[1]}; });
  EXPECT_THROW(adds({x, Tensor::zeros({2, 4})}), InvalidArgument);
  EXPECT_EQ(bits_of(adds({x, x})[0]), bits_of(x + x));
}

}  // namespace
}  // namespace lockstep
