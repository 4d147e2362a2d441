#include "lockstep/engine/plan/graph_function.h"

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/device/eager_stream.h"
#include "lockstep/engine/graph/differentiate.h"

namespace lockstep {

GraphFunction::GraphFunction(const Graph& graph, DType precision, Device device, bool fuses_pairs)
    : graph_(graph.with_inputs_alone()),
      precision_(precision),
      device_(device),
      fuses_pairs_(fuses_pairs) {}

std::shared_ptr<const Plan> GraphFunction::plan() const {
  const MutexLock lock(mutex_);
  if (!plan_) {
    PlanOptions options;
    options.precision = precision_;
    options.fuses_pairs = fuses_pairs_;
    plan_ = std::make_shared<const Plan>(graph_, std::vector<Shape>(), options, device_);
  }
  return plan_;
}

std::vector<Tensor> GraphFunction::operator()(const std::vector<Tensor>& arguments,
                                              const RandomContext& step,
                                              const std::function<void()>& check) const {
  if (static_cast<int>(arguments.size()) != graph_.inputs()) {
    throw InternalError("[graph] takes " + std::to_string(graph_.inputs()) +
                        " arguments, received " + std::to_string(arguments.size()));
  }
  const auto lent = idle_.lend(device_, [&] { return std::make_unique<PlainRun>(plan()); });
  PlanRun& run = lent->run;
  const ArithmeticMode mode;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Tensor plain = convert(arguments[i], arguments[i].spec().plain());
    if (plain.bytes() != run.input_bytes(static_cast<int>(i))) {
      throw InternalError("[graph] argument " + std::to_string(i) + " is " +
                          plain.spec().to_string());
    }
    eager_copy(device_, run.input(static_cast<int>(i)), plain.raw(), plain.bytes());
  }
  run.forward(step);
  run.join();
  std::vector<Tensor> results;
  for (size_t k = 0; k < graph_.outputs().size(); ++k) {
    results.emplace_back(graph_.shape(graph_.outputs()[k]), DType::f32, device_);
    eager_copy(device_, results.back().raw(), run.output(static_cast<int>(k)),
               results.back().bytes());
  }
  record(arguments, results, step, check);
  return results;
}

void GraphFunction::record(const std::vector<Tensor>& arguments, const std::vector<Tensor>& results,
                           const RandomContext& step, const std::function<void()>& check) const {
  std::vector<Tensor> defined;
  std::vector<size_t> numbers;
  for (size_t k = 0; k < results.size(); ++k) {
    if (!results[k].defined()) continue;
    defined.push_back(results[k]);
    numbers.push_back(k);
  }
  BackwardFunction backward;
  if (Tape::any_tracks(arguments)) {
    backward = [self = shared_from_this(), arguments, numbers, count = results.size(), step, check](
                   const std::vector<Tensor>& diffs, const std::vector<bool>& wanted) {
      if (check) check();
      std::vector<Tensor> of_results(count);
      for (size_t k = 0; k < diffs.size(); ++k) of_results[numbers[k]] = diffs[k];
      return self->gradients(arguments, of_results, wanted, step, check);
    };
  }
  Tape::record_everywhere(arguments, defined, std::move(backward));
}

std::vector<Tensor> GraphFunction::gradients(const std::vector<Tensor>& arguments,
                                             const std::vector<Tensor>& diffs,
                                             const std::vector<bool>& wanted,
                                             const RandomContext& step,
                                             const std::function<void()>& check) const {
  std::vector<bool> reached;
  std::vector<Tensor> inputs = arguments;
  for (const Tensor& diff : diffs) {
    reached.push_back(diff.defined());
    if (diff.defined()) inputs.push_back(diff);
  }
  const auto derivative = this->derivative(reached, wanted);
  const std::vector<Tensor> given = (*derivative)(inputs, step, check);
  std::vector<Tensor> all(arguments.size());
  for (size_t i = 0, number = 0, at = 0; i < all.size(); ++i) {
    if (wanted[i] && derivative->gives(number++)) all[i] = given[at++];
  }
  return all;
}

std::shared_ptr<const GraphFunction> GraphFunction::derivative(
    const std::vector<bool>& reached, const std::vector<bool>& wanted) const {
  const MutexLock lock(mutex_);
  std::shared_ptr<const GraphFunction>& known = derivatives_[{reached, wanted}];
  if (known) return known;
  Graph graph = graph_;
  graph.unmark_outputs();
  std::vector<DerivativeSeed> seeds;
  for (size_t k = 0; k < reached.size(); ++k) {
    const int of = graph_.outputs()[k];
    if (reached[k]) seeds.push_back({of, graph.add_input(graph.shape(of), DType::f32)});
  }
  std::vector<int> arguments;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i]) arguments.push_back(graph_.input(static_cast<int>(i)));
  }
  std::vector<bool> gives;
  for (const int diff : add_gradients(graph, seeds, arguments)) {
    gives.push_back(diff >= 0);
    if (diff >= 0) graph.mark_output(diff);
  }
  auto made = std::make_shared<GraphFunction>(graph.pruned(), precision_, device_, fuses_pairs_);
  made->gives_ = std::move(gives);
  known = std::move(made);
  return known;
}

}  // namespace lockstep
