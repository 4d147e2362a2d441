// The form of identities in checkpoints before identities had a version. It contains every option
// with its value, including max_epochs and validation_patience. Receipts of such trainings begin
// with its digest, so these trainings can only continue with the same options.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lockstep/train/state/identity.h"

namespace lockstep {

// The arguments are those of identity_of(). Thread-safe.
nlohmann::ordered_json first_identity_of(const Network& network, const TrainingData& data,
                                         const TrainingOptions& options, const Listings& listings);

// Whether an identity has that form. Thread-safe.
bool is_first_identity(const nlohmann::ordered_json& identity);

}  // namespace lockstep
