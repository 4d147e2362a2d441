// Whether a job can go on with the run of another one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

// Why one of two resolved jobs (Job::resolved()) cannot go on with a run of the other.
struct JobDifference {
  std::string what;  // "training.momentum: 0.9 there, 0.8 here": the first field; "": it can
  std::string hint;  // what to do; "": nothing in particular
};

// The name and what only speed, memory and output depend on may differ, and so may what only says
// when the training ends, unless a schedule lasts as long. Fields that one has not are taken for
// their defaults, so that a job of an earlier version is compared with one of this. Thread-safe.
JobDifference job_difference(const nlohmann::ordered_json& here,
                             const nlohmann::ordered_json& there);

// `there` with those options of `here` that only say when the training ends, and with its
// schedule: the job of a run that goes on. Thread-safe.
nlohmann::ordered_json with_end_of(const nlohmann::ordered_json& here,
                                   nlohmann::ordered_json there);

}  // namespace lockstep
