// The table [network] of a job file.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/base/fields.h"

namespace lockstep {

struct TomlTree;  // base/toml/toml_tree.h: the source of a job

// Its keys, for documentation. Some of them are not plain fields.
std::vector<FieldInfo> network_fields();

// Reads the table of a job: the description for Network::from_json(), with all fields. `resolve`
// makes the path of `from` absolute, which is set. `target_scaling`: see JobData. Throws
// InvalidArgument, naming the field or the layer with its line, and what model_network() throws.
nlohmann::ordered_json read_network(const TomlTree& source,
                                    const FieldReader::Expression& expression,
                                    const std::function<std::string(const std::string&)>& resolve,
                                    const std::string& target_scaling, std::string& from);

}  // namespace lockstep
