#include "tests/engine/plan/comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "lockstep/engine/ops/ops.h"

namespace lockstep::plantest {
namespace {

using optest::array_of;
using optest::random_array;
using optest::relative_error;
using optest::tensor_of;

Array array_from(const float* from, const Shape& shape) {
  Array array(shape.dims());
  for (int64_t i = 0; i < array.count(); ++i) array[i] = static_cast<double>(from[i]);
  return array;
}

double norm(const Array& array) {
  double sum = 0;
  for (double x : array.values) sum += x * x;
  return std::sqrt(sum);
}

std::vector<Shape> parameter_shapes(const Graph& graph) {
  std::vector<Shape> shapes;
  for (const auto& value : graph.values()) {
    if (value.source != Graph::Source::parameter) continue;
    shapes.resize(std::max(shapes.size(), static_cast<size_t>(value.slot) + 1));
    shapes[static_cast<size_t>(value.slot)] = value.shape;
  }
  return shapes;
}

}  // namespace

std::vector<Array> seed_weights(const Graph& graph, const std::vector<int>& seeds) {
  std::vector<Array> weights;
  for (int k : seeds) {
    const int value = graph.outputs()[static_cast<size_t>(k)];
    weights.push_back(random_array(graph.shape(value).dims(), 1000 + static_cast<uint64_t>(k)));
  }
  return weights;
}

Result run_eagerly(const Graph& graph, const Values& values, const std::vector<int>& seeds) {
  Tape tape;
  std::vector<Tensor> watched = values.parameters;
  for (const auto& t : values.inputs) {
    if (t.dtype() == DType::f32) watched.push_back(t);
  }
  tape.watch(watched);
  std::vector<Tensor> at(graph.values().size());
  for (size_t v = 0; v < at.size(); ++v) {
    const auto& value = graph.values()[v];
    const auto slot = static_cast<size_t>(value.slot);
    if (value.source == Graph::Source::input) at[v] = values.inputs[slot];
    if (value.source == Graph::Source::parameter) at[v] = values.parameters[slot];
    if (value.source == Graph::Source::state) at[v] = values.states[slot];
  }
  for (const auto& node : graph.nodes()) {
    std::vector<Tensor> inputs;
    for (int v : node.inputs) inputs.push_back(at[static_cast<size_t>(v)]);
    const auto outputs = apply_op(node.op, inputs, values.step);
    for (size_t k = 0; k < outputs.size(); ++k) {
      at[static_cast<size_t>(node.outputs[k])] = outputs[k];
    }
  }
  Result result;
  for (int v : graph.outputs()) result.outputs.push_back(array_of(at[static_cast<size_t>(v)]));
  const auto weights = seed_weights(graph, seeds);
  std::vector<Tensor> terms;
  for (size_t k = 0; k < seeds.size(); ++k) {
    const int value = graph.outputs()[static_cast<size_t>(seeds[k])];
    terms.push_back(optest::weighted_sum(at[static_cast<size_t>(value)], weights[k]));
  }
  if (terms.empty()) return result;
  const Tensor scalar = terms.size() == 1 ? terms[0] : ops::add(terms);
  for (const auto& g : tape.gradient(scalar, values.parameters)) {
    result.parameters.push_back(array_of(g));
  }
  for (const auto& t : values.inputs) {
    result.inputs.push_back(t.dtype() == DType::f32 ? array_of(tape.gradient(scalar, {t})[0])
                                                    : Array());
  }
  return result;
}

Values moved(const Values& values, Device device) {
  Values there = values;
  for (auto* list : {&there.inputs, &there.parameters, &there.states}) {
    for (Tensor& t : *list) t = t.to(device);
  }
  return there;
}

Planned::Planned(const Graph& graph, const Values& values, const std::vector<int>& seeds,
                 const GradientLayout* layout)
    : states(values.states) {
  PlanOptions options;
  options.gradients = options.input_gradients = !seeds.empty();
  options.differentiated = seeds;
  options.gradient_layout = layout;
  packed = std::make_unique<PackedParameters>(values.parameters);
  plan = std::make_shared<Plan>(graph, parameter_shapes(graph), options, packed->device());
  std::vector<const float*> pointers;
  for (const auto& t : states) pointers.push_back(static_cast<const float*>(t.raw()));
  run = std::make_unique<PlanRun>(plan, *packed, pointers);
}

Result Planned::operator()(const Graph& graph, const Values& values,
                           const std::vector<int>& seeds) {
  for (size_t i = 0; i < values.inputs.size(); ++i) {
    const Tensor host = values.inputs[i].to({});
    run->set_input(static_cast<int>(i), host.raw(), host.bytes());
  }
  const auto weights = seed_weights(graph, seeds);
  for (size_t k = 0; k < seeds.size(); ++k) {
    const std::vector<float> seed(weights[k].values.begin(), weights[k].values.end());
    run->set_output_gradient(seeds[k], seed.data(), seed.size() * sizeof(float));
  }
  run->forward(values.step);
  Result result;
  const auto read_outputs = [&] {
    std::vector<Array> outputs;
    for (size_t k = 0; k < graph.outputs().size(); ++k) {
      const Shape& shape = graph.shape(graph.outputs()[k]);
      std::vector<float> output(static_cast<size_t>(shape.elements()));
      run->get_output(static_cast<int>(k), output.data(), output.size() * sizeof(float));
      run->synchronize();
      outputs.push_back(array_from(output.data(), shape));
    }
    return outputs;
  };
  result.outputs = read_outputs();
  if (seeds.empty()) return result;
  run->backward(values.step);
  const auto afterwards = read_outputs();
  for (size_t k = 0; k < afterwards.size(); ++k) {
    const auto &before = result.outputs[k].values, &after = afterwards[k].values;
    // Compares bits, because NaN differs from itself.
    EXPECT_EQ(std::memcmp(after.data(), before.data(), after.size() * sizeof after[0]), 0)
        << "output " << k << " is valid until the next forward run";
  }
  const Device device = plan->device();
  for (size_t k = 0; k < seeds.size(); ++k) {
    const TensorSpec spec{optest::shape_of(weights[k]), DType::f32, nullptr};
    EXPECT_EQ(array_of(Tensor::view(run->output_gradient(seeds[k]), spec, nullptr, device)).values,
              weights[k].values)
        << "seed " << seeds[k] << " keeps what was written";
  }
  for (const auto& entry : plan->gradient_layout().entries) {
    const Tensor view = Tensor::view(run->gradients() + entry.offset, entry.spec, nullptr, device);
    result.parameters.push_back(array_of(view));
  }
  for (size_t i = 0; i < values.inputs.size(); ++i) {
    if (!run->input_gradient(static_cast<int>(i))) {
      result.inputs.emplace_back();
      continue;
    }
    std::vector<float> gradient(static_cast<size_t>(values.inputs[i].shape().elements()));
    run->get_input_gradient(static_cast<int>(i), gradient.data(), gradient.size() * sizeof(float));
    run->synchronize();
    result.inputs.push_back(array_from(gradient.data(), values.inputs[i].shape()));
  }
  return result;
}

Values random_values(const Graph& graph, uint64_t seed, int classes) {
  Values values;
  std::mt19937 random(static_cast<unsigned>(seed));
  for (const auto& value : graph.values()) {
    const auto slot = static_cast<size_t>(value.slot);
    Array array = random_array(value.shape.dims(), ++seed);
    if (value.dtype != DType::f32) {
      const unsigned limit = value.dtype == DType::u8 ? 256 : static_cast<unsigned>(classes);
      for (double& x : array.values) x = static_cast<double>(random() % limit);
    }
    const auto put = [&](std::vector<Tensor>& list) {
      list.resize(std::max(list.size(), slot + 1));
      list[slot] = tensor_of(array, value.dtype);
    };
    switch (value.source) {
      case Graph::Source::input:
        put(values.inputs);
        break;
      case Graph::Source::parameter:
        if (value.shape.rank() > 1) {  // chains neither grow nor vanish
          const double fan_in = static_cast<double>(value.shape.without_batch().elements());
          for (double& x : array.values) {
            x = static_cast<double>(static_cast<float>(x * std::sqrt(3 / fan_in)));
          }
        }
        put(values.parameters);
        break;
      case Graph::Source::state:
        for (double& x : array.values) x = static_cast<double>(static_cast<float>(x + 1.5));
        put(values.states);
        break;
      case Graph::Source::output_gradient:
      case Graph::Source::computed:
        break;
    }
  }
  return values;
}

void expect_plan_equals_eager(const Graph& graph, const std::vector<int>& seeds, double tolerance,
                              Device device) {
  const Values values = moved(random_values(graph, 7), device);
  const Result eager = run_eagerly(graph, values, seeds);
  Planned planned(graph, values, seeds);
  const Result result = planned(graph, values, seeds);
  SCOPED_TRACE(planned.plan->describe());
  ASSERT_EQ(result.outputs.size(), eager.outputs.size());
  for (size_t k = 0; k < eager.outputs.size(); ++k) {
    EXPECT_LE(relative_error(result.outputs[k], eager.outputs[k]), tolerance) << "output " << k;
  }
  ASSERT_EQ(result.parameters.size(), eager.parameters.size());
  // If an exact gradient is zero (a bias before a normalization), both results are rounding errors.
  // These errors are relative to other gradients.
  double largest = 0;
  for (const auto& gradient : eager.parameters) largest = std::max(largest, norm(gradient));
  for (size_t p = 0; p < eager.parameters.size(); ++p) {
    EXPECT_LE(relative_error(result.parameters[p], eager.parameters[p], 0.1 * largest), tolerance)
        << "parameter " << p;
  }
  ASSERT_EQ(result.inputs.size(), eager.inputs.size());
  for (size_t i = 0; i < eager.inputs.size(); ++i) {
    EXPECT_LE(relative_error(result.inputs[i], eager.inputs[i], 1e-3), tolerance) << "input " << i;
  }
  // Runs once more on the memory of the first run.
  const Result again = planned(graph, values, seeds);
  for (size_t k = 0; k < eager.outputs.size(); ++k) {
    EXPECT_EQ(again.outputs[k].values, result.outputs[k].values) << "output " << k;
  }
  for (size_t p = 0; p < result.parameters.size(); ++p) {
    EXPECT_EQ(again.parameters[p].values, result.parameters[p].values) << "parameter " << p;
  }
  for (size_t i = 0; i < result.inputs.size(); ++i) {
    EXPECT_EQ(again.inputs[i].values, result.inputs[i].values) << "input " << i;
  }
}

}  // namespace lockstep::plantest
