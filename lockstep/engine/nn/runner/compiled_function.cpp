#include "lockstep/engine/nn/runner/compiled_function.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/autograd/eager_ops.h"
#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/nn/runner/recorded_run.h"
#include "lockstep/engine/plan/recorded_gradients.h"

namespace lockstep {

namespace {

constexpr size_t kMostKept = 64;

std::vector<TensorSpec> specs_of(const std::vector<Tensor>& arguments) {
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].defined()) {
      throw InvalidArgument("[CompiledFunction] argument " + std::to_string(i + 1) +
                            " is undefined");
    }
    if (arguments[i].device() != arguments[0].device()) {
      refuse_mixed("CompiledFunction", arguments[0].device(), arguments[i].device());
    }
    specs.push_back(arguments[i].spec().plain());
  }
  if (specs.empty()) throw InvalidArgument("[CompiledFunction] expected at least one argument");
  return specs;
}

Graph graph_of(const CompiledFunction::Body& body, const std::vector<TensorSpec>& arguments) {
  Graph graph;
  GraphBuilder builder(graph, "function");
  std::vector<Value> values;
  for (const TensorSpec& spec : arguments) {
    values.emplace_back(&builder, graph.add_input(spec.shape, spec.dtype));
  }
  const std::vector<Value> results = body(values);
  if (results.empty()) throw InvalidArgument("[CompiledFunction] the function has no results");
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string what = "[CompiledFunction] result " + std::to_string(i + 1);
    if (!results[i].defined()) throw InvalidArgument(what + " is undefined");
    if (results[i].builder() != &builder) {
      throw InvalidArgument(what + " was not computed from the arguments of this call");
    }
    const int value = results[i].number();
    if (graph.spec(value).dtype != DType::f32) {
      throw InvalidArgument(what + " is " + graph.spec(value).to_string() + ", expected f32",
                            "convert it: ops::astype(x, DType::f32)");
    }
    graph.mark_output(value);
  }
  return graph;
}

// What is compiled apart.
struct Key {
  std::vector<TensorSpec> arguments;
  Device device;
  std::vector<bool> tracked;  // by argument: whether a tape may ask for its derivative
  friend bool operator==(const Key&, const Key&) = default;
};

struct Compiled {
  IdleRuns runs;
  std::vector<Shape> results;
  std::shared_ptr<const NetworkFunction> function;  // for derivatives of derivatives; or null
};

std::shared_ptr<const Compiled> compile(const CompiledFunction::Body& body, const Key& key) {
  const Graph graph = graph_of(body, key.arguments);
  std::vector<Shape> results;
  for (const int value : graph.outputs()) results.push_back(graph.shape(value));
  PlanOptions options;
  std::shared_ptr<const NetworkFunction> function;
  if (std::find(key.tracked.begin(), key.tracked.end(), true) != key.tracked.end()) {
    options.gradients = options.input_gradients = true;
    options.of_inputs = key.tracked;
    options.differentiated.resize(results.size());
    std::iota(options.differentiated.begin(), options.differentiated.end(), 0);
    function = std::make_shared<const NetworkFunction>(graph, DType::f32, key.device);
  }
  const IdleRuns runs(
      std::make_shared<const Plan>(graph, std::vector<Shape>(), options, key.device));
  return std::make_shared<const Compiled>(runs, std::move(results), std::move(function));
}

}  // namespace

struct CompiledFunction::State {
  // What is compiled for the key, which is `made` if there is nothing yet; null: nothing is kept.
  std::shared_ptr<const Compiled> find(const Key& key, std::shared_ptr<const Compiled> made = {})
      LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    const auto found =
        std::find_if(kept.begin(), kept.end(), [&](const auto& k) { return k.first == key; });
    if (found != kept.end()) {
      std::rotate(kept.begin(), found, found + 1);  // the last one used is the first
      return kept.front().second;
    }
    if (made) {
      kept.emplace(kept.begin(), key, made);
      if (kept.size() > kMostKept) kept.pop_back();
    }
    return made;
  }

  const Body body;
  Mutex mutex;
  std::vector<std::pair<Key, std::shared_ptr<const Compiled>>> kept LOCKSTEP_GUARDED_BY(mutex) = {};
};

CompiledFunction::CompiledFunction(Body body) {
  if (!body) throw InvalidArgument("[CompiledFunction] expected a function, received an empty one");
  state_ = std::make_shared<State>(std::move(body));
}

std::vector<Tensor> CompiledFunction::operator()(const std::vector<Tensor>& arguments,
                                                 const RandomContext& step) const {
  Key key{.arguments = specs_of(arguments), .device = arguments[0].device(), .tracked = {}};
  bool records = false;
  for (const Tensor& t : arguments) {
    key.tracked.push_back(t.dtype() == DType::f32 && Tape::any_tracks({&t, 1}));
    records |= key.tracked.back();
  }
  std::shared_ptr<const Compiled> compiled = state_->find(key);
  if (!compiled) {
    // Without the lock: threads that come here together all call the body, and one result is kept.
    compiled = state_->find(key, compile(state_->body, key));
  }
  const std::shared_ptr<PlanRun> lent = compiled->runs.lend();
  const ArithmeticMode mode;
  RecordedRun run(
      {.run = lent.get(), .inputs = arguments, .outputs = compiled->results, .step = step});
  run.forward();
  const std::vector<Tensor> results = run.outputs();
  if (!records) {
    Tape::record_everywhere(arguments, results, nullptr);
    return results;
  }
  Tape::record_everywhere(
      arguments, results,
      [lent, compiled, arguments, tracked = key.tracked, step, run = std::move(run)](
          const std::vector<Tensor>& diffs, const std::vector<bool>& wanted) mutable {
        const ArithmeticMode fixed;
        std::vector<bool> needed;
        for (size_t i = 0; i < arguments.size(); ++i) needed.push_back(wanted[i] && tracked[i]);
        std::vector<bool> of_all = needed;
        of_all.resize(arguments.size() + diffs.size(), false);  // not those of the results
        std::vector<Tensor> gradients = run.backward(diffs, of_all);
        gradients.resize(arguments.size());
        if (Tape::any_records()) {
          compiled->function->record({.inputs = arguments,
                                      .parameters = {},
                                      .output_gradients = diffs,
                                      .needed = needed,
                                      .step = step},
                                     gradients);
        }
        return gradients;
      });
  return results;
}

}  // namespace lockstep
