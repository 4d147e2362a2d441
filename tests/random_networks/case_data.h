// The data of a case: values of a network and mini-batches, functions of seed and number.
#pragma once

#include <nlohmann/json.hpp>

#include "lockstep/data/mini_batch_queue.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep::random_networks {

// Learnables by their initialisers, moved so that none is 0 or 1 for all elements; states that
// look like those of a training under way.
void fill_network(Network& network, const nlohmann::ordered_json& description);

// A mini-batch for a network of one input; `iteration` from 1.
MiniBatch make_batch(const Network& network, const nlohmann::ordered_json& description,
                     int64_t iteration);

// Observations for each input of a network.
std::vector<Tensor> make_inputs(const Network& network, const nlohmann::ordered_json& description);

}  // namespace lockstep::random_networks
