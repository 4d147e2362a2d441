// Job files for the architectures that the field calls by name.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

// The job file of an architecture with the given fields of its options (see nn/architectures.h):
// its network, layer by layer, with data and a training to begin with. Networks of 28 x 28 x 1
// pixels and ten classes train on the built-in digits, others name a folder to be replaced. Throws
// InvalidArgument for unknown names and fields.
std::string architecture_job(const std::string& name, const nlohmann::json& fields);

}  // namespace lockstep
