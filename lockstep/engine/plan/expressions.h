// Combines neighboring instructions of a graph (Op::instruction) to expressions, which read and
// write memory once, views that they read (Op::view), and a reduction that follows. On the CPU it
// then needs no memory for what it reduces, where rows or columns follow each other.
#pragma once

#include "lockstep/engine/plan/derivatives.h"

namespace lockstep {

// The graph with expressions in place of instructions whose results nothing else needs. Cheap ones
// are computed by each of two expressions. Each instruction is rounded as alone, so the bits are
// the same. `sums`: also combines sums of derivatives with instructions. Thread-safe.
DifferentiatedGraph with_expressions(const DifferentiatedGraph& graph, bool sums);

}  // namespace lockstep
