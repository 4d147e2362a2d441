// A run as the store keeps it: a summary of what the run's folder contains.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/os/file.h"
#include "lockstep/runs/folders/run_facts.h"
#include "lockstep/runs/folders/run_state.h"

namespace lockstep {

// A metric over the course of a run: "training.loss", "validation.accuracy", "validation.f1". The
// scores of the finished network ("test.loss") have one value.
struct MetricSummary {
  std::string name;
  double last = 0, best = 0;
  int64_t last_iteration = 0, best_iteration = 0;
};

// Whether larger values of a metric are better. Losses and errors are better if they are small.
bool larger_values_are_better(const std::string& metric);

struct Artifact {
  std::string name;  // of a file in the folder
  int64_t bytes = 0;
};

struct StoredRun {
  int64_t number = 0;  // in the store; never used again
  std::string folder;  // absolute; the address of a run in an S3 store
  std::string name;    // of the job
  RunState state;
  int64_t iteration = 0, epoch = 0;  // the last one in the log
  std::string receipt;               // the last chain of the receipt
  RunFacts facts;
  RunNotes notes;
  // Every option of the job with a dotted name, as JSON text: training.max_epochs, data.train,
  // network.layers.<layer>.units.
  std::vector<std::pair<std::string, std::string>> options;
  std::vector<MetricSummary> metrics;
  std::vector<Artifact> artifacts;
};

// The options of a job (job.json) as a StoredRun has them. Thread-safe.
std::vector<std::pair<std::string, std::string>> options_of_job(nlohmann::ordered_json job);

// The folder in which a run lies on this machine: its folder, or the local copy of a run in an S3
// store, which exists while it is trained.
std::string local_folder(const StoredRun& run);

// The reverse: `folder` of the StoredRun in a folder with these facts.
std::string stored_folder(const std::string& folder, const RunFacts& facts);

// The run's own name, by its folder: "digits-2", "first"; "search/3" for a trial of a sweep.
// `longer` parts of the path more, for runs in different folders with one name.
std::string run_name(const StoredRun& run, int longer = 0);

// The run in a folder. Files that are damaged or missing leave their parts empty. Throws
// InvalidArgument if the folder contains no run. Thread-safe. `own_lock`: see run_state().
StoredRun read_stored_run(FileSystem& files, const std::string& folder, bool own_lock = false);

// A run in a folder of this machine that is read again from time to time: of a log only what was
// appended, and files that have not changed not at all. Without artifacts. Not thread-safe.
class StoredRunFollower {
 public:
  explicit StoredRunFollower(const std::string& folder);
  ~StoredRunFollower();
  StoredRunFollower(StoredRunFollower&&) noexcept;

  const StoredRun& read();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// All but the number as JSON text, and the reverse. Throws DataError.
std::string to_text(const StoredRun& run);
StoredRun stored_run_of(const std::string& text);

}  // namespace lockstep
