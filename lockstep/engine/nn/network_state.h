// What a Network keeps; shared by its source files only.
#pragma once

#include <map>
#include <mutex>

#include "lockstep/engine/nn/network.h"

namespace lockstep {

// A run with states of its own: copies as they were when forward began, so that a gradient taken
// later finds them so.
struct NetworkRun {
  std::vector<Tensor> states;
  std::unique_ptr<PlanRun> run;
};

// Plans of a network in use by forward(): one for each (sizes, mode), with runs that wait for use.
struct NetworkPlan {
  std::shared_ptr<const Plan> plan;
  std::vector<MovingStatistics> statistics;
  std::mutex mutex;  // of `idle`
  std::vector<std::unique_ptr<NetworkRun>> idle;
  std::vector<Shape> outputs;  // sizes with all observations
};

// Where a layer's learnables and states begin in the network's lists.
struct LayerSlots {
  int first_parameter = 0;
  int first_state = 0;
};

// The layers in an order of execution with their sizes, as far as they could be found out.
struct NetworkAnalysis {
  std::vector<NetworkProblem> problems;
  std::vector<size_t> order;                           // places in layers
  std::vector<std::vector<Shape>> inputs;              // by layer: shapes with 1 observation
  std::vector<Shape> outputs;                          // by layer
  std::vector<std::vector<ParameterSpec>> parameters;  // by layer; empty for sharing layers
  std::vector<std::vector<StateSpec>> states;
  std::vector<size_t> output_layers;  // layers that nobody reads
};

struct Network::State {
  std::vector<LayerNode> layers;
  std::map<std::string, size_t> places;  // in layers, by name
  std::map<std::string, int> numbers;    // last one given in a name, by type
  std::string loss = "cross_entropy";
  bool initialized = false;
  Device device;
  std::vector<Learnable> learnables;
  std::vector<NetworkState> states;
  std::map<std::string, LayerSlots> slots;   // by name of the layer that owns them
  std::shared_ptr<PackedParameters> packed;  // tapes keep it longer than the network
  std::mutex mutex;                          // of `plans`
  std::vector<std::pair<std::string, std::shared_ptr<NetworkPlan>>> plans;  // last used first
  static constexpr size_t kMostPlans = 16;

  const LayerNode* find(const std::string& name) const;
  // Throws InvalidArgument for an unknown name.
  std::vector<size_t> places_of(const std::vector<std::string>& names) const;
  // Whether each layer is an input or one that `results` depend on.
  std::vector<bool> needed_for(const std::vector<size_t>& results,
                               const std::vector<size_t>& order) const;
  NetworkAnalysis analyse() const;
  // Gives learnables and states their names and sizes, without memory. What each state begins with.
  std::vector<float> lay_out();
};

}  // namespace lockstep
