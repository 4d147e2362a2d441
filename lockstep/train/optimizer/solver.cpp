#include "lockstep/train/optimizer/solver.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/pattern.h"
#include "lockstep/base/suggest.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/kernels/solvers/parameter_digests.h"
#include "lockstep/train/optimizer/averaged_solver.h"
#include "lockstep/train/optimizer/gradient_threshold.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/options/solver_info.h"

namespace lockstep {

bool is_frozen(const std::string& parameter, const std::vector<std::string>& frozen) {
  const std::string layer = parameter.substr(0, parameter.rfind('.'));
  return std::ranges::any_of(
      frozen, [&](const std::string& pattern) { return matches_pattern(layer, pattern); });
}

void check_frozen(const Network& network, const std::vector<std::string>& frozen) {
  std::vector<std::string> names;
  for (const auto& layer : network.layers()) names.push_back(layer.name);
  for (const auto& name : frozen) {
    const auto matches = [&](const std::string& layer) { return matches_pattern(layer, name); };
    if (std::ranges::any_of(names, matches)) continue;
    throw InvalidArgument("[training] freeze contains `" + name + "`, which is not a layer",
                          suggest(name, names));
  }
}

void check_unfreezing(const Network& network, const TrainingOptions& options) {
  std::vector<std::string> names;
  for (const auto& layer : network.layers()) names.push_back(layer.name);
  for (const Unfreezing& one : unfreezings_of(options)) {
    const auto matches = [&](const std::string& layer) {
      return matches_pattern(layer, one.layers);
    };
    if (std::ranges::none_of(names, matches)) {
      throw InvalidArgument(
          "[training] unfreeze contains `" + one.layers + "`, which is not a layer",
          suggest(one.layers, names));
    }
    const auto frozen = [&](const Parameter& p) {
      return matches(p.name.substr(0, p.name.rfind('.'))) && is_frozen(p.name, options.freeze);
    };
    if (std::ranges::any_of(network.parameters(), frozen)) continue;
    throw InvalidArgument("[training] unfreeze contains `" + one.layers +
                              "`, but `freeze` holds no parameter of such a layer",
                          "name layers that `freeze` names");
  }
}

int64_t first_learning_epoch(const std::string& parameter, const TrainingOptions& options) {
  if (!is_frozen(parameter, options.freeze)) return 1;
  int64_t first = UpdateScalars::kNeverLearns;
  for (const Unfreezing& one : unfreezings_of(options)) {
    if (is_frozen(parameter, {one.layers})) first = std::min(first, one.epoch);
  }
  return first;
}

std::vector<bool> never_learning(const Network& network, const TrainingOptions& options) {
  std::vector<bool> never;
  for (const Parameter& p : network.parameters()) {
    never.push_back(first_learning_epoch(p.name, options) == UpdateScalars::kNeverLearns);
  }
  return never;
}

void try_updates(Device device, const TrainingOptions& options) {
  if (options.average_decay > 0 && !device.is_cpu()) {
    throw Unsupported("[training] average_decay is supported only on the CPU",
                      "set device = \"cpu\"");
  }
  const kernels::Functions& functions = kernels::functions_for(device);
  void* const queue = default_stream_of(device);
  functions.add(nullptr, nullptr, nullptr, 0, queue);
  functions.sum_leaves(nullptr, 0, nullptr, 0, queue);
  functions.copy_chunks(nullptr, 0, queue);
  functions.parameter_digests({}, queue);
  if (const SolverInfo* solver = find_solver(options.solver.type))
    solver->try_kernels(functions, queue);
  const GradientThreshold threshold{options.solver.gradient_threshold,
                                    options.solver.gradient_threshold_method};
  if (!threshold.wanted()) return;
  if (threshold.of_elements()) {
    functions.limit(nullptr, 0, 0, queue);
  } else {
    functions.block_squares(nullptr, 0, nullptr, queue);
  }
}

size_t solver_arrays(const TrainingOptions& options) {
  const SolverInfo* const solver = find_solver(options.solver.type);
  return (solver ? solver->state.size() : 0) + (options.average_decay > 0 ? 1 : 0);
}

std::unique_ptr<Solver> make_solver(Network& network, const TrainingOptions& options) {
  if (!network.initialized()) throw InvalidArgument("[solver] the network is not initialized");
  if (const SolverInfo* const solver = find_solver(options.solver.type)) {
    auto made = solver->make(network, options.resolved());
    if (options.average_decay == 0) return made;
    return make_averaged(std::move(made), network, options.average_decay);
  }
  throw InvalidArgument("[training] unknown solver `" + options.solver.type + "`",
                        fmt::format("known solvers: {}", fmt::join(solver_names(), ", ")));
}

}  // namespace lockstep
