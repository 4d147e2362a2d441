// Makes random networks, each a function of a seed and its number.
//
// A case is JSON, so that it can be read, changed and run again:
//   {"seed", "case", "form": "training" | "tape", "rows", "layers", "loss",
//    "training": {fields of TrainingOptions}, "iterations", "lanes": images in lanes anywhere}
// "training": one input, one output, a loss; computed by the trainer's step in shards.
// Cases of sequences (sequence_maker.h) have "steps" and "lengths", too.
// "tape": any inputs and outputs; computed by Network::forward_all and the tape.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/engine/nn/network.h"
#include "lockstep/train/options/options.h"

namespace lockstep::random_networks {

nlohmann::ordered_json make_case(uint64_t seed, uint64_t number);

// Kernels that are made afterwards use the layouts that the case requires.
Network network_of(const nlohmann::ordered_json& description);
TrainingOptions options_of(const nlohmann::ordered_json& description);

}  // namespace lockstep::random_networks
