// The state of a Network, shared by its source files only.
#pragma once

#include <map>
#include <utility>

#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/kernels/interface/choice.h"
#include "lockstep/engine/nn/layer_builder.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/nn/predictions/segments.h"
#include "lockstep/engine/nn/runner/compiled_network.h"
#include "lockstep/engine/plan/idle_runs.h"

namespace lockstep {

// A run with copies of the states from the start of forward(), so that a later gradient uses the
// same values.
struct NetworkRun {
  std::vector<Tensor> states;
  std::unique_ptr<PlanRun> run;
};

// What a plan of forward() depends on.
struct NetworkPlanKey {
  int64_t n = 0;  // observations
  LoweringOptions options;
  DType precision = DType::f32;
  bool gradients = false;
  kernels::Choice choice;  // of algorithms
  bool operator==(const NetworkPlanKey&) const = default;
};

// What forward() uses, one for each (sizes, mode), with runs that are free for use.
struct NetworkPlan : CompiledNetwork {
  explicit NetworkPlan(CompiledNetwork compiled) : CompiledNetwork(std::move(compiled)) {}

  IdleRuns<NetworkRun> idle;
};

// Returns a run that goes back to its plan after use, if the plan still exists.
std::shared_ptr<NetworkRun> lend_run(const std::shared_ptr<NetworkPlan>& plan,
                                     PackedParameters& packed,
                                     const std::vector<NetworkState>& states);

// First index of a layer's parameters and states in the network's lists.
struct LayerSlots {
  int first_parameter = 0;
  int first_state = 0;
};

// The layers in an order of execution with their sizes, as far as the sizes could be determined.
struct NetworkAnalysis {
  std::vector<NetworkProblem> problems;
  std::vector<size_t> order;                           // indices of layers
  std::vector<std::vector<LayerValue>> inputs;         // by layer
  std::vector<LayerValue> outputs;                     // by layer
  std::vector<std::vector<ParameterSpec>> parameters;  // by layer
  std::vector<std::vector<StateSpec>> states, row_states;
  std::vector<std::vector<StateSpec>> steps;  // that are kept in segments, by layer
  std::vector<int64_t> most_steps;            // of an observation in segments, by layer
  std::vector<size_t> output_layers;          // layers that no other layer reads
};

std::vector<RowState> copies_of(const std::vector<RowState>& states);

// Throws InvalidArgument with a list of the problems, if there are any, after `what`.
void refuse_problems(const std::vector<NetworkProblem>& problems, const std::string& what);

struct Network::State {
  std::vector<LayerNode> layers;
  std::map<std::string, size_t> indices;  // indices of layers, by name
  std::map<std::string, int> numbers;     // last number used in a generated name, by type
  std::string loss = "cross_entropy";
  TableColumns columns;
  bool initialized = false;
  Device device;
  std::vector<Parameter> parameters;
  std::vector<NetworkState> states;
  std::vector<RowState> row_states;
  bool forward_carries = true;  // if they are made
  SegmentStates segments;
  std::map<std::string, LayerSlots> slots;   // by name of the layer that owns the values
  std::shared_ptr<PackedParameters> packed;  // tapes may keep it longer than the network
  bool fixed = false;                        // by FixedParameters
  mutable Mutex analysis_mutex;
  mutable std::unique_ptr<const NetworkAnalysis> analyses[2] LOCKSTEP_GUARDED_BY(analysis_mutex);
  Mutex mutex;
  // Most recently used first.
  std::vector<std::pair<NetworkPlanKey, std::shared_ptr<NetworkPlan>>> plans
      LOCKSTEP_GUARDED_BY(mutex);
  static constexpr size_t kMostPlans = 16, kMostPlansOfSequences = 64;

  void forget_plans() LOCKSTEP_EXCLUDES(mutex);
  // After layers have been added.
  void forget_analyses() LOCKSTEP_EXCLUDES(analysis_mutex);
  const LayerNode* find(const std::string& name) const;
  // Returns the indices of layers. Throws InvalidArgument for an unknown name or one that occurs
  // twice.
  std::vector<size_t> indices_of(const std::vector<std::string>& names) const;
  // For each layer, whether `results` depend on it.
  std::vector<bool> needed_for(const std::vector<size_t>& results,
                               const std::vector<size_t>& order) const;
  // `in_segments`: of the network that predict_and_update() runs. Valid until layers are added.
  const NetworkAnalysis& analyze(bool in_segments = false) const LOCKSTEP_EXCLUDES(analysis_mutex);
  // Throws InvalidArgument if the network has problems.
  const NetworkAnalysis& sound_analysis() const;
  // States by row for a number of rows, all at their initial values.
  std::vector<RowState> made_states(const NetworkAnalysis& analysis, int64_t rows) const;
  // Throws InvalidArgument if the network cannot run in segments.
  SegmentStates begun_segments(int64_t rows) const;
  // Throws InternalError if it does not exist.
  const RowState& row_state(const std::string& name) const;
  // Gives parameters and states their names and sizes, without memory. Returns the initial value of
  // each state.
  std::vector<float> lay_out();
};

}  // namespace lockstep
