// The record of a sweep, sweep.jsonl: read when the sweep goes on, and for its page.
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/report/pages/sweep_page.h"
#include "lockstep/runs/sweeps/record.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {
namespace {

constexpr const char* kRecord =
    R"({"sweep":"1","metric":"validation.loss","goal":"minimize","budget":4,"options":{"method":"random","trials":2},"time":"2026-11-23T20:23:14Z"}
{"decision":0,"begin":[{"trial":1,"parameters":{"initial_learning_rate":0.01,"solver":"adam"},"budget":4},{"trial":2,"parameters":{"initial_learning_rate":1,"solver":"sgdm"},"budget":4}],"time":"x"}
{"result":{"trial":1,"repeat":1,"budget":4,"state":"reached","value":0.5,"iteration":40,"epoch":4,"metrics":{"validation.accuracy":0.9},"receipt":"0123"}}
{"result":{"trial":2,"repeat":1,"budget":4,"state":"diverged","reason":"the loss is not finite","value":null}}
{"event":"stop","trial":2}
{"event":"rerun","trials":[2]}
{"event":"extended"}
)";

}  // namespace

void parse(std::span<const std::byte> bytes) {
  static const Scratch folder;
  folder.empty();
  folder.write(sweep_record_name, bytes);
  sweep_data(folder.path());  // lines that are not valid are left out
  const auto lines = read_sweep_record(local_files(), join_path(folder.path(), sweep_record_name));
  for (const auto& line : lines) {
    try {
      if (line.contains("decision")) decision_from(line);
      if (line.contains("result")) to_json(result_from(line));
    } catch (const nlohmann::json::exception&) {  // as it says
    }
  }
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> all{bytes_of(kRecord)};
  SweepDecision decision;
  all.push_back(bytes_of(to_json(0, decision).dump() + "\n"));
  TrialResult result{.run = {.trial = 1, .repeat = 0, .budget = 4}, .value = 0.5, .iteration = 3};
  result.metrics = {{"a", 1.5}};
  all.push_back(bytes_of(std::string(kRecord) + to_json(result).dump() + "\n"));
  return all;
}

}  // namespace lockstep::fuzz
