// All values that iterations change, in memory that processes share.
#pragma once

#include <cstddef>

#include "lockstep/engine/nn/network.h"
#include "lockstep/train/optimizer/solver.h"

namespace lockstep {

// Parameters, network state, states by row and solver state in sequence, row-major. state_bytes()
// is their size in bytes. Not thread-safe for the same network.
size_t state_bytes(const Network& network, const Solver& solver);
void write_state(const Network& network, const Solver& solver, std::byte* to);
// Also updates the network's packed copies.
void read_state(const std::byte* from, Network& network, Solver& solver);

}  // namespace lockstep
