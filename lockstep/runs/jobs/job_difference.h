// Checks whether a job can continue the run of another job.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

// The reason why one of two resolved jobs (Job::resolved()) cannot continue a run of the other.
struct JobDifference {
  std::string what;  // the first difference, "training.momentum: 0.9 there, 0.8 here"; "": none
  std::string hint;  // a remedy; "": none in particular
};

// Ignores the name and options that affect only speed, memory and output. Also ignores options that
// only determine when the training ends, unless a schedule depends on them. Missing fields have
// their defaults, so that a job of an earlier version can be compared. Thread-safe.
JobDifference job_difference(const nlohmann::ordered_json& here,
                             const nlohmann::ordered_json& there);

// Returns `there` with the schedule of `here` and those options of `here` that only determine when
// the training ends. This is the job of a continued run. Thread-safe.
nlohmann::ordered_json with_end_of(const nlohmann::ordered_json& here,
                                   nlohmann::ordered_json there);

}  // namespace lockstep
