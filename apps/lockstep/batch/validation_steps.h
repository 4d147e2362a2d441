// The steps of a validation, as lines or as JSON.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::command {

class ValidationSteps {
 public:
  // With `json` nothing is printed before finish().
  ValidationSteps(std::string profile, bool json);
  ~ValidationSteps();

  // Runs a step and prints its name, its time and what `body` returns. If `body` throws, prints
  // that the step failed, and throws its error with `advice` in front of the error's own hint.
  // Throws Cancelled if the process was asked to end.
  void step(const std::string& name, const std::string& advice,
            const std::function<std::string()>& body);
  // What the JSON holds in addition to the steps.
  nlohmann::ordered_json& facts();
  // After the last step: prints the JSON, if there is any.
  void finish(bool succeeded);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::command
