// Images and arrays of floats in memory as a datastore.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/datastore.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// What the observations show: the class of each, and the names of the classes in the order of their
// numbers. Without labels all are of one class, ""; without names of classes these are the numbers.
struct ImageLabels {
  std::vector<int64_t> labels = {};       // indices into `classes`
  std::vector<std::string> classes = {};  // each once
};

// Images of any sizes with 1 or 3 channels, taken over. Observations are called "image 0", "image
// 1", ... Throws InvalidArgument naming the image: labels of another number or outside the classes,
// a class named twice, an image that is empty or inconsistent. Thread-safe.
DatastorePtr array_datastore(std::vector<Image> images, ImageLabels labels = {});

// One block of count x height x width x channels bytes, taken over. Throws InvalidArgument as
// above, and where the block has another number of bytes.
struct ImageBlock {
  int64_t count = 0, height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;
};
DatastorePtr array_datastore(ImageBlock block, ImageLabels labels = {});

// `count` arrays of floats of one shape (features; channels x length; channels x depth x height x
// width), row-major, one behind the other, taken over. They are what feature_input, sequence_input
// and image3d_input take (image_input as well), or what a network learns to give. Called
// "observation 0", ... Throws InvalidArgument as above, for a shape without elements, and naming an
// element that is no finite number.
struct ArrayBlock {
  int64_t count = 0;
  Shape shape;  // of one
  std::vector<float> values = {};
};
DatastorePtr array_datastore(ArrayBlock block, ImageLabels labels = {});
// The same of a tensor n x shape of f32, whose elements are copied.
DatastorePtr array_datastore(const Tensor& values, ImageLabels labels = {});

}  // namespace lockstep
