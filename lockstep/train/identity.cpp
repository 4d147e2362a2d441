#include "lockstep/train/identity.h"

#include <nlohmann/json.hpp>

namespace lockstep {

nlohmann::ordered_json identity_of(const Network& network, const TrainingData& data,
                                   const TrainingOptions& options, const Listings& listings) {
  nlohmann::ordered_json training, augmentation, noise;
  {
    // In front, so that a difference is told as such; which GPU it is does not matter.
    training["device"] = network.device() == Device{} ? "cpu" : "cuda";
    FieldWriter writer(training);
    TrainingOptions copy = options;
    copy.device = training["device"];
    copy.visit(writer);
    for (const auto& name : TrainingOptions::free_fields()) training.erase(name);
    if (options.learning_rate_function) training["learning_rate_schedule"] = "a function";
  }
  {
    FieldWriter writer(augmentation);
    Augmentation copy = data.augmentation;
    copy.visit(writer);
  }
  {
    FieldWriter writer(noise);
    InputNoise copy = data.noise;
    copy.visit(writer);
  }
  nlohmann::ordered_json identity{{"training", training},
                                  {"augmentation", augmentation},
                                  {"noise", noise},
                                  {"network", network.to_json()},
                                  {"data", listings.training.to_string()},
                                  {"validation_data", listings.validation.to_string()}};
  if (data.random_crop) identity["random_crop"] = true;
  if (data.training_targets) identity["targets"] = listings.training_targets.to_string();
  if (data.validation_targets) {
    identity["validation_targets"] = listings.validation_targets.to_string();
  }
  return identity;
}

}  // namespace lockstep
