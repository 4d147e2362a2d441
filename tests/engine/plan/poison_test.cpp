// The previous contents of memory must not matter. Every op with every layout of its operands, op
// by op and as a plan, gives the same bits over NaN and over large numbers as over zeros.
#include "lockstep/engine/device/poison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/cases.h"
#include "tests/engine/plan/comparison.h"

namespace lockstep {
namespace {

using optest::Case;
using reference::Array;

std::vector<Array> arrays_of(const plantest::Result& result) {
  std::vector<Array> all = result.outputs;
  all.insert(all.end(), result.parameters.begin(), result.parameters.end());
  all.insert(all.end(), result.inputs.begin(), result.inputs.end());
  return all;
}

// The op with its differentiable operands as parameters, in the layouts that it prefers, and as
// results of another op, in any layout.
struct SmallGraph {
  Graph graph;
  plantest::Values values;

  SmallGraph(const Case& c, bool behind_another) {
    std::vector<int> operands;
    for (const auto& input : c.inputs) {
      const Tensor tensor = optest::tensor_of(input.value, input.dtype);
      if (!input.gradient && input.dtype == DType::f32) {
        // Requests gradients of all f32 inputs. A state has none.
        operands.push_back(graph.add_state(static_cast<int>(values.states.size()), tensor.shape()));
        values.states.push_back(tensor);
        continue;
      }
      if (input.dtype != DType::f32) {
        operands.push_back(graph.add_input(tensor.shape(), input.dtype));
        values.inputs.push_back(tensor);
        continue;
      }
      const int slot = static_cast<int>(values.parameters.size());
      operands.push_back(graph.add_parameter(slot, tensor.shape()));
      values.parameters.push_back(tensor);
      if (behind_another) {
        operands.back() =
            graph.add(ops::make_add(), {operands.back(), operands.back()}, "twice")[0];
      }
    }
    values.step = c.step;
    graph.mark_output(graph.add(c.op, operands, "op")[0]);
  }
};

std::vector<Array> planned(const SmallGraph& g, bool gradients, Poison pattern) {
  const Poisoned poisoned(pattern);
  const std::vector<int> seeds = gradients ? std::vector<int>{0} : std::vector<int>{};
  plantest::Planned plan(g.graph, g.values, seeds);
  return arrays_of(plan(g.graph, g.values, seeds));
}

std::vector<Array> eager(const SmallGraph& g, bool gradients, Poison pattern) {
  const Poisoned poisoned(pattern);
  return arrays_of(plantest::run_eagerly(g.graph, g.values,
                                         gradients ? std::vector<int>{0} : std::vector<int>{}));
}

// Bits and not values: NaN differs from itself.
bool same_bits(const std::vector<Array>& a, const std::vector<Array>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto &x = a[i].values, &y = b[i].values;
    if (x.size() != y.size()) return false;
    if (!x.empty() && std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) != 0) return false;
  }
  return true;
}

class PoisonedOps : public testing::TestWithParam<optest::SharedCase> {};

TEST_P(PoisonedOps, GiveTheSameBits) {
  const Case& c = *GetParam();
  for (const bool behind_another : {false, true}) {
    SCOPED_TRACE(behind_another ? "behind another op" : "of parameters");
    const SmallGraph g(c, behind_another);
    const bool gradients = c.backward && !g.values.parameters.empty();
    const auto as_plan = planned(g, gradients, Poison::none);
    const auto as_ops = eager(g, gradients, Poison::none);
    for (const Poison pattern : {Poison::not_a_number, Poison::huge}) {
      SCOPED_TRACE(pattern == Poison::huge ? "huge" : "not a number");
      EXPECT_TRUE(same_bits(planned(g, gradients, pattern), as_plan)) << "as a plan";
      EXPECT_TRUE(same_bits(eager(g, gradients, pattern), as_ops)) << "op by op";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PoisonedOps, testing::ValuesIn(optest::shared_cases({})),
                         [](const auto& tested) {
                           // Cases in different files may have the same name.
                           return std::string(tested.param->op->type()) + "_" + tested.param->name +
                                  "_" + std::to_string(tested.index);
                         });

// The part that a deliberate mistake omits.
enum class Mistake { none, result, gradient, scratch };

// y = x. Leaves the last element of y or of its gradient unwritten, or reads scratch memory before
// writing it.
class Copy final : public FloatOp {
 public:
  explicit Copy(Mistake mistake) : mistake_(mistake) {}
  std::string_view type() const override { return "copy"; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override { return {in[0]}; }
  kernels::Kernel compile(const kernels::Table&, std::span<const TensorSpec> in) const override {
    const TensorSpec spec = in[0].plain();
    kernels::Kernel kernel;
    kernel.forward = {{kernels::input(0, spec)},
                      {kernels::output(0, spec)},
                      sizeof(float),
                      copying(spec, mistake_ == Mistake::result)};
    kernel.backward.push_back({{kernels::diff_output(0, spec)},
                               {kernels::diff_input(0, spec)},
                               0,
                               copying(spec, mistake_ == Mistake::gradient)});
    return kernel;
  }

 private:
  std::function<kernels::BoundPass(const kernels::PassMemory&)> copying(const TensorSpec& spec,
                                                                        bool leaves_one) const {
    const auto count = static_cast<size_t>(spec.shape.elements()) - (leaves_one ? 1 : 0);
    return [=, scratch = mistake_ == Mistake::scratch](const kernels::PassMemory& where) {
      const auto* x = static_cast<const float*>(where.reads[0]);
      auto* y = static_cast<float*>(where.writes[0]);
      auto* memory = static_cast<float*>(where.scratch);
      return kernels::BoundPass([=](const RandomContext&) {
        for (size_t i = 0; i < count; ++i) y[i] = x[i];
        if (!scratch || !memory) return;
        y[0] += *memory * 1e-38f;
        *memory = 0;
      });
    };
  }

  const Mistake mistake_;
};

TEST(Poison, FindsWhatIsLeftUnwritten) {
  for (const Mistake mistake :
       {Mistake::none, Mistake::result, Mistake::gradient, Mistake::scratch}) {
    SCOPED_TRACE(static_cast<int>(mistake));
    Case c;
    c.op = std::make_shared<Copy>(mistake);
    c.inputs = {{optest::random_array({2, 3}, 1)}};
    const SmallGraph g(c, true);
    const auto clean = planned(g, true, Poison::none);
    for (const Poison pattern : {Poison::not_a_number, Poison::huge}) {
      EXPECT_EQ(same_bits(planned(g, true, pattern), clean), mistake == Mistake::none);
    }
  }
}

TEST(Poison, IsThereWhereMemoryIsHandedOutAndEndsWithItsScope) {
  {
    const Poisoned poisoned(Poison::huge);
    const Tensor tensor(Shape{5}, DType::f32);
    EXPECT_GT(tensor.data<float>()[4], 3e38f);
    const Poisoned inner(Poison::not_a_number);
    EXPECT_TRUE(std::isnan(Tensor(Shape{5}, DType::f32).data<float>()[0]));
  }
  EXPECT_EQ(poison(), Poison::none);
}

}  // namespace
}  // namespace lockstep
