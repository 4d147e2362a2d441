#include "lockstep/runs/sweeps/record.h"

#include <cmath>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

ordered_json number_or_null(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

double number_of(const ordered_json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

// The text up to the end of its last complete line.
std::string complete_lines(const std::string& text) {
  const size_t end = text.rfind('\n');
  return end == std::string::npos ? std::string() : text.substr(0, end + 1);
}

TrialState state_from(const std::string& name) {
  for (const TrialState state : {TrialState::reached, TrialState::ended, TrialState::stopped,
                                 TrialState::diverged, TrialState::unbuildable}) {
    if (name == to_string(state)) return state;
  }
  throw DataError("[sweep] unknown state `" + name + "` of a trial");
}

}  // namespace

std::string sweep_time() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

ordered_json to_json(const TrialParameters& parameters) {
  ordered_json object = ordered_json::object();
  for (const auto& [name, value] : parameters) object[name] = parse_json<ordered_json>(value);
  return object;
}

ordered_json to_json(int64_t decision, const SweepDecision& what) {
  ordered_json line{{"decision", decision},
                    {"what", what.what},
                    {"starts", ordered_json::array()},
                    {"goals", ordered_json::array()},
                    {"pruned", what.pruned}};
  for (const auto& start : what.starts) {
    line["starts"].push_back(
        ordered_json{{"trial", start.trial}, {"parameters", to_json(start.parameters)}});
  }
  for (const auto& goal : what.goals) {
    line["goals"].push_back(ordered_json{{"trial", goal.trial}, {"budget", goal.budget}});
  }
  return line;
}

SweepDecision decision_from(const ordered_json& line) {
  SweepDecision what{.what = line.at("what").get<std::string>()};
  for (const ordered_json& start : line.at("starts")) {
    SweepDecision::Start s{.trial = start.at("trial").get<int64_t>()};
    for (const auto& [name, value] : start.at("parameters").items()) {
      s.parameters.emplace_back(name, value.dump());
    }
    what.starts.push_back(std::move(s));
  }
  for (const ordered_json& goal : line.at("goals")) {
    what.goals.push_back({goal.at("trial").get<int64_t>(), goal.at("budget").get<int64_t>()});
  }
  what.pruned = line.at("pruned").get<std::vector<int64_t>>();
  return what;
}

ordered_json to_json(const TrialResult& r) {
  ordered_json metrics = ordered_json::object();
  for (const auto& [name, value] : r.metrics) metrics[name] = number_or_null(value);
  return {{"result",
           {{"trial", r.run.trial},
            {"repeat", r.run.repeat},
            {"budget", r.run.budget},
            {"state", to_string(r.state)},
            {"reason", r.reason},
            {"value", number_or_null(r.value)},
            {"iteration", r.iteration},
            {"epoch", r.epoch},
            {"metrics", metrics},
            {"receipt", r.receipt}}}};
}

TrialResult result_from(const ordered_json& line) {
  const ordered_json& r = line.at("result");
  TrialResult result{.run = {r.at("trial").get<int64_t>(), r.at("repeat").get<int64_t>(),
                             r.at("budget").get<int64_t>()},
                     .state = state_from(r.at("state").get<std::string>()),
                     .reason = r.at("reason").get<std::string>(),
                     .value = number_of(r.at("value")),
                     .iteration = r.at("iteration").get<int64_t>(),
                     .epoch = r.at("epoch").get<int64_t>(),
                     .receipt = r.at("receipt").get<std::string>()};
  for (const auto& [name, value] : r.at("metrics").items()) {
    result.metrics.emplace_back(name, number_of(value));
  }
  return result;
}

std::vector<ordered_json> read_sweep_record(FileSystem& files, const std::string& path) {
  std::vector<ordered_json> lines;
  if (!files.exists(path)) return lines;
  const std::string text = complete_lines(read_text(files, path));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    ordered_json line = parse_json_or_discard<ordered_json>(text.substr(begin, end - begin));
    if (!line.is_object()) {
      throw DataError("[sweep] " + path + ", line " + std::to_string(lines.size() + 1) +
                          ": this is not a JSON object",
                      "the record is damaged; restore it from a copy");
    }
    lines.push_back(std::move(line));
    begin = end + 1;
  }
  return lines;
}

SweepRecord::SweepRecord(FileSystem& files, const std::string& path) {
  if (files.exists(path)) {
    const std::string text = read_text(files, path), kept = complete_lines(text);
    if (kept.size() != text.size()) write_atomically(files, path, kept);
  }
  file_ = files.open(path, true);
  files.sync_folder(folder_of(path));
}

void SweepRecord::append(const ordered_json& line) {
  file_->append(as_bytes(line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n"));
  file_->sync();
}

}  // namespace lockstep
