// Values of a training that are not finite. A finite loss does not show all of them: a variance or
// a solver's mean of squares that overflows makes outputs or steps 0.
#pragma once

#include <optional>
#include <string>

#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/optimizer/solver.h"

namespace lockstep {

struct NotFinite {
  std::string what;  // "`variance` of layer `norm_1` has 3 of 16 values that are not finite"
  std::string hint;
};

// The first tensor of parameters, states and solver state with such values, or none. Reads each
// value once, on the pool's threads or on the network's device. No work may be under way there.
std::optional<NotFinite> find_not_finite(const Network& network, const Solver& solver,
                                         ThreadPool& pool);

}  // namespace lockstep
