// What makes a training the same training: what a checkpoint and its continuation must agree in,
// and what a receipt's chain begins with.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "lockstep/base/digest.h"
#include "lockstep/train/trainer.h"

namespace lockstep {

// Digests of what is trained and validated on.
struct Listings {
  Digest training, validation, training_targets, validation_targets;
};

// Of the form that identity_of() writes. The first form had no number; see first_identity.h.
inline constexpr int64_t identity_version = 2;

// All that the bits depend on besides the numerics fingerprint, in a canonical form: one flat,
// sorted object of names like "training.l2". What has its default value has no entry, so that an
// option that is added later changes no identity; the defaults belong to the form. Options that
// only speed depends on, or only when the training ends (TrainingOptions::free_fields(),
// ending_fields()), are left out. Schedules are there with the iterations that their parts last.
// `options` are resolved. Thread-safe.
nlohmann::ordered_json identity_of(const Network& network, const TrainingData& data,
                                   const TrainingOptions& options, const Listings& listings,
                                   int64_t iterations_per_epoch);

// The chain of a receipt before its first line. Thread-safe.
Digest first_link(const nlohmann::ordered_json& identity);

// Why a training cannot go on where a checkpoint ended.
struct IdentityDifference {
  std::string what, hint;
};

// Where two identities differ in how long the parts of their schedules last, and in nothing else;
// `there` is the checkpoint's. Thread-safe.
std::optional<IdentityDifference> schedule_difference(const nlohmann::ordered_json& here,
                                                      const nlohmann::ordered_json& there);

}  // namespace lockstep
