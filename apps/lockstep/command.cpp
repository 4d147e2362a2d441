#include "apps/lockstep/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cluster/slurm/tool.h"
#include "lockstep/report/terminal.h"
#include "lockstep/runs/folders/run_state.h"
#include "lockstep/storage/s3_files.h"

namespace lockstep::command {

std::unique_ptr<Commands> all_commands() {
  std::string codes = "Exit codes:\n";
  for (const auto& [code, meaning] : exit_codes()) {
    codes += fmt::format("  {:<4}{}\n", code, meaning);
  }
  auto commands = std::make_unique<Commands>(
      "Lockstep trains deep networks in parallel: who computes changes the speed, never the "
      "answer.",
      "`lockstep COMMAND --help` describes each command, with examples.\n\n" + codes);
  add_train(*commands);
  add_sweep(*commands);
  add_cross_validate(*commands);
  add_submit(*commands);
  add_jobs(*commands);
  add_cluster(*commands);
  add_worker(*commands);
  add_evaluate(*commands);
  add_predict(*commands);
  add_generate(*commands);
  add_summary(*commands);
  add_report(*commands);
  add_dashboard(*commands);
  add_verify(*commands);
  add_verify_device(*commands);
  add_diff(*commands);
  add_architecture(*commands);
  add_info(*commands);
  add_export_digits(*commands);
  add_preview(*commands);
  add_runs(*commands);
  add_upload(*commands);
  add_shard(*commands);
  add_reference(*commands);
  add_completion(*commands);
  add_man(*commands);
  return commands;
}

void add_threads(Subcommand& sub, int& threads) {
  sub.add_option("--threads", threads, "Compute threads (default: one for each processor)")
      .type_name("N")
      .range(1, 1024);
}

void add_no_header(Subcommand& sub, bool& no_header) {
  sub.add_flag("--no-header", no_header,
               "The first line of a .csv file is a row: its columns are matched by position");
}

const std::vector<ExitCode>& exit_codes() {
  static const std::vector<ExitCode> codes{
      {0, "success"},
      {exit_failure, "failure: an invalid job file, unreadable data, not enough memory"},
      {exit_usage, "invalid command line"},
      {exit_not_tested, "verify-device: the device is absent, busy or out of memory"},
      {exit_stopped,
       "stopped by Ctrl-C, SIGTERM, SIGUSR2, the dashboard or max_time, after a checkpoint"}};
  return codes;
}

const std::vector<Variable>& environment() {
  static const std::vector<Variable> variables{
      {"LOCKSTEP_DATA", "folder that is searched for data that is not next to the job file"},
      {"LOCKSTEP_CUDA_LIBRARY", "path of liblockstep_cuda.so if it is not next to the command"},
      {"LOCKSTEP_NCCL", "1: workers with one GPU each exchange gradients by NCCL"},
      {"LOCKSTEP_HOME",
       "folder of the run store, of batch jobs, of cluster profiles and of self-test results of "
       "GPUs (default: by the XDG specification)"},
      {"LOCKSTEP_PORTS", "ports that trainings on several hosts listen at, such as 20000-20100"},
      {"LOCKSTEP_INTERFACE", "network interface for trainings on several hosts, such as eth0"},
      {"LOCKSTEP_KEY_FOLDER",
       "folder that the hosts share, for keys in files; otherwise keys go through the launch "
       "command's standard input"},
      {"AWS_ENDPOINT_URL", "address of an S3 store other than AWS; also AWS_ENDPOINT_URL_S3"},
      {"AWS_ACCESS_KEY_ID, AWS_PROFILE, ...",
       "keys, profile, region of an S3 store, as for other tools"},
      {"LOCKSTEP_S3_ANONYMOUS", "1: unsigned (anonymous) requests to S3"},
      {"LOCKSTEP_S3_REQUESTER_PAYS", "1: the requester pays for requests to S3"},
      {"LOCKSTEP_S3_ADDRESSING",
       "path or virtual: path-style or virtual-hosted addresses of buckets"},
      {"LOCKSTEP_S3_RETRY_SECONDS", "how long failed requests to S3 are repeated (60)"},
      {"LOCKSTEP_S3_CACHE_GB",
       "gigabytes of objects to keep below XDG_CACHE_HOME or ~/.cache (10); 0: none"},
      {"LOCKSTEP_DEVICE_LOG",
       "file to which GPUs' algorithms and recordings are appended, as lines of JSON"},
      {"NO_COLOR", "if set, no color on terminals"}};
  return variables;
}

void print(const std::string& text) {
  const size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written != text.size() || std::fflush(stdout) != 0) {
    throw FileError("[output] cannot write to standard output");
  }
}

void print_json(const nlohmann::ordered_json& object) {
  print(object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

void print_table(const std::vector<std::pair<std::string, std::string>>& rows) {
  size_t width = 0;
  for (const auto& [name, value] : rows) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, value] : rows) {
    text += fmt::format("{:<{}}  {}\n", name, width, printable(value));
  }
  print(text);
}

void print_error(const std::string& message, const std::string& hint) {
  const bool color = error_has_color();
  const char* red = color ? "\x1b[1;31m" : "";
  const char* cyan = color ? "\x1b[36m" : "";
  const char* plain = color ? "\x1b[0m" : "";
  // Names in the message may contain any characters.
  std::fprintf(stderr, "%serror:%s %s\n", red, plain, printable_lines(message).c_str());
  if (hint.empty()) return;
  std::fprintf(stderr, "%shint:%s %s\n", cyan, plain, printable_lines(hint).c_str());
}

bool error_is_terminal() { return is_terminal(stderr); }
bool error_has_color() { return has_color(stderr); }
int output_width() { return columns_of(stdout, 100); }

Model open_model(const std::string& path) {
  FileSystem& files = storage::files_of(path);
  const std::string file = model_path(files, path);
  const std::string note = model_note(files, path);
  if (!note.empty()) std::fprintf(stderr, "note: %s\n", note.c_str());
  Model model = load_model(files, file);
  if (model.digest.empty()) std::fprintf(stderr, "note: %s\n", no_digest_text(file).c_str());
  return model;
}

void print_note(const std::string& text) {
  std::fprintf(stderr, "note: %s\n", printable(text).c_str());
}

void note_missing_names(const Model& model, const Datastore& data) {
  if (!model.network.columns().empty()) return;
  const std::vector<ValueSpec> inputs = data.spec().inputs;
  const auto named = [](const ValueSpec& input) { return !input.columns.empty(); };
  if (std::none_of(inputs.begin(), inputs.end(), named)) return;
  print_note("the model has no names of columns: those of " + data.describe() +
             " are taken in their order");
}

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.2f} %", 100 * share) : "-";
}

std::string metric_text(const MetricValue& metric) {
  if (std::isnan(metric.value)) return "-";
  return metric_is_share(metric.name) ? percent(metric.value)
                                      : fmt::format("{:#.4g}", metric.value);
}

nlohmann::ordered_json metrics_json(const std::vector<MetricValue>& metrics) {
  auto json = nlohmann::ordered_json::object();
  for (const MetricValue& m : metrics) json[m.name] = m.value;
  return json;
}

std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("_-./=:,+@%", c) != nullptr;
  });
  return plain ? text : shell_quoted(text);
}

}  // namespace lockstep::command
