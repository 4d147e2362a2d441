// Kernel::rows_apart: the bits of a row's results do not depend on other rows. Shards are computed
// together on this promise, so a kernel that breaks it breaks the law.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/pointwise.h"
#include "lockstep/engine/ops/reduce.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {
namespace {

Array rows_of(const Array& all, int64_t first, int64_t count) {
  Array rows = all;
  const auto width = static_cast<std::ptrdiff_t>(all.count() / all.dims[0]);
  rows.dims[0] = count;
  rows.values.assign(all.values.begin() + first * width,
                     all.values.begin() + (first + count) * width);
  return rows;
}

// Operands that have a row for each observation; the others are parameters.
bool has_rows(const Case& c, size_t i) {
  const bool weighs = c.op->type() == "fully_connected" || c.op->type() == "normalize_images";
  return i == 0 || (!weighs && !c.inputs[i].value.dims.empty() &&
                    c.inputs[i].value.dims[0] == c.inputs[0].value.dims[0]);
}

bool promises(const Case& c) {
  std::vector<TensorSpec> specs;
  for (const Input& input : c.inputs)
    specs.push_back({shape_of(input.value), input.dtype, nullptr});
  return c.op->compile(kernels::table_for({}), specs).rows_apart;
}

// Bits of the outputs and gradients of rows [first, first + count), one string for each.
std::vector<std::string> results_of(const Case& c, const Array& dy, int64_t first, int64_t count) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const Input& input = c.inputs[i];
    const Array value = has_rows(c, i) ? rows_of(input.value, first, count) : input.value;
    inputs.push_back(tensor_of(value, input.dtype));
  }
  RandomContext step = c.step;
  step.first_row += first;
  Tape tape;
  tape.watch(inputs);
  std::vector<Tensor> results = apply_op(c.op, inputs, step);
  std::vector<Tensor> asked;
  for (size_t i = 0; i < inputs.size() && c.backward; ++i) {
    if (c.inputs[i].gradient && has_rows(c, i)) asked.push_back(inputs[i]);
  }
  if (!asked.empty()) {
    const Tensor scalar = apply_op(make_weighted_sum(rows_of(dy, first, count)), {results[0]})[0];
    for (const Tensor& gradient : tape.gradient(scalar, asked)) results.push_back(gradient);
  }
  std::vector<std::string> bits;
  for (const Tensor& result : results) {
    const Tensor plain = result.to_row_major();
    bits.emplace_back(static_cast<const char*>(plain.raw()), plain.bytes());
  }
  return bits;
}

// Of ops whose kernels have a forward pass alone.
std::vector<Case> forward_cases() {
  const auto array = [](std::vector<int64_t> dims) { return random_array(std::move(dims), 3); };
  const auto of_one = [&](OpPtr op) {
    Case c;
    c.op = std::move(op);
    c.inputs = {{array({5, 3, 7})}};
    return c;
  };
  Case indexed = of_one(ops::make_take(2, true));
  Array indices({5, 3, 4});
  for (int64_t i = 0; i < indices.count(); ++i) indices[i] = static_cast<double>(i % 7);
  indexed.inputs.push_back({indices, DType::i32, false});
  Case product = of_one(ops::make_matmul(false, true));
  product.inputs.push_back({array({5, 2, 7})});
  Case difference = of_one(ops::make_pointwise(kernels::Opcode::subtract));
  difference.inputs.push_back({random_array({5, 3, 7}, 4)});
  return {of_one(ops::make_pointwise(kernels::Opcode::exp)),
          of_one(ops::make_reduce(kernels::Reduction::sum, {1, 2}, false)),
          of_one(ops::make_reduce(kernels::Reduction::maximum, {1}, true)),
          of_one(ops::make_cumsum(1, false)),
          of_one(ops::make_products_of_others()),
          of_one(ops::make_arg_reduce(2, false, false)),
          of_one(ops::make_random_uniform(4)),
          of_one(ops::make_astype(DType::i32)),
          indexed,
          product,
          difference};
}

TEST(RowsApart, IsTrueOfEveryKernelThatPromisesIt) {
  std::set<std::string> tested;
  std::vector<Case> cases = offered_cases({});
  for (Case& c : forward_cases()) cases.push_back(std::move(c));
  if (kernels::table_for({}).bf16) {
    for (const Case& c : offered_cases({})) {
      if (takes_narrow(c)) cases.push_back(in_narrow(DType::bf16, c));
    }
  }
  for (const Case& c : cases) {
    if (c.inputs.empty() || c.inputs[0].value.dims.empty()) continue;
    const int64_t n = c.inputs[0].value.dims[0];
    if (n < 2 || !promises(c)) continue;
    const std::string name =
        std::string(c.op->type()) + (c.inputs[0].dtype == DType::bf16 ? " in bf16" : "");
    SCOPED_TRACE(name + ", " + c.name);
    std::vector<TensorSpec> specs;
    for (const Input& input : c.inputs) {
      specs.push_back({shape_of(input.value), input.dtype, nullptr});
    }
    const Array dy = random_array(c.op->infer(specs)[0].shape.dims(), 5);
    const std::vector<std::string> together = results_of(c, dy, 0, n);
    for (const int64_t step : {int64_t{1}, (n + 1) / 2}) {
      std::vector<std::string> parts(together.size());
      for (int64_t first = 0; first < n; first += step) {
        const auto some = results_of(c, dy, first, std::min(step, n - first));
        for (size_t i = 0; i < parts.size(); ++i) parts[i] += some[i];
      }
      EXPECT_EQ(parts, together) << step << " rows at a time";
    }
    tested.emplace(name);
  }
  if (kernels::table_for({}).bf16) {
    EXPECT_TRUE(tested.count("fully_connected in bf16"));
  }
  for (const char* type : {"fully_connected",
                           "relu",
                           "dropout",
                           "softmax",
                           "softmax_cross_entropy",
                           "exp",
                           "subtract",
                           "sum",
                           "max",
                           "cumsum",
                           "prod",
                           "argmax",
                           "random_uniform",
                           "astype",
                           "gather",
                           "matmul",
                           "attention",
                           "ctc_loss",
                           "lstm",
                           "gru",
                           "rnn"}) {
    EXPECT_TRUE(tested.count(type)) << type;
  }
}

}  // namespace
}  // namespace lockstep::optest
