// Pages of runs: what a run's folder holds as data for a page, and the report, one file that needs
// nothing else.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

inline constexpr const char* report_name = "report.html";
inline constexpr size_t most_report_bytes = size_t{5} << 20;

// {"name", "folder", "state": {"status", "reason", "time", "iteration"}, "start":
//  what run.json says of the last start, "scores": {"test.f1": value} of the finished network,
//  "options": option_tables(), "network": {"layers": [{"name", "type", "inputs", "options":
//  layer_options(), "size", "parameters", "state"}], "totals", "loss"}, "log": columns of RunLog,
//  "confusion": confusion.json, "predictions": predictions.json, "profile": profile.json, "digest":
//  of the last iteration, "notes": [text]}. Parts without a file
// are missing; a note names a file that cannot be read. Throws InvalidArgument if the folder holds
// no run.
nlohmann::ordered_json run_data(const std::string& folder);

// JSON for a script element of a page: no character of it can end the element.
std::string json_for_page(const nlohmann::ordered_json& json);

// The report of a run as an HTML page without references, below most_report_bytes: if necessary,
// with fewer points of curves and without pictures, which a note says. `data` is that of
// run_data().
std::string report_page(nlohmann::ordered_json data);

// Writes report.html into the run's folder. Returns its path. Throws InvalidArgument if the folder
// holds no run, FileError if it cannot be written.
std::string write_report(const std::string& folder);

}  // namespace lockstep
