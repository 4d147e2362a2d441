// Networks of images after the residual ones: of narrow blocks, of large filters, of patches, and
// for each pixel.
#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/architectures/parts.h"

namespace lockstep {

using namespace parts;  // NOLINT

namespace {

// A stage of MobileNetV2 or EfficientNet.
struct NarrowStage {
  int64_t expansion, filters, blocks, stride, kernel;
};

struct NarrowBlock {
  int64_t input = 0, expansion = 1, filters = 0, stride = 1, kernel = 3;
  LayerPtr activation;
  int64_t squeezed = 0;  // units of squeeze and excitation; 0: none
  double dropped = 0;    // probability of stochastic depth
};

// Adds a block; the branch has a shortcut if neither channels nor pixels change.
void add_narrow_block(Network& n, const NarrowBlock& b, const std::string& prefix,
                      const std::string& suffix) {
  const std::string input = last_name(n);
  const int64_t wide = b.input * b.expansion;
  if (b.expansion > 1) {
    add_normalized(n, filters_of(wide, 1, 1));
    n.add(b.activation);
  }
  Convolution2dOptions each = filters_of(wide, b.kernel, b.stride);
  each.groups = wide;
  add_normalized(n, each);
  n.add(b.activation);
  if (b.squeezed > 0) {
    n.add(squeeze_excitation({.units = b.squeezed, .activation = "swish"}));
  }
  const bool shortcut = b.stride == 1 && b.input == b.filters;
  const bool drops = shortcut && b.dropped > 0;
  const std::string end = shortcut ? prefix + "/branch" + suffix : prefix + "/out" + suffix;
  add_normalized(n, filters_of(b.filters, 1, 1), drops ? "" : end);
  if (drops) n.add(stochastic_depth({.probability = b.dropped}), end);
  if (shortcut) n.add(addition(), prefix + "/out" + suffix, {end, input});
}

struct NarrowNetwork {
  std::vector<NarrowStage> stages;
  LayerPtr activation;
  bool squeezes = false;
  double dropped = 0;  // probability of stochastic depth after the last block
};

// Probabilities are the same in a stage, so that its blocks are alike.
double dropped_in_stage(double last, int64_t before, int64_t blocks, int64_t all) {
  return last * (static_cast<double>(before) + static_cast<double>(blocks) / 2) /
         static_cast<double>(all);
}

template <class Options>
Network of_narrow_blocks(const Options& o, const NarrowNetwork& of) {
  Network n;
  add_input(n, o);
  add_normalized(n, filters_of(32, 3, 2));
  n.add(of.activation, "stem");
  int64_t input = 32, before = 0, all = 0;
  for (const NarrowStage& s : of.stages) all += s.blocks;
  for (size_t i = 0; i < of.stages.size(); ++i) {
    const NarrowStage& s = of.stages[i];
    const std::string number = std::to_string(i + 1);
    for (int64_t block = 0; block < s.blocks; ++block) {
      const bool first = block == 0;
      add_narrow_block(n,
                       {.input = input,
                        .expansion = s.expansion,
                        .filters = s.filters,
                        .stride = first ? s.stride : 1,
                        .kernel = s.kernel,
                        .activation = of.activation,
                        .squeezed = of.squeezes ? std::max<int64_t>(1, input / 4) : 0,
                        .dropped = dropped_in_stage(of.dropped, before, s.blocks, all)},
                       (first ? "begin" : "stage") + number,
                       first ? "" : suffix_of(block, s.blocks - 1));
      input = s.filters;
    }
    before += s.blocks;
  }
  add_normalized(n, filters_of(1280, 1, 1));
  n.add(of.activation);
  n.add(global_average_pooling2d());
  n.add(dropout({.probability = 0.2}));
  add_classifier(n, o.classes);
  return n;
}

// ConvNeXt's block.
void add_large_filters(Network& n, int64_t filters, double dropped, const std::string& prefix,
                       const std::string& suffix) {
  const std::string input = last_name(n);
  n.add(convolution2d(
      {.filters = filters, .kernel = {7, 7}, .padding = padding(3), .groups = filters}));
  n.add(channel_normalization());
  n.add(convolution2d({.filters = 4 * filters}));
  n.add(gelu());
  n.add(convolution2d({.filters = filters}));
  const std::string end = prefix + "/branch" + suffix;
  n.add(layer_scale(), dropped > 0 ? "" : end);
  if (dropped > 0) n.add(stochastic_depth({.probability = dropped}), end);
  n.add(addition(), prefix + "/out" + suffix, {end, input});
}

// Two convolutions of a U-Net.
void add_twice(Network& n, int64_t filters, const std::string& name) {
  for (int i = 0; i < 2; ++i) {
    add_normalized(n, filters_of(filters, 3, 1));
    n.add(relu(), i == 0 ? "" : name);
  }
}

template <class Options>
void visit_stochastic_depth(FieldVisitor& v, Options& o) {
  visit_sizes(v, o);
  v.number("stochastic_depth", o.stochastic_depth,
           "probability that the last branch of an observation is dropped; 0: none",
           {.min = 0, .max = 1, .max_excluded = true});
}

}  // namespace

void EfficientNetOptions::visit(FieldVisitor& v) { visit_stochastic_depth(v, *this); }
void ConvNextOptions::visit(FieldVisitor& v) { visit_stochastic_depth(v, *this); }

void VitOptions::visit(FieldVisitor& v) {
  visit_sizes(v, *this);
  v.integer("patch", patch, "rows and columns of a patch", {.min = 1, .max = 1 << 10});
}

void UNetOptions::visit(FieldVisitor& v) {
  visit_sizes(v, *this);
  v.integer("filters", filters, "of the first stage", {.min = 1, .max = 1 << 12});
  v.integer("depth", depth, "how often the image is halved", {.min = 1, .max = 8});
}

Network mobilenetv2(const ImageNetOptions& o) {
  check_fields("mobilenetv2", o);
  return of_narrow_blocks(o, {.stages = {{1, 16, 1, 1, 3},
                                         {6, 24, 2, 2, 3},
                                         {6, 32, 3, 2, 3},
                                         {6, 64, 4, 2, 3},
                                         {6, 96, 3, 1, 3},
                                         {6, 160, 3, 2, 3},
                                         {6, 320, 1, 1, 3}},
                              .activation = clipped_relu({.ceiling = 6})});
}

Network efficientnet_b0(const EfficientNetOptions& o) {
  check_fields("efficientnet_b0", o);
  return of_narrow_blocks(o, {.stages = {{1, 16, 1, 1, 3},
                                         {6, 24, 2, 2, 3},
                                         {6, 40, 2, 2, 5},
                                         {6, 80, 3, 2, 3},
                                         {6, 112, 3, 1, 5},
                                         {6, 192, 4, 2, 5},
                                         {6, 320, 1, 1, 3}},
                              .activation = swish(),
                              .squeezes = true,
                              .dropped = o.stochastic_depth});
}

Network convnext_tiny(const ConvNextOptions& o) {
  check_fields("convnext_tiny", o);
  Network n;
  add_input(n, o, kUnitVariance);
  n.add(convolution2d({.filters = 96, .kernel = {4, 4}, .stride = {4, 4}}));
  n.add(channel_normalization(), "stem");
  const std::vector<int64_t> blocks{3, 3, 9, 3};
  const int64_t all = std::accumulate(blocks.begin(), blocks.end(), int64_t{0});
  int64_t before = 0;
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    const std::string number = std::to_string(stage + 1);
    const int64_t filters = int64_t{96} << stage;
    if (stage > 0) {
      n.add(channel_normalization());
      n.add(convolution2d({.filters = filters, .kernel = {2, 2}, .stride = {2, 2}}),
            "down" + number);
    }
    const double dropped = dropped_in_stage(o.stochastic_depth, before, blocks[stage], all);
    for (int64_t block = 1; block <= blocks[stage]; ++block) {
      add_large_filters(n, filters, dropped, "stage" + number, suffix_of(block, blocks[stage]));
    }
    before += blocks[stage];
  }
  n.add(global_average_pooling2d());
  n.add(channel_normalization());
  add_classifier(n, o.classes);
  return n;
}

Network vit_tiny(const VitOptions& o) {
  check_fields("vit_tiny", o);
  if (o.height % o.patch != 0 || o.width % o.patch != 0) {
    throw InvalidArgument("[vit_tiny] patches of " + std::to_string(o.patch) + " x " +
                              std::to_string(o.patch) + " do not divide images of " +
                              std::to_string(o.height) + " x " + std::to_string(o.width),
                          "choose height and width as multiples of `patch`");
  }
  constexpr int64_t kChannels = 192;
  Network n;
  add_input(n, o, kUnitVariance);
  n.add(convolution2d(
      {.filters = kChannels, .kernel = {o.patch, o.patch}, .stride = {o.patch, o.patch}}));
  n.add(pixels_to_steps());
  n.add(position_embedding({.positions = o.height / o.patch * (o.width / o.patch)}));
  for (int block = 0; block < 12; ++block) {
    n.add(transformer_block({.heads = 3, .epsilon = 1e-6}));
  }
  n.add(global_average_pooling1d());
  n.add(layer_normalization({.epsilon = 1e-6}));
  add_classifier(n, o.classes);
  return n;
}

Network unet(const UNetOptions& o) {
  check_fields("unet", o);
  const int64_t grain = int64_t{1} << o.depth;
  if (o.height % grain != 0 || o.width % grain != 0) {
    throw InvalidArgument("[unet] images of " + std::to_string(o.height) + " x " +
                              std::to_string(o.width) + " cannot be halved " +
                              std::to_string(o.depth) + " times",
                          "choose height and width as multiples of " + std::to_string(grain) +
                              ", or another `depth`");
  }
  Network n;
  add_input(n, o);
  for (int64_t level = 1; level <= o.depth; ++level) {
    add_twice(n, o.filters << (level - 1), "down" + std::to_string(level));
    n.add(max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}));
  }
  add_twice(n, o.filters << o.depth, "bottom");
  for (int64_t level = o.depth; level >= 1; --level) {
    const int64_t filters = o.filters << (level - 1);
    const std::string number = std::to_string(level);
    n.add(transposed_convolution2d({.filters = filters, .kernel = {2, 2}, .stride = {2, 2}}),
          "larger" + number);
    n.add(concatenation(), {}, {"down" + number, "larger" + number});
    add_twice(n, filters, "up" + number);
  }
  n.add(convolution2d({.filters = o.classes}));
  n.add(softmax());
  return n;
}

}  // namespace lockstep
