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
#include "lockstep/engine/kernels/interface/choice.h"
#include "lockstep/engine/nn/runner/recorded_run.h"
#include "lockstep/engine/plan/idle_runs.h"
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

// A builder that lives as long as what it has built, so that no other one has its address.
struct Built {
  Graph graph;
  GraphBuilder builder{graph, "function"};
};

std::unique_ptr<const Built> built_from(const CompiledFunction::Body& body,
                                        const std::vector<TensorSpec>& arguments) {
  auto built = std::make_unique<Built>();
  Graph& graph = built->graph;
  std::vector<Value> values;
  for (const TensorSpec& spec : arguments) {
    values.emplace_back(&built->builder, graph.add_input(spec.shape, spec.dtype));
  }
  const std::vector<Value> results = body(values);
  if (results.empty()) throw InvalidArgument("[CompiledFunction] the function has no results");
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string what = "[CompiledFunction] result " + std::to_string(i + 1);
    if (!results[i].defined()) throw InvalidArgument(what + " is undefined");
    if (results[i].builder() != &built->builder) {
      throw InvalidArgument(what + " was not computed from the arguments of this call");
    }
    const int value = results[i].number();
    if (graph.spec(value).dtype != DType::f32) {
      throw InvalidArgument(what + " is " + graph.spec(value).to_string() + ", expected f32",
                            "convert it: ops::astype(x, DType::f32)");
    }
    graph.mark_output(value);
  }
  return built;
}

// What is compiled apart.
struct Key {
  std::vector<TensorSpec> arguments;
  Device device;
  std::vector<bool> tracked;  // by argument: whether a tape may ask for its derivative
  kernels::Choice choice = kernels::choice();
  friend bool operator==(const Key&, const Key&) = default;
};

struct Compiled {
  std::unique_ptr<const Built> built;
  bool draws = false;  // random numbers
  std::shared_ptr<const Plan> plan;
  IdleRuns<PlainRun> idle;
  std::vector<Shape> results;
  std::shared_ptr<const NetworkFunction>
      function;  // for further derivatives; null: nothing is tracked
};

std::shared_ptr<const Compiled> compile(const CompiledFunction::Body& body, const Key& key) {
  std::unique_ptr<const Built> built = built_from(body, key.arguments);
  const Graph& graph = built->graph;
  const bool draws =
      std::any_of(graph.nodes().begin(), graph.nodes().end(),
                  [](const Graph::Node& node) { return node.op->draws_random_numbers(); });
  std::vector<Shape> results;
  for (const int value : graph.outputs()) results.push_back(graph.shape(value));
  PlanOptions options;
  options.fuses_pairs = false;
  std::shared_ptr<const NetworkFunction> function;
  if (std::find(key.tracked.begin(), key.tracked.end(), true) != key.tracked.end()) {
    options.gradients = options.input_gradients = true;
    options.of_inputs = key.tracked;
    options.total_output_gradients = results.size() > 1;
    options.differentiated.resize(results.size());
    std::iota(options.differentiated.begin(), options.differentiated.end(), 0);
    function =
        std::make_shared<const NetworkFunction>(graph, DType::f32, key.device, options.fuses_pairs);
  }
  auto plan = std::make_shared<const Plan>(graph, std::vector<Shape>(), options, key.device);
  return std::shared_ptr<const Compiled>(new Compiled{
      std::move(built), draws, std::move(plan), {}, std::move(results), std::move(function)});
}

}  // namespace

struct CompiledFunction::State {
  explicit State(Body b) : body(std::move(b)) {}

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
  return call(arguments, &step);
}

std::vector<Tensor> CompiledFunction::operator()(const std::vector<Tensor>& arguments) const {
  return call(arguments, nullptr);
}

std::vector<Tensor> CompiledFunction::call(const std::vector<Tensor>& arguments,
                                           const RandomContext* given) const {
  Key key{.arguments = specs_of(arguments), .device = arguments[0].device(), .tracked = {}};
  for (const Tensor& t : arguments) {
    key.tracked.push_back(t.dtype() == DType::f32 && Tape::any_tracks({&t, 1}));
  }
  std::shared_ptr<const Compiled> compiled = state_->find(key);
  if (!compiled) {
    // Without the lock: threads that come here together all call the body, and one result is kept.
    compiled = state_->find(key, compile(state_->body, key));
  }
  if (compiled->draws && given == nullptr) {
    throw InvalidArgument(
        "[CompiledFunction] the function draws random numbers, and no step is given",
        "pass {.seed, .iteration} as the second argument, in a loss shard.step()");
  }
  const RandomContext step = given ? *given : RandomContext{};
  const auto lent =
      compiled->idle.lend(key.device, [&] { return std::make_unique<PlainRun>(compiled->plan); });
  const ArithmeticMode mode;
  RecordedRun run(
      {.run = &lent->run, .inputs = arguments, .outputs = compiled->results, .step = step});
  run.forward();
  const std::vector<Tensor> results = run.outputs();
  if (!compiled->function) {
    Tape::record_everywhere(arguments, results, nullptr);
    return results;
  }
  Tape::record_everywhere(
      arguments, results,
      [lent, compiled, arguments, tracked = key.tracked, step, run = std::move(run)](
          const std::vector<Tensor>& diffs, const std::vector<bool>& wanted) mutable {
        const ArithmeticMode fixed;
        const size_t inputs = arguments.size();
        for (size_t i = 0; i < inputs; ++i) {
          if (!wanted[i] || tracked[i]) continue;
          const DType type = arguments[i].dtype();
          throw Unsupported("[CompiledFunction] argument " + std::to_string(i + 1) +
                            " has no derivative: " +
                            (type == DType::f32 ? "no tape tracked it at the call"
                                                : "it is " + std::string(name_of(type))));
        }
        const bool all_reached =
            std::all_of(diffs.begin(), diffs.end(), [](const Tensor& d) { return d.defined(); });
        const auto beyond = wanted.begin() + static_cast<ptrdiff_t>(inputs);
        const std::vector<bool> needed(wanted.begin(), beyond);
        // The plan would begin with zeros at results that the scalar does not depend on: 0 / 0.
        if (!all_reached && std::find(beyond, wanted.end(), true) == wanted.end()) {
          std::vector<Tensor> gradients =
              compiled->function->function().gradients(arguments, diffs, needed, step);
          gradients.resize(wanted.size());
          return gradients;
        }
        std::vector<Tensor> all = run.backward(diffs, wanted);
        if (Tape::any_records()) {
          std::vector<Tensor> gradients(all.begin(), all.begin() + static_cast<ptrdiff_t>(inputs));
          compiled->function->record({.inputs = arguments,
                                      .parameters = {},
                                      .output_gradients = diffs,
                                      .needed = needed,
                                      .step = step},
                                     gradients);
          std::copy(gradients.begin(), gradients.end(), all.begin());
        }
        return all;
      },
      Tape::Outputs::linked);
  return results;
}

}  // namespace lockstep
