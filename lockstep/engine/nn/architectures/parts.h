// What architectures have in common: input, classifier, convolutions, blocks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/engine/nn/architectures/architectures.h"
#include "lockstep/engine/nn/layers.h"

namespace lockstep::parts {

template <class Options>
void visit_sizes(FieldVisitor& v, Options& o) {
  v.integer("height", o.height, "rows of an image", {.min = 1, .max = 1 << 14});
  v.integer("width", o.width, "columns of an image", {.min = 1, .max = 1 << 14});
  v.integer("channels", o.channels, "values per pixel: 1 grayscale, 3 RGB",
            {.min = 1, .max = 1 << 14});
  v.integer("classes", o.classes, "number of classes", {.min = 1, .max = 1 << 20});
}

// Checks options made in C++ in the same way as fields that are read from a file.
void check_visited(const char* name, const std::function<void(FieldVisitor& v)>& visit);
template <class Options>
void check_fields(const char* name, Options options) {
  check_visited(name, [&](FieldVisitor& v) { options.visit(v); });
}

template <class Options>
void add_input(Network& n, const Options& o, const std::string& normalization = "zero-center") {
  n.add(image_input({.height = o.height,
                     .width = o.width,
                     .channels = o.channels,
                     .normalization = normalization}),
        "input");
}

// Without batch normalization, inputs need a variance of 1 (LeCun et al. 1998, "Efficient
// BackProp"). Pixels from 0 to 255 would make a network with He's weights diverge.
inline constexpr const char* kUnitVariance = "z-score";

inline void add_classifier(Network& n, int64_t classes) {
  n.add(fully_connected({.units = classes}));
  n.add(softmax());
}

// Adds a convolution and batch normalization, which makes a bias unnecessary. Returns the name of
// the last layer.
inline std::string add_normalized(Network& n, const Convolution2dOptions& convolution,
                                  std::string name = {}, std::vector<std::string> inputs = {}) {
  n.add(convolution2d(convolution), {}, std::move(inputs));
  return n.add(batch_normalization(), std::move(name));
}

inline Convolution2dOptions filters_of(int64_t filters, int64_t kernel, int64_t stride) {
  return {.filters = filters,
          .kernel = {kernel, kernel},
          .stride = {stride, stride},
          .padding = padding(kernel / 2),
          .bias = false,
          .weights_initializer = "he"};
}

inline const std::string& last_name(const Network& n) { return n.layers().back().name; }

// The suffix of a block's names if it is one of several alike, which a repeated group of a job file
// produces.
inline std::string suffix_of(int64_t block, int64_t alike) {
  return alike > 1 ? "_" + std::to_string(block) : "";
}

}  // namespace lockstep::parts
