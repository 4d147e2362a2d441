// Datastores of images and arrays of floats in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/datastores/datastore.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// The class of each observation and the names of the classes in the order of their numbers. Without
// labels, all observations belong to one class, "". Without names, the names are the numbers.
struct ImageLabels {
  std::vector<int64_t> labels = {};       // indices into `classes`
  std::vector<std::string> classes = {};  // without duplicates
};

// Images of any sizes with 1 or 3 channels. Takes ownership. Observations are called "image 0",
// "image 1", .... Throws InvalidArgument, naming the image if one is concerned, for a number of
// labels other than that of the images, a label outside the classes, a duplicate class name, or an
// empty or inconsistent image. Thread-safe.
DatastorePtr array_datastore(std::vector<Image> images, ImageLabels labels = {});

// One block of count x height x width x channels bytes. Takes ownership. Throws InvalidArgument as
// above, and for another number of bytes.
struct ImageBlock {
  int64_t count = 0, height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;
};
DatastorePtr array_datastore(ImageBlock block, ImageLabels labels = {});

// `count` arrays of floats of one shape (features; channels x length; channels x depth x height x
// width), row-major and consecutive. Takes ownership. They are inputs for feature_input,
// sequence_input, image3d_input and image_input, or targets. Observations are called "observation
// 0", .... Throws InvalidArgument as above, for a shape without elements, and for an element that
// is not finite, which the message names.
struct ArrayBlock {
  int64_t count = 0;
  Shape shape;  // shape of one array
  std::vector<float> values = {};
};
DatastorePtr array_datastore(ArrayBlock block, ImageLabels labels = {});
// The same for an f32 tensor of n x shape, whose elements are copied.
DatastorePtr array_datastore(const Tensor& values, ImageLabels labels = {});

}  // namespace lockstep
