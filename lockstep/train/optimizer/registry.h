// The list of solvers for solver_registry(). A new solver is a function that returns its
// SolverInfo, in a file of solvers/, and a line here.
#pragma once

#include "lockstep/train/options/solver_info.h"

// The names of the functions, in the order of documentation.
#define LOCKSTEP_SOLVERS(SOLVER) \
  SOLVER(sgdm)                   \
  SOLVER(adam)                   \
  SOLVER(adamw)                  \
  SOLVER(rmsprop)

namespace lockstep::solvers {

#define LOCKSTEP_DECLARE_SOLVER(name) SolverInfo name();
LOCKSTEP_SOLVERS(LOCKSTEP_DECLARE_SOLVER)
#undef LOCKSTEP_DECLARE_SOLVER

}  // namespace lockstep::solvers
