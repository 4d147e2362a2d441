#include "lockstep/train/state/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/train/options/options.h"

namespace lockstep {
namespace {

constexpr const char* kLengths = "training.schedule_iterations";

// Entries of the canonical form. nlohmann::json keeps them sorted by name.
class CanonicalForm {
 public:
  // The fields of a struct that differ from its defaults, as "<table>.<field>".
  template <class Fields>
  void add(const std::string& table, const Fields& fields, const Fields& defaults,
           const std::vector<std::string>& left_out = {}) {
    const nlohmann::ordered_json values = written(fields), usual = written(defaults);
    for (const auto& [name, value] : values.items()) {
      if (std::find(left_out.begin(), left_out.end(), name) != left_out.end()) continue;
      if (value != usual.at(name)) entries[table + "." + name] = value;
    }
  }

  nlohmann::json entries;

 private:
  template <class Fields>
  static nlohmann::ordered_json written(const Fields& fields) {
    nlohmann::ordered_json object;
    FieldWriter writer(object);
    Fields copy = fields;
    copy.visit(writer);
    return object;
  }
};

// The options with all defaults. Some defaults depend on these three options.
TrainingOptions usual(const TrainingOptions& options, const std::string& device) {
  TrainingOptions defaults;
  defaults.solver.type = options.solver.type;
  defaults.precision.type = options.precision.type;
  defaults.device = device;
  defaults = defaults.resolved();
  defaults.solver.type = TrainingOptions().solver.type;
  defaults.precision.type = TrainingOptions().precision.type;
  defaults.deterministic = true;  // also after set_deterministic(false)
  return defaults;
}

// Options that the rule for defaults does not cover: the device is always present, and schedules
// are represented by their lengths.
std::vector<std::string> not_plain() {
  std::vector<std::string> names{"device", "schedule_epochs"};
  for (const auto* more : {&TrainingOptions::free_fields(), &TrainingOptions::ending_fields()}) {
    names.insert(names.end(), more->begin(), more->end());
  }
  return names;
}

}  // namespace

nlohmann::ordered_json identity_of(const Network& network, const TrainingData& data,
                                   const TrainingOptions& options, const Listings& listings,
                                   int64_t iterations_per_epoch) {
  // The index of the GPU does not matter.
  const std::string device = network.device() == Device{} ? "cpu" : "cuda";
  CanonicalForm form;
  form.add("training", options, usual(options, device), not_plain());
  form.add("augmentation", data.augmentation, Augmentation());
  form.add("noise", data.noise, InputNoise());
  nlohmann::json& entries = form.entries;
  if (data.own_augmentation) entries["augmentation.function"] = data.own_augmentation.name;
  if (data.loss) entries["training.loss"] = data.loss.name;
  entries["version"] = identity_version;
  entries["training.device"] = device;
  const std::vector<double> lengths = schedule_lengths(options, iterations_per_epoch);
  if (!lengths.empty()) entries[kLengths] = lengths;
  if (options.schedule.function) entries["training.learning_rate_schedule"] = "a function";
  entries["network.layers"] = network.canonical_layers();
  entries["network.loss"] = network.loss();
  entries["data"] = listings.training.to_string();
  if (data.validation) entries["validation_data"] = listings.validation.to_string();
  if (data.random_crop) entries["random_crop"] = true;
  if (const auto& crop = data.resized_crop) {
    entries["resized_crop"] = {{"area", crop->area}, {"ratio", crop->ratio}};
  }
  if (data.training_targets) entries["targets"] = listings.training_targets.to_string();
  if (data.validation_targets) {
    entries["validation_targets"] = listings.validation_targets.to_string();
  }
  return entries;
}

Digest first_link(const nlohmann::ordered_json& identity) {
  Digester digester;
  digester.add(identity.dump());
  return digester.finish();
}

std::optional<IdentityDifference> schedule_difference(const nlohmann::ordered_json& here,
                                                      const nlohmann::ordered_json& there) {
  const auto lengths = [](const nlohmann::ordered_json& identity) {
    return identity.value(kLengths, nlohmann::ordered_json::array());
  };
  const auto rest = [](nlohmann::ordered_json identity) {
    identity.erase(kLengths);
    return identity;
  };
  if (lengths(here) == lengths(there) || rest(here) != rest(there)) return std::nullopt;
  return IdentityDifference{
      fmt::format(
          "the parts of its learning_rate_schedule have {} iterations there, but {} here, so "
          "that the learning rates differ",
          lengths(there).dump(), lengths(here).dump()),
      "schedule_epochs, or else max_epochs, sets the length of a schedule: continue with the same, "
      "or train again into another folder"};
}

}  // namespace lockstep
