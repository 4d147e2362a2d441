// Job files for well-known architectures.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

// The job file of an architecture with the given fields of its options (see
// engine/nn/architectures/architectures.h): the network layer by layer, with data and initial
// training options. If the network has 28 x 28 x 1 inputs and ten classes, the data are the
// built-in digits. Else the job names a folder that the user replaces. Throws InvalidArgument for
// unknown names and fields.
std::string architecture_job(const std::string& name, const nlohmann::json& fields);

}  // namespace lockstep
