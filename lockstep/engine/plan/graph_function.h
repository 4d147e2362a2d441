// A function of tensors that a graph describes. Its derivatives are such functions again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/graph/graph.h"
#include "lockstep/engine/plan/idle_runs.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// Thread-safe. Plans are compiled at the first call and kept, with the memory of idle runs.
class GraphFunction : public std::enable_shared_from_this<GraphFunction> {
 public:
  // The results are the graph's outputs. Parameters and states of the graph become arguments, after
  // its inputs: first all parameters, then all states, in the order of their slots.
  // `fuses_pairs`: as in PlanOptions.
  GraphFunction(const Graph& graph, DType precision, Device device, bool fuses_pairs = true);

  // Computes the results, and records them on tapes. `check` is called before each computation of
  // derivatives, and throws if the arguments have changed; null: they do not.
  std::vector<Tensor> operator()(const std::vector<Tensor>& arguments, const RandomContext& step,
                                 const std::function<void()>& check = nullptr) const;
  // Records results that were computed elsewhere on tapes that track an argument. An undefined
  // result is not recorded.
  void record(const std::vector<Tensor>& arguments, const std::vector<Tensor>& results,
              const RandomContext& step, const std::function<void()>& check = nullptr) const;

  // Derivatives with respect to `wanted` arguments from those with respect to the results
  // (undefined: the scalar does not depend on that one). By argument; undefined: not wanted, or
  // none. Recorded on tapes.
  std::vector<Tensor> gradients(const std::vector<Tensor>& arguments,
                                const std::vector<Tensor>& diffs, const std::vector<bool>& wanted,
                                const RandomContext& step,
                                const std::function<void()>& check = nullptr) const;

  // The function that computes the derivatives with respect to `wanted` arguments, in their order,
  // from the arguments and the derivatives with respect to `reached` results. Arguments on which no
  // reached result depends are left out; see gives().
  std::shared_ptr<const GraphFunction> derivative(const std::vector<bool>& reached,
                                                  const std::vector<bool>& wanted) const;
  // Of a derivative: whether it computes the one with respect to wanted argument number `i`.
  bool gives(size_t i) const { return gives_[i]; }

 private:
  std::shared_ptr<const Plan> plan() const;

  Graph graph_;
  const DType precision_;
  const Device device_;
  const bool fuses_pairs_;
  std::vector<bool> gives_;
  mutable Mutex mutex_;
  mutable std::shared_ptr<const Plan> plan_ LOCKSTEP_GUARDED_BY(mutex_);
  IdleRuns<PlainRun> idle_;
  mutable std::map<std::pair<std::vector<bool>, std::vector<bool>>,
                   std::shared_ptr<const GraphFunction>>
      derivatives_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
