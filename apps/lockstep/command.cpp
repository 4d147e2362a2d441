#include "apps/lockstep/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/report/terminal.h"
#include "lockstep/runs/run_state.h"

namespace lockstep::command {
namespace {

// Breaks text between words into lines of at most `width` columns.
std::string wrapped(const std::string& text, size_t width) {
  std::string out;
  size_t column = 0;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\n') {
      out += '\n';
      column = 0;
      ++at;
      continue;
    }
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    if (column > 0 && column + 1 + end - at > width) {
      out += '\n';
      column = 0;
    }
    if (column > 0) {
      out += ' ';
      ++column;
    }
    out.append(text, at, end - at);
    column += end - at;
    at = end < text.size() && text[end] == ' ' ? end + 1 : end;
  }
  return out + '\n';
}

// Breaks descriptions in the right column at 80 columns.
class Formatter : public CLI::Formatter {
 public:
  Formatter() { column_width(kLeft); }

  std::string make_description(const CLI::App* app) const override {
    return wrapped(CLI::Formatter::make_description(app), kWidth);
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return narrow(CLI::Formatter::make_option_desc(option));
  }
  // The list of options that an option excludes can be long.
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const std::string text = CLI::Formatter::make_option(option, is_positional);
    const size_t end = text.find('\n');
    if (end <= kWidth) return text;
    std::string head = wrapped(text.substr(0, end).substr(2), kWidth - kHang);
    head.pop_back();
    for (size_t at = head.find('\n'); at != std::string::npos; at = head.find('\n', at + 1)) {
      head.insert(at + 1, kHang, ' ');
    }
    return "  " + head + text.substr(end);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::stringstream out;
    CLI::detail::format_help(out, command->get_name(), narrow(command->get_description()), kLeft);
    return out.str();
  }

 private:
  static constexpr size_t kWidth = 80, kLeft = 30, kHang = 6;

  static std::string narrow(const std::string& text) {
    std::string lines = wrapped(text, kWidth - kLeft);
    lines.pop_back();
    return lines;
  }
};

}  // namespace

Commands::Commands()
    : app_(
          "Lockstep trains deep networks in parallel: who computes changes the speed, never the "
          "answer.",
          "lockstep") {
  app_.formatter(std::make_shared<Formatter>());
  app_.set_version_flag("--version", std::string("lockstep ") + LOCKSTEP_VERSION,
                        "Print the version");
  app_.set_help_flag("-h,--help", "Print this help");
  app_.require_subcommand(1);
  std::string codes = "Exit codes:\n";
  for (const auto& [code, meaning] : exit_codes()) {
    codes += fmt::format("  {:<4}{}\n", code, meaning);
  }
  app_.footer("`lockstep COMMAND --help` describes each command, with examples.\n\n" + codes);
  add_train(*this);
  add_evaluate(*this);
  add_predict(*this);
  add_summary(*this);
  add_verify(*this);
  add_diff(*this);
  add_architecture(*this);
  add_info(*this);
  add_export_digits(*this);
  add_reference(*this);
  add_completion(*this);
  add_man(*this);
}

CLI::App* Commands::add(const std::string& name, const std::string& purpose,
                        const std::string& details, std::vector<Example> examples, Action action) {
  CLI::App* const command = app_.add_subcommand(name, purpose);
  std::string footer = wrapped(details, 80) + "\nExamples:\n";
  for (const auto& [line, meaning] : examples) {
    footer += fmt::format("  {}\n      {}\n", line, meaning);
  }
  command->footer(footer);
  command->callback([this, action = std::move(action)] { action_ = action; });
  pages_.push_back({command, details, std::move(examples)});
  return command;
}

void add_threads(CLI::App& sub, int& threads) {
  sub.add_option("--threads", threads, "Compute threads (default: one for each processor)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
}

const std::vector<ExitCode>& exit_codes() {
  static const std::vector<ExitCode> codes{
      {0, "success"},
      {exit_failure, "failure: an invalid job file, unreadable data, not enough memory"},
      {exit_usage, "invalid command line"},
      {exit_stopped, "stopped by Ctrl-C, SIGTERM or max_time, after a checkpoint"}};
  return codes;
}

const std::vector<Variable>& environment() {
  static const std::vector<Variable> variables{
      {"LOCKSTEP_DATA", "folder that is searched for data that is not beside the job file"},
      {"LOCKSTEP_CUDA_LIBRARY", "path of liblockstep_cuda.so if it is not beside the command"},
      {"LOCKSTEP_UNVERIFIED",
       "GPU kernels to use without verification on hardware: names of ops (or `nccl`) "
       "separated by commas, or `all`"},
      {"NO_COLOR", "if set, no colour on terminals"}};
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

CLI::Validator not_empty() {
  return CLI::Validator(
      [](const std::string& text) {
        return text.empty() ? std::string("the name must not be empty") : "";
      },
      "");
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
  const bool colour = error_has_colour();
  const char* red = colour ? "\x1b[1;31m" : "";
  const char* cyan = colour ? "\x1b[36m" : "";
  const char* plain = colour ? "\x1b[0m" : "";
  // Names in the message may contain any characters.
  std::fprintf(stderr, "%serror:%s %s\n", red, plain, printable_lines(message).c_str());
  if (hint.empty()) return;
  std::fprintf(stderr, "%shint:%s %s\n", cyan, plain, printable_lines(hint).c_str());
}

bool error_is_terminal() { return is_terminal(stderr); }
bool error_has_colour() { return has_colour(stderr); }
int output_width() { return columns_of(stdout, 100); }

Model open_model(const std::string& path) {
  FileSystem& files = local_files();
  const std::string file = model_path(files, path);
  const std::string note = model_note(files, path);
  if (!note.empty()) std::fprintf(stderr, "note: %s\n", note.c_str());
  Model model = load_model(files, file);
  if (model.digest.empty()) std::fprintf(stderr, "note: %s\n", no_digest_text(file).c_str());
  return model;
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
  if (plain) return text;
  std::string quoted = "'";
  for (char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace lockstep::command
