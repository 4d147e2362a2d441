#include "lockstep/train/optimizer/registry.h"

namespace lockstep {

const std::vector<SolverInfo>& solver_registry() {
#define LOCKSTEP_SOLVER_INFO(name) solvers::name(),
  static const std::vector<SolverInfo> all{LOCKSTEP_SOLVERS(LOCKSTEP_SOLVER_INFO)};
#undef LOCKSTEP_SOLVER_INFO
  return all;
}

std::vector<std::string> solver_names() {
  std::vector<std::string> names;
  for (const SolverInfo& info : solver_registry()) names.push_back(info.name);
  return names;
}

const SolverInfo* find_solver(const std::string& name) {
  for (const SolverInfo& info : solver_registry()) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

}  // namespace lockstep
