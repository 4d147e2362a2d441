// Combines neighboring instructions of a graph (Op::instruction) to expressions, which read and
// write memory once, and a reduction that follows, which then needs no memory for what it reduces.
#pragma once

#include "lockstep/engine/plan/derivatives.h"

namespace lockstep {

// The graph with expressions in place of instructions whose results nothing else needs. Cheap ones
// are computed again by each of two readers. Each instruction is rounded as alone, so the bits are
// the same. `sums`: also combines sums of derivatives with instructions. Thread-safe.
DifferentiatedGraph with_expressions(const DifferentiatedGraph& graph, bool sums);

}  // namespace lockstep
