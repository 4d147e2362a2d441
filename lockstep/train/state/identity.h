// The identity of a training. A checkpoint and its continuation must have the same identity, and
// the chain of a receipt begins with its digest.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "lockstep/base/digest.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/input/training_images.h"

namespace lockstep {

struct TrainingOptions;

// Version of the form that identity_of() writes. Version 1 did not name itself.
inline constexpr int64_t identity_version = 2;

// Everything other than the numerics fingerprint that the bits depend on, in a canonical form: a
// flat, sorted object with names like "training.l2". Fields with default values have no entry, so a
// new option does not change identities. The defaults are part of the form. Options that affect
// only speed or only the end of the training (TrainingOptions::free_fields(), ending_fields()) are
// omitted. Schedules are represented by the iterations of their parts. `options` are resolved.
// Thread-safe.
nlohmann::ordered_json identity_of(const Network& network, const TrainingData& data,
                                   const TrainingOptions& options, const Listings& listings,
                                   int64_t iterations_per_epoch);

// The value of a receipt's chain before its first line. Thread-safe.
Digest first_link(const nlohmann::ordered_json& identity);

// The reason why a training cannot continue from a checkpoint.
struct IdentityDifference {
  std::string what, hint;
};

// The difference if two identities differ only in the lengths of the schedules' parts. `there` is
// the checkpoint's identity. Thread-safe.
std::optional<IdentityDifference> schedule_difference(const nlohmann::ordered_json& here,
                                                      const nlohmann::ordered_json& there);

}  // namespace lockstep
