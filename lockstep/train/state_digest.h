// The digest that the law speaks of.
#pragma once

#include <functional>

#include "lockstep/base/digest.h"
#include "lockstep/train/solver.h"

namespace lockstep {

// Of one learnable and its solver state, row-major.
Digest learnable_digest(const Network& network, const Solver& solver, size_t index);

// Of a network's learnables and state: what a loop of one's own compares.
Digest network_digest(const Network& network);

// Of everything after iteration `iteration`: the counter, all learnables with their solver state
// (given as learnable_digest() of each), and the network's state, in the order of the network.
Digest state_digest(const Network& network, const std::vector<Digest>& learnables,
                    int64_t iteration);
Digest state_digest(const Network& network, const Solver& solver, int64_t iteration);
// The same with the network's states where the caller has them: `state(k)` is host memory.
Digest state_digest(const Network& network, const std::vector<Digest>& learnables,
                    int64_t iteration, const std::function<const void*(size_t k)>& state);

}  // namespace lockstep
