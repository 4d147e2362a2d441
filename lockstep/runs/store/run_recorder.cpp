#include "lockstep/runs/store/run_recorder.h"

#include <exception>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/os/host_name.h"
#include "lockstep/base/utc_time.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/store/run_store.h"
#include "lockstep/train/records/training_start.h"
#include "lockstep/train/state/fingerprint.h"

namespace lockstep {

RunRecorder::RunRecorder(const RunFolder& folder, const Job& job, std::string store,
                         std::string address, const RunTrial* trial,
                         std::function<void(const std::string& text)> notice)
    : folder_(folder),
      job_(job),
      store_(std::move(store)),
      address_(std::move(address)),
      trial_(trial),
      notice_(std::move(notice)),
      facts_(read_run_facts(folder.files(), folder.path())) {}

void RunRecorder::start(const TrainingStart& start) {
  RunFacts& f = facts_;
  if (f.id.empty()) f.id = make_run_id();
  if (f.created.empty()) f.created = utc_now();
  f.address = address_;
  f.host = host_name();
  f.version = LOCKSTEP_VERSION;
  f.device = to_string(start.device);
  f.threads = start.threads;
  f.workers = start.workers;
  f.iterations = start.iterations;
  f.iterations_per_epoch = start.iterations_per_epoch;
  f.first_iteration = start.first_iteration;
  f.observations = start.observations;
  f.validation_observations = start.validation_observations;
  f.data = start.data.to_string();
  if (trial_ != nullptr) {
    f.sweep = trial_->sweep;
    f.trial = trial_->number;
    f.variables = trial_->parameters;
  } else if (!job_.variables.empty()) {
    f.variables.clear();
    for (const auto& [name, value] : job_.variables) {
      f.variables.emplace_back(name, nlohmann::json(value).dump());
    }
  }
  if (!job_.given.empty()) f.given = job_.given;
  f.fingerprint.clear();
  for (const FingerprintEntry& entry : numerics_fingerprint(start.device)) {
    f.fingerprint.emplace_back(entry.name, entry.value);
  }
  f.scores.clear();
  write_run_facts(folder_.files(), folder_.path(), f);
  record(false);
}

void RunRecorder::finish(double seconds, std::vector<RunScore> scores) {
  facts_.seconds = seconds;
  facts_.scores = std::move(scores);
  write_run_facts(folder_.files(), folder_.path(), facts_);
}

void RunRecorder::record(bool at_end) {
  if (store_.empty()) return;
  std::string why;
  try {
    StoredRun run = read_stored_run(folder_.files(), folder_.path(), /*own_lock=*/true);
    if (!at_end) run.state.status = RunStatus::running;
    constexpr double wait_seconds = 5;  // a training does not wait longer for other processes
    RunStore(store_, wait_seconds).record(std::move(run));
    return;
  } catch (const std::exception& error) {
    why = error.what();
  }
  try {
    notice_(std::string("the ") + (at_end ? "end" : "begin") +
            " of this run is not recorded in the run store: " + why);
  } catch (const std::exception&) {  // the log cannot be written either
  }
}

}  // namespace lockstep
