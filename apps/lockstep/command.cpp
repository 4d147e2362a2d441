#include "apps/lockstep/command.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep::command {

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
  for (const auto& [name, value] : rows) text += fmt::format("{:<{}}  {}\n", name, width, value);
  print(text);
}

void print_error(const std::string& message, const std::string& hint) {
  const bool colour = error_has_colour();
  const char* red = colour ? "\x1b[1;31m" : "";
  const char* cyan = colour ? "\x1b[36m" : "";
  const char* plain = colour ? "\x1b[0m" : "";
  std::fprintf(stderr, "%serror:%s %s\n", red, plain, message.c_str());
  if (!hint.empty()) std::fprintf(stderr, "%shint:%s %s\n", cyan, plain, hint.c_str());
}

bool error_is_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) != 0 && (term == nullptr || std::strcmp(term, "dumb") != 0);
}

bool error_has_colour() {
  const char* no_colour = std::getenv("NO_COLOR");  // https://no-color.org
  return error_is_terminal() && (no_colour == nullptr || *no_colour == '\0');
}

namespace {

int width_of(int descriptor, int otherwise) {
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return otherwise;
}

}  // namespace

int error_width() { return width_of(STDERR_FILENO, 80); }
int output_width() { return width_of(STDOUT_FILENO, 100); }

Model open_model(const std::string& path) {
  FileSystem& files = local_files();
  if (!files.is_folder(path)) return load_model(files, path);
  const std::string file = join_path(path, "model.safetensors");
  if (!files.exists(file)) {
    throw DataError("[model] the folder " + path + " holds no model.safetensors",
                    "a run writes it when it has finished");
  }
  return load_model(files, file);
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
