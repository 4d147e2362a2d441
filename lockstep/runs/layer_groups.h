// Groups of repeated layers in job files, written out.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/fields.h"

namespace lockstep {

// The flat list of layers that the entries of [network] describe: groups repeated, names suffixed
// and references resolved (as job_file.h says), expressions evaluated, every field present and
// every layer named. `line_of` gives what to say about the place of an entry, such as "line 12",
// from its JSON pointer ("/network/layers/3"), or "". Throws InvalidArgument naming the entry:
// unknown layers and fields, counts of repetitions that are no whole number >= 0, more than
// `max_layers` layers.
nlohmann::ordered_json expand_layers(
    const nlohmann::json& network, const FieldReader::Expression& expression, int64_t max_layers,
    const std::function<std::string(const std::string& pointer)>& line_of);

}  // namespace lockstep
