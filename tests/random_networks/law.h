// The law on random networks: one outcome whoever computes, wherever it stops, and whatever memory
// held before.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::random_networks {

// What differs from the training by one thread, a line each; none where the law holds. With
// `workers` worker processes take part, too. Cases of the form "tape" are computed over filled
// memory alone.
std::vector<std::string> broken_laws(const nlohmann::ordered_json& description, bool workers);

}  // namespace lockstep::random_networks
