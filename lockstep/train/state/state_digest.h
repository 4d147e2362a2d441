// Digests of a training's state. Equal trainings have equal digests.
#pragma once

#include <functional>

#include "lockstep/base/digest.h"
#include "lockstep/train/optimizer/solver.h"

namespace lockstep {

// The digest of one parameter and its solver state, row-major: of all their bytes in this order.
Digest parameter_digest(const Network& network, const Solver& solver, size_t index);

// The digest of everything after iteration `iteration`: the counter, all parameters with their
// solver state (given as parameter_digest() of each), the network's state and its states by row, in
// the order of the network.
Digest state_digest(const Network& network, const std::vector<Digest>& parameters,
                    int64_t iteration);
Digest state_digest(const Network& network, const Solver& solver, int64_t iteration);
// The same with the network's state in other memory: state(k) returns host memory of state k.
Digest state_digest(const Network& network, const std::vector<Digest>& parameters,
                    int64_t iteration, const std::function<const void*(size_t k)>& state);

}  // namespace lockstep
