// The runs that a dashboard shows, with a summary of each that follows its log.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep {

// Runs in folders, found again from time to time. Reading is incremental: a log that has grown is
// read from where it ended, and folders that have not changed are not read. Thread-safe.
class RunList {
 public:
  // `folders`: runs, or folders with runs in them or in sub-folders (up to three levels below).
  // `store`: the folder of the run store, for the numbers of runs, or "".
  RunList(std::vector<std::string> folders, std::string store);
  ~RunList();
  RunList(const RunList&) = delete;
  RunList& operator=(const RunList&) = delete;

  // Looks for new runs if the last search is older than a few seconds, and follows the logs.
  void refresh();

  // [{"id", "folder", "name", "status", "time", "created", "iteration", "iterations",
  // "iterations_per_epoch", "epoch", "elapsed", "loss", "accuracy", "validation_loss",
  // "validation_accuracy", "best_loss", "best_accuracy", "metrics": {name: last value}, "best":
  // {name: value}, "scores": {"test.f1": value}, "rate", "tags", "note", "damage": text or null,
  // "changed": version}]: those whose summary has changed after version `since`. "name" is
  // run_name().
  nlohmann::ordered_json summaries(int64_t since = 0) const;
  int64_t version() const;
  // The ids of the runs for which a condition holds (run_filter.h). The first call reads the whole
  // logs, later ones what was appended. Throws what RunFilter throws.
  std::vector<std::string> fitting(const std::string& filter);
  // In what these runs, or all, differ: differing_options() with "values" by id. Unknown ids are
  // left out.
  nlohmann::ordered_json differences(const std::vector<std::string>& ids) const;
  // [{"id", "folder"}] of sweeps in the folders. Their trials are among the runs.
  nlohmann::ordered_json sweeps() const;
  // The folder of a run or a sweep, or "" for an unknown id.
  std::string folder(const std::string& id) const;

  // Sets the user's tags and note of a run, which are in notes.json in its folder. Throws
  // InvalidArgument for an unknown id or texts that are too long, FileError.
  void annotate(const std::string& id, const std::vector<std::string>& tags,
                const std::string& note);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
