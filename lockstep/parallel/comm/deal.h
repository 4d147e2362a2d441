// Who gets which leaves of the tree.
#pragma once

#include <span>
#include <vector>

#include "lockstep/parallel/comm/tree.h"

namespace lockstep {

// Deals leaves to workers in order, each a run. `loads`: how much each shall get beside the others,
// >= 0; none for 0. The slowest (count / load) is as fast as can be; among such deals, those who
// have a load get a leaf where there are enough, and as few partial sums remain as possible. It is
// a function of the arguments alone. Thread-safe. Throws InvalidArgument for no load at all.
std::vector<LeafRun> deal_leaves(int64_t leaves, std::span<const double> loads);

}  // namespace lockstep
