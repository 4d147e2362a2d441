// Label images as targets: networks that give a score of each class for each pixel.
#pragma once

#include <cstdint>

#include "lockstep/data/datastores/datastore.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/train/input/training_data.h"

namespace lockstep {

// Whether a network's only output has scores of classes for each pixel, classes x rows x columns,
// and its loss takes labels. Thread-safe.
bool labels_pixels(const Network& network);

// Whether the examples have label images as targets. Thread-safe.
bool has_pixel_labels(const Datastore& data);

// Throws InvalidArgument unless the network gives a score for each class of `data` and each pixel
// of its input, and has a loss of labels.
void check_pixel_classifier(const Network& network, const Datastore& data);

// The hint for data with one label for each image where the network labels pixels.
inline constexpr const char* pixel_labels_hint =
    "labels of pixels come from label images: in a job, targets names their folder and "
    "pixel_classes their classes";

// Adds the number of pixels of each class, without those of none: a pass over all label images.
// Throws what reading them throws.
std::vector<int64_t> count_each_pixel_label(const Datastore& data, int threads);

}  // namespace lockstep
