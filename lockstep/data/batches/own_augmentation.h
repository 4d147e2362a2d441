// Calls augmentations of users.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "lockstep/data/images/augmentation.h"

namespace lockstep {

// An image of a mini-batch: channels x height x width bytes.
struct PlanarImage {
  int64_t height = 0, width = 0, channels = 0;
  uint8_t* planes = nullptr;
};

// What the function of a user changes, and what its errors name.
struct OwnAugmentationTask {
  std::span<const PlanarImage> images;
  const PlanarImage* target = nullptr;  // null: none, or not an image
  int64_t classes = 0;                  // of a target that is a label image, else 0
  std::function<std::string()> name;    // of the observation
  bool twice = false;  // whether the function must make the same of the same example again
};

// Changes the planes. `example` has no images yet. Throws InvalidArgument as
// MiniBatchQueueOptions::own_augmentation, and Error, naming the observation, for an exception of
// the function. Thread-safe.
void augment_by_function(const OwnAugmentation& own, AugmentedExample example,
                         const OwnAugmentationTask& task);

}  // namespace lockstep
