// Computes a case with the library and records the inputs for a reference and the results for the
// comparison.
#pragma once

#include "lockstep/base/threads/thread_pool.h"
#include "tests/random_networks/frame.h"

namespace lockstep::random_networks {

// Calls `done` with the frame of each iteration (one for the form "tape"). Exceptions of the
// library are passed on.
void compute_case(const nlohmann::ordered_json& description, ThreadPool& pool,
                  const std::function<void(Frame& frame)>& done);

}  // namespace lockstep::random_networks
