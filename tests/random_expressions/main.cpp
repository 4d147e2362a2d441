// Makes random programs of ops and computes them, with first and second derivatives.
// beside_torch.py judges what `frames` writes. A plan that does not have the bits of the ops one by
// one is an error.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/graph/graph.h"
#include "lockstep/engine/plan/plan.h"
#include "tests/random_expressions/statements.h"
#include "tests/random_networks/dice.h"
#include "tests/random_networks/frame.h"

namespace {

using namespace lockstep;
using random_expressions::Program;
using random_networks::Dice;
using random_networks::Frame;

Tensor random_tensor(Dice& dice, const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (float& v : values) v = static_cast<float>(dice.uniform(-1, 1));
  return Tensor::from(std::span<const float>(values), shape);
}

// The scalar whose derivatives are computed: never linear in the result.
template <class T>
T scalar_of(const T& y) {
  return y + ops::square(y) * 0.3;
}

// The first element with other bits; empty: none.
std::string difference(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i >= a.size() || i >= b.size()) return "other sizes";
    if (std::memcmp(&a[i], &b[i], sizeof(float)) == 0) continue;
    char text[100];
    std::snprintf(text, sizeof text, "element %zu is %.9g, not %.9g", i, static_cast<double>(a[i]),
                  static_cast<double>(b[i]));
    return text;
  }
  return {};
}

// What differs between the plan and the ops one by one; empty: nothing.
std::string difference_of_plan(const Program& program, const std::vector<Tensor>& inputs,
                               const Tensor& y, const std::vector<Tensor>& gradients) {
  Graph graph;
  GraphBuilder builder(graph, "program");
  std::vector<Value> values;
  for (const Shape& shape : program.inputs) {
    values.emplace_back(&builder, graph.add_input(shape, DType::f32));
  }
  const Value result = random_expressions::values_of(program, values).back();
  graph.mark_output(result.number());
  graph.mark_output(scalar_of(result).number());
  PlanOptions options;
  options.gradients = options.input_gradients = true;
  options.differentiated = {1};
  const auto plan = std::make_shared<const Plan>(graph, std::vector<Shape>(), options);
  PackedParameters packed({});
  PlanRun run(plan, packed, {});
  for (size_t i = 0; i < inputs.size(); ++i) {
    run.set_input(static_cast<int>(i), inputs[i].raw(), inputs[i].bytes());
  }
  const ArithmeticMode mode;  // which eager ops set by themselves
  const float one = 1;
  run.set_output_gradient(1, &one, sizeof one);
  run.forward({});
  std::vector<float> output(1);
  run.get_output(0, output.data(), sizeof(float));
  const std::string of_result = difference(output, y.to_vector());
  if (!of_result.empty()) return "result of the plan: " + of_result;
  run.backward({});
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<float> gradient(static_cast<size_t>(inputs[i].shape().elements()));
    if (run.input_gradient(static_cast<int>(i))) {
      run.get_input_gradient(static_cast<int>(i), gradient.data(), gradient.size() * sizeof(float));
    }
    const std::string different = difference(gradient, gradients[i].to_vector());
    if (!different.empty()) {
      return "gradient of input " + std::to_string(i) + " by the plan: " + different;
    }
  }
  return {};
}

void compute(const Program& program, uint64_t seed, uint64_t number, Frame& frame) {
  Dice dice(seed, number, 8);
  std::vector<Tensor> inputs, directions;
  for (const Shape& shape : program.inputs) {
    inputs.push_back(random_tensor(dice, shape));
    directions.push_back(random_tensor(dice, shape));
  }
  Tape tape;
  tape.watch(inputs);
  const Tensor y = random_expressions::values_of(program, inputs).back();
  const std::vector<Tensor> gradients = tape.gradient(scalar_of(y), inputs, {.create_graph = true});
  Tensor along = ops::sum(inputs[0]) * 0;  // if no gradient depends on the inputs
  for (size_t i = 0; i < inputs.size(); ++i) {
    along = along + ops::sum(gradients[i] * directions[i]);
  }
  const std::vector<Tensor> second = tape.gradient(along, inputs);
  frame.add("result", y);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string of = std::to_string(i);
    frame.add("input " + of, inputs[i]);
    frame.add("direction " + of, directions[i]);
    frame.add("first " + of, gradients[i]);
    frame.add("second " + of, second[i]);
  }
  const std::string different = difference_of_plan(program, inputs, y, gradients);
  if (!different.empty()) frame.head["error"] = different;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Random programs of ops, each a function of a seed and its number");
  uint64_t seed = 1, first = 0, count = 500;
  bool describes = false;
  app.add_option("--seed", seed, "of all choices");
  app.add_option("--first", first, "number of the first program");
  app.add_option("--count", count, "how many");
  app.add_flag("--describe", describes, "prints programs and computes nothing");
  CLI11_PARSE(app, argc, argv);
  try {
    for (uint64_t number = first; number < first + count; ++number) {
      const Program program = random_expressions::random_program(seed, number);
      Frame frame;
      frame.head = {{"seed", seed}, {"case", number}, {"statements", program.description()}};
      if (describes) {
        std::cout << frame.head << "\n";
        continue;
      }
      try {
        compute(program, seed, number, frame);
      } catch (const Error& e) {
        frame.head["error"] = e.what();
      }
      frame.write(stdout);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
