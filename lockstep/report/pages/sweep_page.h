// Pages of sweeps: the record of a sweep as data for a page, and its report.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

// Whether the folder holds a sweep.
bool holds_sweep(const std::string& folder);

// {"name", "folder", "metric", "goal": "maximize" | "minimize", "budget": epochs of a complete
// trial, "trials": [{"trial", "parameters": {name: value}, "value": of the metric at the largest
// budget, mean of the repeats, "budget": epochs reached, "state", "reason", "final", "pruned",
// "folder", "curve": {"x": epochs, "y": the metric at each validation}}], "best": trial or null,
// "result": result.json, "confusion": confusion.json, "notes": [text]}, from the files of the
// sweep's folder (docs/internals/sweeps.md). Lines that are not valid are left out. Throws
// InvalidArgument if the folder holds no sweep.
nlohmann::ordered_json sweep_data(const std::string& folder);

// Writes report.html into the sweep's folder and into those of its trials, to which it leads.
// Returns its path. Throws as sweep_data(), and
// FileError if it cannot be written.
std::string write_sweep_report(const std::string& folder);

}  // namespace lockstep
