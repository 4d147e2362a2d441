#include "lockstep/report/pages/run_log.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/json/json_text.h"
#include "lockstep/runs/folders/growing_lines.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostEvents = 2000;
constexpr size_t kMostRates = 2000;
constexpr size_t kMostTimes = 500;

// With five digits, so that pages stay small.
ordered_json short_number(double value) {
  if (!std::isfinite(value)) return nullptr;
  char text[32];
  std::snprintf(text, sizeof text, "%.5g", value);
  return std::strtod(text, nullptr);
}

// The number after "key": in a line; NaN for null; nothing if there is no such key.
std::optional<double> value_of(std::string_view line, std::string_view key) {
  for (size_t at = line.find(key); at != std::string_view::npos; at = line.find(key, at + 1)) {
    const size_t end = at + key.size();
    if (at == 0 || line[at - 1] != '"' || line.substr(end, 2) != "\":") continue;
    double value = 0;
    const char* const begin = line.data() + end + 2;
    const auto [rest, error] = std::from_chars(begin, line.data() + line.size(), value);
    const bool whole = error == std::errc() && (*rest == ',' || *rest == '}');
    return whole ? value : std::numeric_limits<double>::quiet_NaN();
  }
  return std::nullopt;
}

struct Change {
  int64_t iteration = 0;
  double value = 0;
};

ordered_json changes(const std::vector<Change>& list, size_t most) {
  ordered_json json = ordered_json::array();
  const size_t step = list.size() / most + 1;
  for (size_t i = 0; i < list.size(); ++i) {
    if (i % step != 0 && i + 1 != list.size()) continue;
    json.push_back({list[i].iteration, short_number(list[i].value)});
  }
  return json;
}

}  // namespace

struct RunLog::State {
  GrowingLines lines;
  std::string rest;  // of add(): an incomplete line
  int64_t added = 0, last = 0;
  bool restarted = false;
  std::vector<int64_t> iterations;
  std::vector<float> losses, accuracies;
  std::vector<Change> rates, epochs, times;
  // The newest, also of lines that were forgotten, so that only changes are listed.
  double rate = std::numeric_limits<double>::quiet_NaN(), epoch = rate;
  ordered_json validations = ordered_json::array(), events = ordered_json::array();
  ordered_json workers;  // the newest times of the workers
  double elapsed = 0, seconds = 0, images = 0;

  void line(std::string_view text);
  bool iteration(std::string_view text);
  std::vector<size_t> selected(size_t most) const;
};

RunLog::RunLog() : state_(std::make_unique<State>()) {}
RunLog::~RunLog() = default;
RunLog::RunLog(RunLog&&) noexcept = default;
RunLog& RunLog::operator=(RunLog&&) noexcept = default;

int64_t RunLog::position() const { return state_->lines.position(); }
bool RunLog::restarted() const { return state_->restarted; }
int64_t RunLog::added() const { return state_->added; }
int64_t RunLog::last_iteration() const { return state_->last; }
void RunLog::skip_to(int64_t position, std::string mark) {
  state_->lines.skip_to(position, std::move(mark));
}

void RunLog::clear() {
  State& s = *state_;
  s.added = 0;
  s.iterations.clear();
  s.losses.clear();
  s.accuracies.clear();
  s.rates.clear();
  s.epochs.clear();
  s.times.clear();
  s.validations = s.events = ordered_json::array();
  s.seconds = s.images = 0;
}

// A line as ReceiptWriter writes it, without a general parser: logs have many of them. Returns
// false for any other line.
bool RunLog::State::iteration(std::string_view text) {
  if (!text.starts_with(R"({"iteration":)") || !text.ends_with('}')) return false;
  const std::optional<double> number = value_of(text, "iteration"), loss = value_of(text, "loss");
  if (!number || !std::isfinite(*number) || !loss) return false;
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  last = static_cast<int64_t>(*number);
  iterations.push_back(last);
  losses.push_back(static_cast<float>(*loss));
  accuracies.push_back(static_cast<float>(value_of(text, "accuracy").value_or(none)));
  const auto follow_change = [&](const char* key, double& newest, std::vector<Change>& list) {
    const double value = value_of(text, key).value_or(none);
    if (std::isnan(value) || value == newest) return;
    newest = value;
    list.push_back({last, value});
  };
  follow_change("learning_rate", rate, rates);
  follow_change("epoch", epoch, epochs);
  const double now = value_of(text, "elapsed").value_or(none),
               took = value_of(text, "seconds").value_or(none),
               had = value_of(text, "observations").value_or(none);
  if (std::isfinite(now)) {
    elapsed = now;
    times.push_back({last, now});
  }
  if (std::isfinite(took)) seconds += took;
  if (std::isfinite(had)) images += had;
  ++added;
  return true;
}

void RunLog::State::line(std::string_view text) {
  if (iteration(text)) return;
  ordered_json json = parse_json_or_discard<ordered_json>(text);
  if (!json.is_object()) return;
  ++added;
  const auto number = json.find("iteration");
  const bool counted = number != json.end() && number->is_number_integer();
  if (json.contains("validation_loss") && counted) {
    ordered_json kept = ordered_json::object();
    for (const auto& [key, value] : json.items()) {
      kept[key] = value.is_number_float() ? short_number(value.get<double>()) : value;
    }
    validations.push_back(std::move(kept));
  } else if (json.value("event", ordered_json()) == "workers") {
    workers = json.value("workers", ordered_json());
  } else if (events.size() < kMostEvents) {
    events.push_back(std::move(json));
  }
}

void RunLog::add(std::string_view text) {
  State& s = *state_;
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', begin)) {
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (s.rest.empty()) {
      s.line(line);
    } else {
      s.rest += line;
      s.line(s.rest);
      s.rest.clear();
    }
  }
  s.rest += text.substr(begin);
}

void RunLog::follow(const std::string& path, int64_t most) {
  const bool before = state_->lines.overlong();
  state_->restarted = false;
  GrowingLines lines = std::move(state_->lines);
  // The first line of a file that was rewritten comes after it is known to be new.
  lines.follow(
      path,
      [&](std::string_view line) {
        if (lines.restarted() && !state_->restarted) *state_ = State();
        state_->restarted = lines.restarted();
        state_->line(line);
      },
      most);
  if (lines.restarted() && !state_->restarted) *state_ = State();
  state_->restarted = lines.restarted();
  state_->lines = std::move(lines);
  if (state_->lines.overlong() && (!before || state_->restarted)) {
    state_->events.push_back({{"event", "notice"}, {"text", overlong_note("the log")}});
    ++state_->added;
  }
}

std::vector<size_t> RunLog::State::selected(size_t most) const {
  const size_t n = iterations.size();
  std::vector<size_t> kept;
  if (n <= most) {
    for (size_t i = 0; i < n; ++i) kept.push_back(i);
    return kept;
  }
  const size_t parts = std::max<size_t>(1, most / 2);
  for (size_t part = 0; part < parts; ++part) {
    const size_t begin = part * n / parts, end = (part + 1) * n / parts;
    size_t low = begin, high = begin;
    for (size_t i = begin; i < end; ++i) {
      if (losses[i] < losses[low]) low = i;
      if (!(losses[i] <= losses[high])) high = i;  // NaN is the largest
    }
    kept.push_back(std::min(low, high));
    if (low != high) kept.push_back(std::max(low, high));
  }
  return kept;
}

ordered_json RunLog::columns(size_t most) const {
  const State& s = *state_;
  const std::vector<size_t> kept = s.selected(most);
  ordered_json x = ordered_json::array(), loss = x, accuracy = x;
  bool consecutive = !kept.empty(), any_accuracy = false;
  for (size_t k = 0; k < kept.size(); ++k) {
    consecutive &= s.iterations[kept[k]] == s.iterations[kept.front()] + static_cast<int64_t>(k);
    any_accuracy |= std::isfinite(s.accuracies[kept[k]]);
  }
  if (consecutive) {
    x = s.iterations[kept.front()];
  } else {
    for (const size_t i : kept) x.push_back(s.iterations[i]);
  }
  for (const size_t i : kept) {
    loss.push_back(short_number(s.losses[i]));
    if (any_accuracy) accuracy.push_back(short_number(s.accuracies[i]));
  }
  ordered_json json{
      {"x", std::move(x)}, {"loss", std::move(loss)}, {"accuracy", std::move(accuracy)}};
  json["rate"] = changes(s.rates, kMostRates);
  json["epochs"] = changes(s.epochs, kMostRates);
  json["times"] = changes(s.times, kMostTimes);
  json["validations"] = s.validations;
  json["events"] = s.events;
  if (s.workers.is_array()) json["workers"] = s.workers;
  json["elapsed"] = short_number(s.elapsed);
  json["seconds"] = s.seconds;
  json["images"] = s.images;
  json["iterations"] = s.iterations.size();
  json["last"] = s.last;
  json["position"] = s.lines.position();
  json["mark"] = s.lines.mark();
  return json;
}

}  // namespace lockstep
