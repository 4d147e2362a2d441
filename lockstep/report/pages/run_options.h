// The options of runs as pages show them: what the user set, and in what runs differ.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/runs/folders/run_facts.h"

namespace lockstep {

// [{"name": table, "fields": [{"name", "value", "default", "set", "help"}]}] of a job (job.json):
// the variables of the run, if it has any, and each table but [network]. `set`: the job file or a
// setting named the option, or, if that is not known, its value is not the default. Values are
// texts. Thread-safe.
nlohmann::ordered_json option_tables(const nlohmann::ordered_json& job, const RunFacts& facts);

// "filters 20, kernel 5": the fields of a layer of a job that differ from their defaults, without
// its name, type and inputs. Thread-safe.
std::string layer_options(const nlohmann::ordered_json& layer);

// In what the runs in these folders differ: {"names": ["variables.width", "training.seed",
// "network.layers.fc.units"], "set": [whether one of the runs set it], "values": [for each folder
// [text or null, for each name]], "left_out": further names beyond `most`}. Variables come first,
// then what was set, other options, and the network. A folder without a job has nulls. Thread-safe.
nlohmann::ordered_json differing_options(const std::vector<std::string>& folders, size_t most);

}  // namespace lockstep
