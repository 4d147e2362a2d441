#include "lockstep/runs/jobs/job_difference.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kSchedules = "learning_rate_schedule";
constexpr const char* kScheduleEpochs = "schedule_epochs";

// A list with one element may be written as that element.
ordered_json list_of(const ordered_json& value) {
  return value.is_array() ? value : ordered_json::array({value});
}

std::string difference(const ordered_json& here, const ordered_json& there, const std::string& at) {
  const auto shown = [](const ordered_json& value) {
    std::string text = value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    return text.size() > 60 ? text.substr(0, 60) + "..." : text;
  };
  if (here == there) return "";
  if (here.is_object() && there.is_object()) {
    for (const auto& [key, value] : here.items()) {
      const std::string path = at.empty() ? key : at + "." + key;
      if (!there.contains(key)) return path + ": not there, " + shown(value) + " here";
      const std::string found = difference(value, there[key], path);
      if (!found.empty()) return found;
    }
    for (const auto& [key, value] : there.items()) {
      if (!here.contains(key)) {
        return (at.empty() ? key : at + "." + key) + ": " + shown(value) + " there, not here";
      }
    }
    return "";  // only the order of keys differs
  }
  if (here.is_array() && there.is_array() && here.size() == there.size()) {
    for (size_t i = 0; i < here.size(); ++i) {
      const bool named =
          here[i].is_object() && here[i].contains("name") && here[i]["name"].is_string();
      const std::string path =
          at + "[" + (named ? here[i]["name"].get<std::string>() : std::to_string(i)) + "]";
      const std::string found = difference(here[i], there[i], path);
      if (!found.empty()) return found;
    }
    return "";
  }
  if (here.is_array() && there.is_array()) {
    return at + ": " + counted(there.size(), "entry", "entries") + " there, " +
           std::to_string(here.size()) + " here";
  }
  return at + ": " + shown(there) + " there, " + shown(here) + " here";
}

// Adds missing fields, which later versions have added, with their defaults.
template <class Fields>
void fill(ordered_json& job, const char* table) {
  ordered_json defaults;
  FieldWriter writer(defaults);
  Fields fields;
  fields.visit(writer);
  if (!job.contains(table)) job[table] = ordered_json::object();
  ordered_json& there = job[table];
  if (!there.is_object()) return;
  for (const auto& [name, value] : defaults.items()) {
    if (!there.contains(name)) there[name] = value;
  }
}

void fill_network(ordered_json& job) {
  if (!job.contains("network")) return;
  try {
    job["network"] = Network::from_json(json(job["network"])).to_json();
  } catch (const Error&) {
    // An invalid network is compared unchanged.
  }
}

ordered_json filled(ordered_json job) {
  if (!job.is_object()) return job;
  fill<JobData>(job, "data");
  fill<Augmentation>(job, "augmentation");
  fill<InputNoise>(job, "noise");
  fill<TrainingOptions>(job, "training");
  fill_network(job);
  return job;
}

// For a filled job: whether the last part of its schedule lasts until max_epochs.
bool follows_max_epochs(const ordered_json& job) {
  if (!job.is_object() || !job["training"].is_object()) return false;
  const ordered_json& training = job["training"];
  const ordered_json names = list_of(training[kSchedules]);
  if (names.empty() || !names.back().is_string() || !training["max_epochs"].is_number()) {
    return false;
  }
  return list_of(training[kScheduleEpochs]).size() < names.size() &&
         rates_depend_on_length(names.back().get<std::string>());
}

// Writes the epochs of all parts of the schedule, including the last.
void write_out_schedule(ordered_json& training) {
  auto left = training["max_epochs"].get<double>();
  ordered_json all = list_of(training[kScheduleEpochs]);
  for (const ordered_json& epochs : all) {
    if (epochs.is_number()) left -= epochs.get<double>();
  }
  all.push_back(left);
  training[kScheduleEpochs] = all.size() == 1 ? all[0] : all;
}

// A filled job without the fields that may differ.
ordered_json comparable(ordered_json job) {
  if (!job.is_object()) return job;
  job.erase("name");
  job.erase("columns");             // of its data, see run_columns()
  job.erase("initial_model_file");  // its digest counts, wherever it is
  ordered_json& training = job["training"];
  if (!training.is_object()) return job;
  if (follows_max_epochs(job)) write_out_schedule(training);
  for (const auto& field : TrainingOptions::free_fields()) training.erase(field);
  for (const auto& field : TrainingOptions::ending_fields()) training.erase(field);
  training.erase("verbose_frequency");
  // The index of the GPU does not matter.
  ordered_json& device = training["device"];
  if (device.is_string() && device.get<std::string>().starts_with("cuda")) device = "cuda";
  return job;
}

// For jobs that differ only in the length of their schedule. `epochs` is the length in `there`.
JobDifference other_schedule(const ordered_json& here, const ordered_json& there,
                             const ordered_json& epochs) {
  const ordered_json &mine = here["training"], &theirs = there["training"];
  const std::string more = mine["max_epochs"].dump();
  return {.what = "training.max_epochs: " + theirs["max_epochs"].dump() + " there, " + more +
                  " here, and the schedule " + list_of(mine[kSchedules]).back().dump() +
                  " has the same length: the learning rates of finished iterations would differ",
          .hint =
              "train again into another folder with --out, or keep the length of the schedule "
              "and continue at its last rate: --set max_epochs=" +
              more + " --set 'schedule_epochs=" + epochs.dump() + "'"};
}

}  // namespace

JobDifference job_difference(const ordered_json& here, const ordered_json& there) {
  const ordered_json mine = filled(here), theirs = filled(there);
  ordered_json left = comparable(mine);
  const ordered_json right = comparable(theirs);
  JobDifference found{difference(left, right, ""), ""};
  if (found.what.empty() || !follows_max_epochs(mine) || !follows_max_epochs(theirs)) return found;
  left["training"][kScheduleEpochs] = right["training"][kScheduleEpochs];
  if (!difference(left, right, "").empty()) return found;
  return other_schedule(mine, theirs, right["training"][kScheduleEpochs]);
}

ordered_json with_end_of(const ordered_json& here, ordered_json there) {
  const auto take = [&](const std::string& field) {
    if (here["training"].contains(field)) there["training"][field] = here["training"][field];
  };
  for (const auto& field : TrainingOptions::ending_fields()) take(field);
  take(kScheduleEpochs);
  return there;
}

}  // namespace lockstep
