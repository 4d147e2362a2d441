// The form that identities had in checkpoints before they had a version: every option with its
// value, max_epochs and validation_patience among them. Receipts of such trainings are chained to
// it, so that those trainings go on only as they began.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lockstep/train/identity.h"

namespace lockstep {

// Arguments as for identity_of(). Thread-safe.
nlohmann::ordered_json first_identity_of(const Network& network, const TrainingData& data,
                                         const TrainingOptions& options, const Listings& listings);

// Whether an identity has that form. Thread-safe.
bool is_first_identity(const nlohmann::ordered_json& identity);

}  // namespace lockstep
