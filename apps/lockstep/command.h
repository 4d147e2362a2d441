// What the subcommands share.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/engine/nn/metric.h"

namespace lockstep::command {

inline constexpr int exit_failure = 1;
inline constexpr int exit_usage = 2;
inline constexpr int exit_stopped = 130;  // as shells say it for Ctrl-C

// What the chosen subcommand does; gives the exit code.
using Action = std::function<int()>;

struct Example {
  std::string line, meaning;
};

// A subcommand, and what is said about it besides its options: help, manual and completion are made
// from these.
struct Page {
  CLI::App* command = nullptr;
  std::string details;  // paragraphs, an empty line between them
  std::vector<Example> examples;
};

// The command with all its subcommands.
class Commands {
 public:
  Commands();
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  CLI::App& app() { return app_; }
  const CLI::App& app() const { return app_; }
  const std::vector<Page>& pages() const { return pages_; }
  // That of the subcommand which parsing chose.
  const Action& action() const { return action_; }

  // For the functions below. `purpose` is one line.
  CLI::App* add(const std::string& name, const std::string& purpose, const std::string& details,
                std::vector<Example> examples, Action action);

 private:
  CLI::App app_;
  Action action_;
  std::vector<Page> pages_;
};

// Each adds its subcommand. The names of values (JOB, MODEL, DIR, ...; "a|b" for words) say what
// completion.cpp offers.
void add_train(Commands& commands);
void add_evaluate(Commands& commands);
void add_predict(Commands& commands);
void add_summary(Commands& commands);
void add_verify(Commands& commands);
void add_diff(Commands& commands);
void add_architecture(Commands& commands);
void add_info(Commands& commands);
void add_export_digits(Commands& commands);
void add_reference(Commands& commands);
void add_completion(Commands& commands);
void add_man(Commands& commands);

// Adds --threads N, for all who compute.
void add_threads(CLI::App& sub, int& threads);

// What scripts rely on: code and meaning.
struct ExitCode {
  int code;
  const char* meaning;
};
const std::vector<ExitCode>& exit_codes();

// Environment variables that the command and the library look at.
struct Variable {
  const char* name;
  const char* meaning;
};
const std::vector<Variable>& environment();

// Writes to standard output; FileError when that is not possible.
void print(const std::string& text);
// One line of JSON on standard output.
void print_json(const nlohmann::ordered_json& object);
// Lines "name  value", the values under each other.
void print_table(const std::vector<std::pair<std::string, std::string>>& rows);
// For options that name a file or folder: "" is refused.
CLI::Validator not_empty();

// "error:" and "hint:" on standard error.
void print_error(const std::string& message, const std::string& hint);

// Standard error: whether it is a terminal that understands more than lines, and whether colour is
// wanted there.
bool error_is_terminal();
bool error_has_colour();
// Of standard output; 100 where it is no terminal.
int output_width();

// The model of a file or of the folder of a run; a note on standard error where the file carries no
// digest of its contents. Throws DataError.
Model open_model(const std::string& path);

// "98.70 %", "-" for what is no number.
std::string percent(double share);
// Shares in percent, other metrics as numbers.
std::string metric_text(const MetricValue& metric);
// {"f1": 0.98, ...}; null for what is no number.
nlohmann::ordered_json metrics_json(const std::vector<MetricValue>& metrics);
// As one word for a shell.
std::string shell_word(const std::string& text);

}  // namespace lockstep::command
