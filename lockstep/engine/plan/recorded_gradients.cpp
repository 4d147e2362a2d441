#include "lockstep/engine/plan/recorded_gradients.h"

#include "lockstep/engine/autograd/tape.h"

namespace lockstep {

NetworkFunction::NetworkFunction(const Graph& graph, DType precision, Device device,
                                 bool fuses_pairs)
    : function_(std::make_shared<GraphFunction>(graph, precision, device, fuses_pairs)),
      parameters_(graph.slots(Graph::Source::parameter)),
      states_(graph.slots(Graph::Source::state)) {}

void NetworkFunction::record(const Computed& of, std::vector<Tensor>& gradients) const {
  const size_t inputs = of.inputs.size();
  std::vector<Tensor> arguments = of.inputs;
  std::vector<size_t> numbers;  // of the arguments' gradients
  for (size_t i = 0; i < inputs; ++i) numbers.push_back(i);
  for (const Tensor& rows : of.rows) {
    numbers.push_back(gradients.size());  // none
    arguments.push_back(rows);
  }
  for (const int slot : parameters_) {
    numbers.push_back(inputs + static_cast<size_t>(slot));
    arguments.push_back(of.parameters[static_cast<size_t>(slot)]);
  }
  for (const int slot : states_) arguments.push_back(of.states[static_cast<size_t>(slot)]);
  std::vector<bool> wanted(arguments.size(), false), reached;
  for (size_t k = 0; k < numbers.size(); ++k) {
    const size_t i = numbers[k];
    wanted[k] = i < gradients.size() && of.needed[i] && gradients[i].defined();
  }
  for (const Tensor& diff : of.output_gradients) {
    reached.push_back(diff.defined());
    if (diff.defined()) arguments.push_back(diff);
  }
  if (!Tape::any_tracks(arguments)) return;
  const auto derivative = function_->derivative(reached, wanted);
  std::vector<Tensor> given;
  std::vector<bool> depends(gradients.size(), false);
  for (size_t k = 0, number = 0; k < numbers.size(); ++k) {
    if (!wanted[k] || !derivative->gives(number++)) continue;
    depends[numbers[k]] = true;
    given.push_back(gradients[numbers[k]]);
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!depends[i]) gradients[i] = Tensor();
  }
  derivative->record(arguments, given, of.step, of.check);
}

}  // namespace lockstep
