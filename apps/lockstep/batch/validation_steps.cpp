#include "apps/lockstep/batch/validation_steps.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/lockstep/command.h"
#include "apps/lockstep/stop_signals.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::command {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct ValidationSteps::State {
  std::string profile;
  bool json = false;
  Clock::time_point begin = Clock::now();
  ordered_json steps = ordered_json::array(), facts = ordered_json::object();

  void end_step(const std::string& name, Clock::time_point from, bool ok, const std::string& text,
                const std::string& hint) {
    const double seconds = std::chrono::duration<double>(Clock::now() - from).count();
    steps.push_back({{"step", name}, {"ok", ok}, {"seconds", seconds}, {"result", text}});
    if (!hint.empty()) steps.back()["hint"] = hint;
    if (json) return;
    print(fmt::format("{:<24}  {:>6.1f} s  {}\n", name, seconds, ok ? printable(text) : "failed"));
    std::fflush(stdout);
  }
};

ValidationSteps::ValidationSteps(std::string profile, bool json)
    : state_(std::make_unique<State>()) {
  state_->profile = std::move(profile);
  state_->json = json;
}
ValidationSteps::~ValidationSteps() = default;

void ValidationSteps::step(const std::string& name, const std::string& advice,
                           const std::function<std::string()>& body) {
  const Clock::time_point from = Clock::now();
  try {
    if (stop_wanted()) throw Cancelled("[cluster] stopped by a signal");
    state_->end_step(name, from, true, body(), "");
  } catch (const Cancelled& error) {
    state_->end_step(name, from, false, error.what(), "");
    throw;
  } catch (const Error& error) {
    const std::string hint =
        advice + (advice.empty() || error.hint().empty() ? "" : "; ") + error.hint();
    state_->end_step(name, from, false, error.what(), hint);
    throw Error(error.what(), hint);
  }
}

ordered_json& ValidationSteps::facts() { return state_->facts; }

void ValidationSteps::finish(bool succeeded) {
  if (!state_->json) return;
  ordered_json all{{"profile", state_->profile},
                   {"ok", succeeded},
                   {"seconds", std::chrono::duration<double>(Clock::now() - state_->begin).count()},
                   {"steps", state_->steps}};
  all.update(state_->facts);
  print_json(all);
}

}  // namespace lockstep::command
