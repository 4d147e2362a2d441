// Random networks of sequences of different lengths.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/engine/nn/network.h"

namespace lockstep::random_networks {

// Whether a case is one of these. Drawn by itself, so that other cases stay as they were.
bool is_of_sequences(uint64_t seed, uint64_t number);

// A case in the form "tape" with "steps", the room of its tensors, and "lengths", one for each row:
// all of them 1, all equal, or random, also 0.
nlohmann::ordered_json make_sequence_case(uint64_t seed, uint64_t number);

// The sequences, and their lengths as Network::forward() takes them. What follows their ends is
// large, so that a layer that reads it is noticed.
Tensor make_sequences(const Network& network, const nlohmann::ordered_json& description);
Tensor lengths_of(const nlohmann::ordered_json& description);

// n x steps x ...: zeros after the ends of sequences.
Tensor without_padding(const Tensor& values, const nlohmann::ordered_json& description);

}  // namespace lockstep::random_networks
