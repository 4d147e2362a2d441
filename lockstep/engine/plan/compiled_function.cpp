#include "lockstep/engine/plan/compiled_function.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/autograd/eager_ops.h"
#include "lockstep/engine/plan/graph_function.h"

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

}  // namespace

struct CompiledFunction::State {
  struct Compiled {
    std::vector<TensorSpec> arguments;
    Device device;
    std::shared_ptr<const GraphFunction> function;
  };

  // The function for these arguments, which is `made` if there is none yet; null: nothing is kept.
  std::shared_ptr<const GraphFunction> find(const std::vector<TensorSpec>& arguments,
                                            const Device& device,
                                            std::shared_ptr<const GraphFunction> made = {})
      LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    const auto found = std::find_if(compiled.begin(), compiled.end(), [&](const Compiled& c) {
      return c.device == device && c.arguments == arguments;
    });
    if (found != compiled.end()) {
      std::rotate(compiled.begin(), found, found + 1);  // the last one used is the first
      return compiled.front().function;
    }
    if (made) {
      compiled.insert(compiled.begin(), {arguments, device, made});
      if (compiled.size() > kMostKept) compiled.pop_back();
    }
    return made;
  }

  const Body body;
  Mutex mutex;
  std::vector<Compiled> compiled LOCKSTEP_GUARDED_BY(mutex) = {};
};

CompiledFunction::CompiledFunction(Body body) {
  if (!body) throw InvalidArgument("[CompiledFunction] expected a function, received an empty one");
  state_ = std::make_shared<State>(std::move(body));
}

std::vector<Tensor> CompiledFunction::operator()(const std::vector<Tensor>& arguments,
                                                 const RandomContext& step) const {
  const std::vector<TensorSpec> specs = specs_of(arguments);
  const Device device = arguments[0].device();
  std::shared_ptr<const GraphFunction> function = state_->find(specs, device);
  if (!function) {
    // Without the lock: threads that come here together all call the body, and one result is kept.
    function = state_->find(
        specs, device,
        std::make_shared<GraphFunction>(graph_of(state_->body, specs), DType::f32, device));
  }
  return (*function)(arguments, step);
}

}  // namespace lockstep
