// What makes a training the same training: what a checkpoint and its continuation must agree in.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lockstep/base/digest.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

// Digests of what is trained and validated on.
struct Listings {
  Digest training, validation, training_targets, validation_targets;
};

// All that the bits depend on besides the numerics fingerprint; options that only speed depends on
// (TrainingOptions::free_fields()) are left out. `options` are resolved. Thread-safe.
nlohmann::ordered_json identity_of(const Network& network, const TrainingData& data,
                                   const TrainingOptions& options, const Listings& listings);

}  // namespace lockstep
