// Fields of stored runs by name, and filters over them.
//
// Fields: number, name, state, reason, folder, note, tag, archived, created, ended, seconds,
// iteration, epoch, host, version, device, threads, workers, data, receipt, sweep, trial;
// metrics ("validation.loss": the last value, with ".best" the best one); variables of the job
// ("depth"); options by their dotted name ("training.max_epochs", "network.layers.fc.units") or,
// for those of other tables than [network], by their last name ("max_epochs").
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/runs/store/stored_run.h"

namespace lockstep {

// A number or a text. Truth values are 1 and 0.
using RunValue = std::variant<double, std::string>;

// The values of a field. None if the run does not have it; several for tags. Throws InvalidArgument
// if the name is the last name of several options with different values.
std::vector<RunValue> values_of(const StoredRun& run, const std::string& field);

// "0.05", "adam"; several values separated by blanks.
std::string text_of(const std::vector<RunValue>& values);

// A condition over runs, such as
//
//   validation.loss < 0.5 and (depth = 2 or not state = finished) and name ~ digits
//
// Comparisons: = (also ==), !=, <, <=, >, >=, and ~ (contains). A field alone means that the run
// has it. Text may stand in quotes. A comparison with a field that the run does not have is false.
class RunFilter {
 public:
  // Throws InvalidArgument with the position of the problem.
  explicit RunFilter(const std::string& text);
  ~RunFilter();
  RunFilter(const RunFilter&) = delete;
  RunFilter& operator=(const RunFilter&) = delete;

  // Throws InvalidArgument if no run has one of the fields; the hint is the nearest name.
  std::vector<StoredRun> of(const std::vector<StoredRun>& runs) const;

  struct Node;

 private:
  std::unique_ptr<Node> root_;
};

// Throws InvalidArgument with the nearest name if none of the runs (at least one) has the field.
void require_field(const std::vector<StoredRun>& runs, const std::string& field);

}  // namespace lockstep
