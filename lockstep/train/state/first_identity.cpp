#include "lockstep/train/state/first_identity.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

// The options of the first form. The list never changes.
constexpr std::array kOptions{"device",
                              "solver",
                              "momentum",
                              "gradient_decay",
                              "squared_gradient_decay",
                              "epsilon",
                              "initial_learning_rate",
                              "learning_rate_schedule",
                              "schedule_epochs",
                              "drop_factor",
                              "drop_period",
                              "schedule_power",
                              "final_factor",
                              "warmup_factor",
                              "gradient_threshold",
                              "gradient_threshold_method",
                              "class_weights",
                              "freeze",
                              "l2",
                              "mini_batch_size",
                              "max_epochs",
                              "shuffle",
                              "last_mini_batch",
                              "validation_patience",
                              "output_network",
                              "batch_normalization_statistics",
                              "shard_size",
                              "deterministic",
                              "precision",
                              "loss_scale",
                              "seed",
                              "validation_frequency",
                              "validation_frequency_unit"};

template <class Fields>
nlohmann::ordered_json written(const Fields& fields) {
  nlohmann::ordered_json object;
  FieldWriter writer(object);
  Fields copy = fields;
  copy.visit(writer);
  return object;
}

bool is_free(const std::string& option) {
  const auto within = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), option) != names.end();
  };
  return within(TrainingOptions::free_fields()) || within(TrainingOptions::ending_fields());
}

}  // namespace

nlohmann::ordered_json first_identity_of(const Network& network, const TrainingData& data,
                                         const TrainingOptions& options, const Listings& listings) {
  const nlohmann::ordered_json all = written(options);
  nlohmann::ordered_json training;
  for (const char* option : kOptions) training[option] = all.at(option);
  // Options that were added later had their defaults in these trainings.
  const nlohmann::ordered_json defaults = written(TrainingOptions());
  for (const auto& [name, value] : all.items()) {
    if (!training.contains(name) && !is_free(name) && value != defaults.at(name)) {
      training[name] = value;
    }
  }
  training["device"] = network.device() == Device{} ? "cpu" : "cuda";
  if (options.schedule.function) training["learning_rate_schedule"] = "a function";
  nlohmann::ordered_json described = network.to_json();
  for (auto& layer : described["layers"]) {  // a field of later versions
    if (layer.value("statistics", "") == "batch") layer.erase("statistics");
  }
  nlohmann::ordered_json identity{{"training", training},
                                  {"augmentation", written(data.augmentation)},
                                  {"noise", written(data.noise)},
                                  {"network", described},
                                  {"data", listings.training.to_string()},
                                  {"validation_data", listings.validation.to_string()}};
  if (data.random_crop) identity["random_crop"] = true;
  if (data.training_targets) identity["targets"] = listings.training_targets.to_string();
  if (data.validation_targets) {
    identity["validation_targets"] = listings.validation_targets.to_string();
  }
  return identity;
}

bool is_first_identity(const nlohmann::ordered_json& identity) {
  return !identity.contains("version");
}

}  // namespace lockstep
