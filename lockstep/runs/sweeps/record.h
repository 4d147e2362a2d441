// The record of a sweep: sweep.jsonl in its folder, one JSON object a line.
// docs/internals/sweeps.md describes it. Each line is on stable storage before its consequences
// begin.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/base/os/file.h"
#include "lockstep/runs/sweeps/schedule.h"

namespace lockstep {

inline constexpr const char* sweep_record_name = "sweep.jsonl";

// A name for the time now, "2026-11-23T20:23:14Z".
std::string sweep_time();

// Decisions and results as lines. They contain no times, hosts or paths.
nlohmann::ordered_json to_json(int64_t decision, const SweepDecision& what);
nlohmann::ordered_json to_json(const TrialResult& result);
nlohmann::ordered_json to_json(const TrialParameters& parameters);
// Throw nlohmann::json::exception for other contents.
SweepDecision decision_from(const nlohmann::ordered_json& line);
TrialResult result_from(const nlohmann::ordered_json& line);

// The lines of a record. An incomplete last line (of a process that was killed) is left out. Throws
// FileError, and DataError naming a line that is not a JSON object.
std::vector<nlohmann::ordered_json> read_sweep_record(FileSystem& files, const std::string& path);

// Appends lines. Not thread-safe.
class SweepRecord {
 public:
  // Continues an existing file; an incomplete last line is removed. Throws FileError.
  SweepRecord(FileSystem& files, const std::string& path);
  // Returns when the line is on stable storage. Throws FileError.
  void append(const nlohmann::ordered_json& line);

 private:
  std::unique_ptr<WritableFile> file_;
};

}  // namespace lockstep
