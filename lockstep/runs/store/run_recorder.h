// Records a run in its folder (run.json) and in the run store, at its begin and its end.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runs/folders/run_facts.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/train/records/observer.h"

namespace lockstep {

// A run that belongs to a sweep.
struct RunTrial {
  std::string sweep;   // a name for the sweep, unique in the store
  int64_t number = 0;  // of the trial, from 1
  // The values of the sweep's parameters, as JSON text.
  std::vector<std::pair<std::string, std::string>> parameters;
};

// An observer of the run. Not thread-safe. Problems of the store never end a training: `notice`
// receives what was not recorded and why.
class RunRecorder : public TrainingObserver {
 public:
  // `store` is the folder of the store; "": none. `address`: see RunFacts. `trial` may be null.
  RunRecorder(const RunFolder& folder, const Job& job, std::string store, std::string address,
              const RunTrial* trial, std::function<void(const std::string& text)> notice);

  // Writes run.json. Throws FileError if the folder cannot be written.
  void start(const TrainingStart& start) override;
  // Adds the scores of the finished network to run.json. Throws FileError.
  void finish(double seconds, std::vector<RunScore> scores);
  // Records the folder in the store as it is now. Never throws.
  void record(bool at_end);

 private:
  const RunFolder& folder_;
  const Job& job_;
  std::string store_, address_;
  const RunTrial* trial_;
  std::function<void(const std::string& text)> notice_;
  RunFacts facts_;
};

}  // namespace lockstep
