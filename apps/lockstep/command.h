// Common parts of the subcommands.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/lockstep/command_line.h"
#include "lockstep/base/os/file.h"
#include "lockstep/data/datastores/datastore.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/engine/nn/metrics/metric.h"

namespace lockstep::command {

inline constexpr int exit_failure = 1;
inline constexpr int exit_usage = 2;
inline constexpr int exit_not_tested = 3;
inline constexpr int exit_stopped = 130;  // exit code of shells after Ctrl-C

// The command with all its subcommands.
std::unique_ptr<Commands> all_commands();

// Each function adds its subcommand.
void add_train(Commands& commands);
void add_sweep(Commands& commands);
void add_cross_validate(Commands& commands);
void add_submit(Commands& commands);
void add_jobs(Commands& commands);
void add_cluster(Commands& commands);
void add_worker(Commands& commands);
void add_evaluate(Commands& commands);
void add_predict(Commands& commands);
void add_generate(Commands& commands);
void add_summary(Commands& commands);
void add_report(Commands& commands);
void add_dashboard(Commands& commands);
void add_verify(Commands& commands);
void add_verify_device(Commands& commands);
void add_diff(Commands& commands);
void add_architecture(Commands& commands);
void add_info(Commands& commands);
void add_export_digits(Commands& commands);
void add_preview(Commands& commands);
void add_runs(Commands& commands);
void add_upload(Commands& commands);
void add_shard(Commands& commands);
void add_reference(Commands& commands);
void add_completion(Commands& commands);
void add_man(Commands& commands);

// Shows a bar while a GPU is tested at its first use.
void show_device_tests_of_trainings();

// Adds the option --threads N, for subcommands that compute.
void add_threads(Subcommand& sub, int& threads);

// Adds the option --no-header, for subcommands that read tables.
void add_no_header(Subcommand& sub, bool& no_header);

// Exit codes that scripts may rely on, with their meaning.
struct ExitCode {
  int code;
  const char* meaning;
};
const std::vector<ExitCode>& exit_codes();

// Environment variables that the command and the library read.
struct Variable {
  const char* name;
  const char* meaning;
};
const std::vector<Variable>& environment();

// Writes to standard output. Throws FileError if that fails.
void print(const std::string& text);
// One line of JSON on standard output.
void print_json(const nlohmann::ordered_json& object);
// Prints lines "name  value" with aligned values.
void print_table(const std::vector<std::pair<std::string, std::string>>& rows);

// Prints "error:" and "hint:" lines on standard error.
void print_error(const std::string& message, const std::string& hint);

// Whether standard error is a terminal that supports more than lines, and whether it supports
// color.
bool error_is_terminal();
bool error_has_color();
// The number of columns of standard output; 100 if it is not a terminal.
int output_width();

// Loads a model from a file or from the folder of a run. Prints a note on standard error if the run
// is not finished or the file has no digest of its contents. Throws DataError.
Model open_model(const std::string& path);

// Prints "note: ..." on standard error.
void print_note(const std::string& text);
// Prints a note if a table names its columns, but the model does not.
void note_missing_names(const Model& model, const Datastore& data);

// For example "98.70 %"; "-" if the share is not finite.
std::string percent(double share);
// Shares in percent, other metrics as numbers.
std::string metric_text(const MetricValue& metric);
// For example {"f1": 0.98, ...}, with null for NaN.
nlohmann::ordered_json metrics_json(const std::vector<MetricValue>& metrics);
// Quotes the text as one word for a shell, if necessary.
std::string shell_word(const std::string& text);

}  // namespace lockstep::command
