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

// Each adds its subcommand, which sets `action` when it is chosen.
void add_train(CLI::App& app, Action& action);
void add_evaluate(CLI::App& app, Action& action);
void add_predict(CLI::App& app, Action& action);
void add_summary(CLI::App& app, Action& action);
void add_architecture(CLI::App& app, Action& action);
void add_info(CLI::App& app, Action& action);
void add_export_digits(CLI::App& app, Action& action);

// Writes to standard output; FileError when that is not possible.
void print(const std::string& text);
// One line of JSON on standard output.
void print_json(const nlohmann::ordered_json& object);
// Lines "name  value", the values under each other.
void print_table(const std::vector<std::pair<std::string, std::string>>& rows);
// "error:" and "hint:" on standard error.
void print_error(const std::string& message, const std::string& hint);

// Standard error: whether it is a terminal that understands more than lines, whether colour is
// wanted there, and its width in columns.
bool error_is_terminal();
bool error_has_colour();
int error_width();
// Of standard output; 100 where it is no terminal.
int output_width();

// The model of a file or of the folder of a run. Throws DataError.
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
