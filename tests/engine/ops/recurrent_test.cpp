// What the cases of recurrent ops (recurrent_cases.cpp) do not cover: capacities, gradients through
// the last state, lengths that do not fit, and sizes of 0.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/outside_index.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest::recurrence {
namespace {

enum class Cell { lstm, gru, gru_reset_before, rnn, rnn_relu };
constexpr Cell kCells[] = {Cell::lstm, Cell::gru, Cell::gru_reset_before, Cell::rnn,
                           Cell::rnn_relu};

int64_t gates_of(Cell cell) {
  return cell == Cell::lstm ? 4 : cell == Cell::gru || cell == Cell::gru_reset_before ? 3 : 1;
}

struct Sizes {
  int64_t rows, steps, channels, hidden;
};

// All operands in their order but the lengths.
std::vector<Tensor> operands_of(Cell cell, const Sizes& s) {
  const int64_t gates = gates_of(cell) * s.hidden;
  std::vector<Tensor> all{tensor_of(random_array({s.rows, s.steps, s.channels}, 1)),
                          tensor_of(random_array({gates, s.channels}, 2)),
                          tensor_of(random_array({gates, s.hidden}, 3)),
                          tensor_of(random_array({gates}, 4))};
  if (gates_of(cell) == 3) all.push_back(tensor_of(random_array({gates}, 5)));
  all.push_back(tensor_of(random_array({s.rows, s.hidden}, 6)));
  if (cell == Cell::lstm) all.push_back(tensor_of(random_array({s.rows, s.hidden}, 7)));
  return all;
}

template <class T>
std::vector<T> apply(Cell cell, bool reverse, const std::vector<T>& o, const T& lengths) {
  if (cell == Cell::lstm) {
    const auto r = ops::lstm(o[0], lengths, o[1], o[2], o[3], o[4], o[5], {.reverse = reverse});
    return {r.y, r.h, r.c};
  }
  if (gates_of(cell) == 3) {
    const auto r = ops::gru(o[0], lengths, o[1], o[2], o[3], o[4], o[5],
                            {.reset_after = cell == Cell::gru, .reverse = reverse});
    return {r.y, r.h};
  }
  const auto activation = cell == Cell::rnn ? ops::RnnActivation::tanh : ops::RnnActivation::relu;
  const auto r = ops::rnn(o[0], lengths, o[1], o[2], o[3], o[4],
                          {.activation = activation, .reverse = reverse});
  return {r.y, r.h};
}

Tensor lengths_of(const std::vector<int32_t>& lengths) {
  return Tensor::from(lengths, {static_cast<int64_t>(lengths.size())});
}

// The first `steps` steps of n x more x width.
Array cut(const Array& x, int64_t steps) {
  const int64_t n = x.dim(0), more = x.dim(1), width = x.dim(2);
  Array result({n, steps, width});
  for (int64_t i = 0; i < result.count(); ++i) {
    const int64_t row = i / (steps * width);
    result[i] = x[row * more * width + i % (steps * width)];
  }
  return result;
}

// Outputs, and gradients of a sum over all outputs with random weights. Those of steps are cut.
struct Results {
  std::vector<Array> values;
  Array rest;  // y and its x's gradient at further steps
};

Results results_of(Cell cell, bool reverse, std::vector<Tensor> operands, const Tensor& lengths,
                   int64_t steps) {
  Tape tape;
  for (const Tensor& t : operands) tape.watch(t);
  const std::vector<Tensor> out = apply(cell, reverse, operands, lengths);
  Tensor total;
  for (size_t k = 0; k < out.size(); ++k) {
    // The same weights for the same steps of each capacity.
    Array weights = random_array(
        {out[k].shape()[0], 64, out[k].shape().rank() == 3 ? out[k].shape()[2] : out[k].shape()[1]},
        20 + k);
    weights = cut(weights, k == 0 ? out[0].shape()[1] : 1);
    weights.dims = out[k].shape().dims();
    const Tensor term = weighted_sum(out[k], weights);
    total = total.defined() ? ops::add({total, term}) : term;
  }
  Results results;
  const auto add_steps = [&](const Array& all) {
    results.values.push_back(cut(all, steps));
    for (int64_t i = 0; i < all.count(); ++i) {
      if (i / all.dim(2) % all.dim(1) >= steps) results.rest.values.push_back(all[i]);
    }
  };
  add_steps(array_of(out[0]));
  for (size_t k = 1; k < out.size(); ++k) results.values.push_back(array_of(out[k]));
  const std::vector<Tensor> diffs = tape.gradient(total, operands);
  add_steps(array_of(diffs[0]));
  for (size_t k = 1; k < diffs.size(); ++k) results.values.push_back(array_of(diffs[k]));
  return results;
}

TEST(Recurrence, TheCapacityChangesNoBit) {
  const std::vector<int32_t> lengths{4, 0, 7, 1, 7, 3};
  for (const Cell cell : kCells) {
    for (const bool reverse : {false, true}) {
      SCOPED_TRACE(static_cast<int>(cell));
      const Sizes sizes{6, 50, 5, 19};
      std::vector<Tensor> operands = operands_of(cell, sizes);
      const Array x = array_of(operands[0]);
      std::vector<Results> of_capacity;
      for (const int64_t capacity : {7, 8, 50}) {
        operands[0] = tensor_of(cut(x, capacity));
        of_capacity.push_back(results_of(cell, reverse, operands, lengths_of(lengths), 7));
      }
      for (const Results& other : of_capacity) {
        ASSERT_EQ(other.values.size(), of_capacity[0].values.size());
        for (size_t i = 0; i < other.values.size(); ++i) {
          EXPECT_EQ(other.values[i].values, of_capacity[0].values[i].values) << "result " << i;
        }
        for (const double v : other.rest.values) EXPECT_EQ(v, 0);
      }
      EXPECT_TRUE(of_capacity[0].rest.values.empty());
      EXPECT_FALSE(of_capacity[2].rest.values.empty());
    }
  }
}

// What lies at steps that are not valid has no effect, not even NaN.
TEST(Recurrence, InvalidStepsAreNotRead) {
  const Sizes sizes{3, 4, 2, 17};
  const std::vector<int32_t> lengths{2, 4, 0};
  for (const Cell cell : kCells) {
    SCOPED_TRACE(static_cast<int>(cell));
    std::vector<Tensor> operands = operands_of(cell, sizes);
    const Results expected = results_of(cell, false, operands, lengths_of(lengths), 4);
    std::vector<float> x = operands[0].to_vector();
    for (size_t i = 0; i < x.size(); ++i) {
      if (static_cast<int32_t>(i / 2 % 4) >= lengths[i / 8]) x[i] = std::nanf("");
    }
    operands[0] = Tensor::from(x, {3, 4, 2});
    const Results seen = results_of(cell, false, operands, lengths_of(lengths), 4);
    for (size_t i = 0; i < seen.values.size(); ++i) {
      EXPECT_EQ(seen.values[i].values, expected.values[i].values) << "result " << i;
    }
  }
}

// The same of second derivatives, whose ops see every step.
TEST(Recurrence, InvalidStepsReachNoSecondDerivative) {
  const Sizes sizes{2, 3, 2, 3};
  const std::vector<int32_t> lengths{1, 3};
  for (const Cell cell : kCells) {
    SCOPED_TRACE(static_cast<int>(cell));
    const auto second = [&](float padding) {
      std::vector<Tensor> operands = operands_of(cell, sizes);
      std::vector<float> x = operands[0].to_vector();
      for (size_t i = 2; i < 6; ++i) x[i] = padding;
      operands[0] = Tensor::from(x, {2, 3, 2});
      Tape tape;
      for (const Tensor& t : operands) tape.watch(t);
      const Tensor y = apply(cell, false, operands, lengths_of(lengths))[0];
      Tensor total = Tensor::scalar(0);
      for (const Tensor& g :
           tape.gradient(ops::sum(ops::square(y)), operands, {.create_graph = true})) {
        if (g.defined()) total = total + ops::sum(ops::square(g));
      }
      std::vector<float> all;
      for (const Tensor& g : tape.gradient(total, operands)) {
        if (!g.defined()) continue;
        const std::vector<float> values = g.to_vector();
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    };
    const std::vector<float> expected = second(0.5f);
    EXPECT_FALSE(expected.empty());
    EXPECT_EQ(second(std::nanf("")), expected);
  }
}

// The derivatives through y, h and c are those of the op's parts, which check by differences.
TEST(Recurrence, GradientsFlowBackFromTheLastStates) {
  const Sizes sizes{4, 5, 3, 6};
  const std::vector<int32_t> lengths{3, 0, 5, 1};
  for (const Cell cell : {Cell::lstm, Cell::gru, Cell::gru_reset_before, Cell::rnn}) {
    for (const bool reverse : {false, true}) {
      const std::vector<Tensor> operands = operands_of(cell, sizes);
      const size_t outputs = cell == Cell::lstm ? 3 : 2;
      for (size_t k = 1; k < outputs; ++k) {
        SCOPED_TRACE("cell " + std::to_string(static_cast<int>(cell)) + ", output " +
                     std::to_string(k));
        const Array weights = random_array({4, 6}, 30);
        const auto value = [&](const std::vector<Tensor>& at) {
          const Array out = array_of(apply(cell, reverse, at, lengths_of(lengths))[k]);
          double total = 0;
          for (int64_t i = 0; i < out.count(); ++i) total += out[i] * weights[i];
          return total;
        };
        Tape tape;
        for (const Tensor& t : operands) tape.watch(t);
        const Tensor out = apply(cell, reverse, operands, lengths_of(lengths))[k];
        const std::vector<Tensor> diffs = tape.gradient(weighted_sum(out, weights), operands);
        for (size_t i = 0; i < operands.size(); ++i) {
          const Array direction = random_array(operands[i].shape().dims(), 40 + i);
          const Array x = array_of(operands[i]), dx = array_of(diffs[i]);
          double along = 0;
          for (int64_t j = 0; j < x.count(); ++j) along += dx[j] * direction[j];
          const auto moved = [&](double step) {
            std::vector<Tensor> there = operands;
            Array to = x;
            for (int64_t j = 0; j < x.count(); ++j) to[j] += step * direction[j];
            there[i] = tensor_of(to);
            return value(there);
          };
          constexpr double h = 0x1p-7;
          EXPECT_NEAR((moved(h) - moved(-h)) / (2 * h), along, 2e-3 * (1 + std::abs(along)))
              << "operand " << i;
        }
      }
    }
  }
}

TEST(Recurrence, LengthsThatDoNotFitAreRefused) {
  const std::vector<Tensor> o = operands_of(Cell::lstm, {3, 4, 2, 5});
  for (const int32_t length : {-1, 5, 2000000000}) {
    expect_refusal(
        [&] {
          apply(Cell::lstm, false, o, lengths_of({4, 0, length}));
        },
        {"[lstm] length", std::to_string(length).c_str(), "of observation 2", "3x4x2"});
  }
  try {
    apply(Cell::lstm, false, o, lengths_of({4, 9, 1}));
    FAIL() << "nothing was thrown";
  } catch (const ops::OutsideIndex& error) {
    EXPECT_EQ(error.row(), 1);
    EXPECT_EQ(error.rows(), 3);
    EXPECT_NE(std::string(error.what()).find("0 to 4"), std::string::npos) << error.what();
  }
}

TEST(Recurrence, OperandsThatDoNotFitAreNamed) {
  const Sizes sizes{3, 4, 2, 5};
  const Tensor lengths = lengths_of({1, 2, 3});
  for (const Cell cell : kCells) {
    const std::vector<Tensor> o = operands_of(cell, sizes);
    for (size_t i = 0; i < o.size(); ++i) {
      std::vector<Tensor> bad = o;
      bad[i] = Tensor::zeros({7});
      expect_refusal([&] { apply(cell, false, bad, lengths); }, {"expected", "received 7"});
    }
    expect_refusal([&] { apply(cell, false, o, lengths_of({1, 2})); }, {"lengths of 3"});
    expect_refusal([&] { apply(cell, false, o, Tensor::zeros({3})); }, {"i32"});
  }
  expect_refusal(
      [&] {
        std::vector<Tensor> o = operands_of(Cell::lstm, sizes);
        o[2] = Tensor::zeros({0, 0});
        apply(Cell::lstm, false, o, lengths);
      },
      {"recurrent weights of 4 h x h"});
}

TEST(Recurrence, SizesOfZero) {
  for (const Cell cell : kCells) {
    for (const Sizes& s : {Sizes{0, 3, 2, 5}, Sizes{2, 0, 2, 5}, Sizes{2, 3, 0, 5}}) {
      SCOPED_TRACE(std::to_string(s.rows) + " " + std::to_string(s.steps));
      const std::vector<Tensor> o = operands_of(cell, s);
      const std::vector<int32_t> lengths(static_cast<size_t>(s.rows), s.steps > 0 ? 2 : 0);
      Tape tape;
      for (const Tensor& t : o) tape.watch(t);
      const std::vector<Tensor> out = apply(cell, false, o, lengths_of(lengths));
      EXPECT_EQ(out[0].shape(), (Shape{s.rows, s.steps, 5}));
      const std::vector<Tensor> diffs = tape.gradient(ops::sum(out[1]), o);
      for (size_t i = 0; i < o.size(); ++i) {
        EXPECT_EQ(diffs[i].shape(), o[i].shape());
        for (const float v : diffs[i].to_vector()) EXPECT_TRUE(std::isfinite(v));
      }
      if (s.steps > 0) continue;
      const size_t h0 = gates_of(cell) == 3 ? 5 : 4;
      EXPECT_EQ(out[1].to_vector(), o[h0].to_vector());
      EXPECT_EQ(diffs[h0].to_vector(), std::vector<float>(10, 1.0f));
      EXPECT_EQ(diffs[1].to_vector(), std::vector<float>(diffs[1].to_vector().size(), 0.0f));
    }
  }
}

// In a kernel the lengths are not known before it runs: a row whose length does not fit is NaN, the
// others are as they were.
TEST(Recurrence, RowsWhoseLengthDoesNotFitAreNotNumbers) {
  for (const Cell cell : kCells) {
    const std::vector<Tensor> o = operands_of(cell, {3, 4, 2, 5});
    const std::vector<Tensor> expected = apply(cell, false, o, lengths_of({4, 0, 2}));
    std::vector<Tensor> all = o;
    all.insert(all.begin() + 1, lengths_of({4, 5, 2}));
    const OpPtr op = cell == Cell::lstm       ? ops::make_lstm({})
                     : gates_of(cell) == 3    ? ops::make_gru({.reset_after = cell == Cell::gru})
                     : cell == Cell::rnn_relu ? ops::make_rnn({ops::RnnActivation::relu})
                                              : ops::make_rnn({});
    const std::vector<Tensor> seen = apply_op(op, all);
    for (size_t k = 0; k < seen.size(); ++k) {
      const std::vector<float> a = seen[k].to_vector(), b = expected[k].to_vector();
      const size_t width = a.size() / 3;
      for (size_t i = 0; i < a.size(); ++i) {
        if (i / width == 1) {
          EXPECT_TRUE(std::isnan(a[i]));
        } else {
          EXPECT_EQ(a[i], b[i]);
        }
      }
    }
  }
}

// Values beyond what gates distinguish; infinities; NaN reaches its row alone.
TEST(Recurrence, LargeAndSpecialValues) {
  for (const Cell cell : {Cell::lstm, Cell::gru, Cell::gru_reset_before, Cell::rnn}) {
    std::vector<Tensor> o = operands_of(cell, {3, 2, 1, 17});
    constexpr float infinity = std::numeric_limits<float>::infinity();
    o[0] = Tensor::from(std::vector<float>{1e30f, -1e30f, infinity, infinity, std::nanf(""), 0},
                        {3, 2, 1});
    const std::vector<Tensor> out = apply(cell, false, o, lengths_of({2, 2, 2}));
    const std::vector<float> h = out[1].to_vector();
    for (size_t i = 0; i < 34; ++i) EXPECT_TRUE(std::isfinite(h[i])) << i;
    for (size_t i = 34; i < 51; ++i) EXPECT_TRUE(std::isnan(h[i])) << i;
  }
}

}  // namespace
}  // namespace lockstep::optest::recurrence
