// The data of a case: the network's values and mini-batches, as functions of seed and number.
#pragma once

#include <nlohmann/json.hpp>

#include "lockstep/data/batches/mini_batch_queue.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep::random_networks {

// Sets parameters by their initializers, shifted so that none is 0 or 1 for all elements, and
// states as in a running training.
void fill_network(Network& network, const nlohmann::ordered_json& description);

// A mini-batch for a network of one input; `iteration` from 1.
MiniBatch make_batch(const Network& network, const nlohmann::ordered_json& description,
                     int64_t iteration);

// Observations for each input of a network.
std::vector<Tensor> make_inputs(const Network& network, const nlohmann::ordered_json& description);

}  // namespace lockstep::random_networks
