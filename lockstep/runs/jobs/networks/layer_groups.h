// Expansion of repeated layer groups in job files.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/base/fields.h"

namespace lockstep {

// Expands the entries of [network] to a flat list of layers. Groups are repeated, names get
// suffixes and references are resolved (see job_file.h). Expressions are evaluated, every field is
// present and every layer has a name. `line_of` returns the line of an entry for messages, for
// example "line 12", from its JSON pointer ("/network/layers/3"), or "". Throws InvalidArgument
// naming the entry for unknown layers and fields, for a `repeat` that is not a whole number >= 0,
// and for more than `max_layers` layers. `pointers` receives the JSON pointer of each layer's
// entry; repetitions of a layer have the same one.
nlohmann::ordered_json expand_layers(
    const nlohmann::json& network, const FieldReader::Expression& expression, int64_t max_layers,
    const std::function<std::string(const std::string& pointer)>& line_of,
    std::vector<std::string>* pointers = nullptr);

}  // namespace lockstep
