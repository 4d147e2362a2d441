// The law on random networks: the result is the same for any threads and workers, any stop, any
// loss of a worker, and any previous contents of memory.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::random_networks {

// Differences from the training by one thread, one per line; none if the law holds. With `workers`,
// worker processes are tested, too. Cases of the form "tape" are only computed over filled memory.
std::vector<std::string> broken_laws(const nlohmann::ordered_json& description, bool workers);

}  // namespace lockstep::random_networks
