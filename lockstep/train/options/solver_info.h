// The registry of solvers. Each solver's file in optimizer/solvers/ describes it, and
// optimizer/registry.cpp defines solver_registry(); options need the names and defaults.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace lockstep {

class Network;
class Solver;
struct TrainingOptions;
namespace kernels {
struct Functions;
}

struct SolverInfo {
  std::string name;  // the value of SolverOptions::type
  std::string help;  // one line
  // The options, by their flat names, that it uses and that not every solver uses.
  std::vector<std::string> options = {};
  // The values that these two fields of SolverOptions have for 0.
  double initial_learning_rate = 0.001;
  double squared_gradient_decay = 0.999;
  // The names of the state arrays that each parameter has, in order: "velocity"; "mean", "square".
  std::vector<std::string> state = {};
  // Creates the solver with zero state; see make_solver(). `options` are resolved.
  std::unique_ptr<Solver> (*make)(Network& network, const TrainingOptions& options) = nullptr;
  // Calls the solver's kernels for no elements, by the one for all parameters where there is one.
  // Throws Unsupported if the device cannot compute them.
  void (*try_kernels)(const kernels::Functions& functions, void* stream) = nullptr;
};

// All solvers, in the order of documentation. `lockstep reference solvers` prints them.
// Thread-safe.
const std::vector<SolverInfo>& solver_registry();

std::vector<std::string> solver_names();

// Null for an unknown name.
const SolverInfo* find_solver(const std::string& name);

}  // namespace lockstep
