// Recurrent ops on problems from standard input, one JSON object on each line: "op", "options",
// "operands" (objects with "shape" and "values"; lengths are "whole"), "weights" (one array for
// each output). Prints one JSON array on each line: the outputs, and the gradients of the sum of
// weights times outputs with respect to the operands but the lengths.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/ops/ops.h"

namespace {

using namespace lockstep;
using nlohmann::json;

Tensor tensor_of(const json& array) {
  const Shape shape(array["shape"].get<std::vector<int64_t>>());
  if (array.value("whole", false)) {
    return Tensor::from(array["values"].get<std::vector<int32_t>>(), shape);
  }
  return Tensor::from(array["values"].get<std::vector<float>>(), shape);
}

std::vector<Tensor> outputs_of(const json& problem, const std::vector<Tensor>& o) {
  const std::string op = problem["op"];
  const json& options = problem["options"];
  const bool reverse = options["reverse"];
  if (op == "lstm") {
    const auto r = ops::lstm(o[0], o[1], o[2], o[3], o[4], o[5], o[6], {.reverse = reverse});
    return {r.y, r.h, r.c};
  }
  if (op == "gru") {
    const auto r = ops::gru(o[0], o[1], o[2], o[3], o[4], o[5], o[6], {.reverse = reverse});
    return {r.y, r.h};
  }
  const auto activation =
      options["relu"].get<bool>() ? ops::RnnActivation::relu : ops::RnnActivation::tanh;
  const auto r =
      ops::rnn(o[0], o[1], o[2], o[3], o[4], o[5], {.activation = activation, .reverse = reverse});
  return {r.y, r.h};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const json problem = json::parse(line);
    std::vector<Tensor> operands, floats;
    Tape tape;
    for (const json& array : problem["operands"]) {
      operands.push_back(tensor_of(array));
      if (operands.back().dtype() != DType::f32) continue;
      tape.watch(operands.back());
      floats.push_back(operands.back());
    }
    const std::vector<Tensor> outputs = outputs_of(problem, operands);
    json results = json::array();
    Tensor total;
    for (size_t k = 0; k < outputs.size(); ++k) {
      results.push_back(outputs[k].to_vector());
      const Tensor weights =
          Tensor::from(problem["weights"][k].get<std::vector<float>>(), outputs[k].shape());
      const Tensor term = ops::sum(outputs[k] * weights);
      total = total.defined() ? total + term : term;
    }
    for (const Tensor& diff : tape.gradient(total, floats)) results.push_back(diff.to_vector());
    std::cout << results << "\n";
  }
}
