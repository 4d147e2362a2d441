// Computes a case with the library under test, and notes all that a reference needs and all that
// it is compared with.
#pragma once

#include "lockstep/base/thread_pool.h"
#include "tests/random_networks/frame.h"

namespace lockstep::random_networks {

// Calls `done` with the frame of each iteration (of a tape's case: one). What the library throws
// leaves it.
void compute_case(const nlohmann::ordered_json& description, ThreadPool& pool,
                  const std::function<void(Frame& frame)>& done);

}  // namespace lockstep::random_networks
