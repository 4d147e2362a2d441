#include "lockstep/engine/nn/architectures/architectures.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/engine/nn/layers.h"

namespace lockstep {
namespace {

constexpr int64_t kMostLayers = 1000;

template <class Options>
void visit_sizes(FieldVisitor& v, Options& o) {
  v.integer("height", o.height, "rows of an image", {.min = 1, .max = 1 << 14});
  v.integer("width", o.width, "columns of an image", {.min = 1, .max = 1 << 14});
  v.integer("channels", o.channels, "values per pixel: 1 grayscale, 3 RGB",
            {.min = 1, .max = 1 << 14});
  v.integer("classes", o.classes, "number of classes", {.min = 1, .max = 1 << 20});
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
constexpr const char* kUnitVariance = "z-score";

void add_classifier(Network& n, int64_t classes) {
  n.add(fully_connected({.units = classes}));
  n.add(softmax());
}

// Adds a convolution and batch normalization, which makes a bias unnecessary. Returns the name of
// the last layer.
std::string add_normalized(Network& n, const Convolution2dOptions& convolution,
                           std::string name = {}, std::vector<std::string> inputs = {}) {
  n.add(convolution2d(convolution), {}, std::move(inputs));
  return n.add(batch_normalization(), std::move(name));
}

Convolution2dOptions filters_of(int64_t filters, int64_t kernel, int64_t stride) {
  return {.filters = filters,
          .kernel = {kernel, kernel},
          .stride = {stride, stride},
          .padding = padding(kernel / 2),
          .bias = false,
          .weights_initializer = "he"};
}

// Adds two convolutions and a shortcut (He et al. 2016, figure 2). The shortcut is the identity, or
// a projection if the number of filters or pixels changes.
void add_block(Network& n, int64_t filters, int64_t stride, bool project, const std::string& prefix,
               const std::string& suffix) {
  std::string shortcut = n.layers().back().name;
  const std::string input = shortcut;
  add_normalized(n, filters_of(filters, 3, stride));
  n.add(relu());
  const std::string branch =
      add_normalized(n, filters_of(filters, 3, 1), prefix + "/branch" + suffix);
  if (project) {
    shortcut = add_normalized(n, filters_of(filters, 1, stride), prefix + "/shortcut", {input});
  }
  n.add(addition(), {}, {branch, shortcut});
  n.add(relu(), prefix + "/out" + suffix);
}

// Uses the layer names that a repeated group of a job file produces.
void add_stages(Network& n, const std::vector<int64_t>& filters, int64_t blocks) {
  for (size_t stage = 0; stage < filters.size(); ++stage) {
    const std::string number = std::to_string(stage + 1);
    if (stage > 0) add_block(n, filters[stage], 2, true, "down" + number, "");
    const int64_t alike = stage > 0 ? blocks - 1 : blocks;
    for (int64_t block = 1; block <= alike; ++block) {
      const std::string suffix = alike > 1 ? "_" + std::to_string(block) : "";
      add_block(n, filters[stage], 1, false, "stage" + number, suffix);
    }
  }
}

template <class Options, class Make>
Architecture entry(const char* name, const char* help, Make make) {
  FieldLister lister;
  Options defaults;
  defaults.visit(lister);
  return {name, help, lister.fields, [name, make](const nlohmann::json& fields) {
            Options options;
            FieldReader reader(fields, name);
            options.visit(reader);
            reader.finish();
            return make(options);
          }};
}

// Checks options made in C++ in the same way as fields that are read from a file.
template <class Options>
void check_fields(const char* name, Options options) {
  nlohmann::ordered_json written;
  FieldWriter writer(written);
  options.visit(writer);
  const nlohmann::json fields = written;
  FieldReader reader(fields, name);
  options.visit(reader);
}

}  // namespace

void PlainCnnOptions::visit(FieldVisitor& v) {
  visit_sizes(v, *this);
  v.integer("filters", filters, "of the first stage", {.min = 1, .max = 1 << 16});
  v.integer("depth", depth, "convolutions of a stage", {.min = 1, .max = kMostLayers});
  v.integer("stages", stages, "each with twice the filters of the one before",
            {.min = 1, .max = 16});
}

void MlpOptions::visit(FieldVisitor& v) {
  visit_sizes(v, *this);
  v.integers("units", units, "of each hidden layer", {.min = 1, .max = 1 << 20});
}

void LeNet5Options::visit(FieldVisitor& v) { visit_sizes(v, *this); }
void CifarResNetOptions::visit(FieldVisitor& v) { visit_sizes(v, *this); }
void ResNet18Options::visit(FieldVisitor& v) { visit_sizes(v, *this); }

Network plain_cnn(const PlainCnnOptions& o) {
  check_fields(PlainCnnOptions::kName, o);
  Network n;
  add_input(n, o);
  for (int64_t stage = 0; stage < o.stages; ++stage) {
    if (stage > 0) n.add(max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}));
    for (int64_t layer = 0; layer < o.depth; ++layer) {
      add_normalized(n, {.filters = o.filters << stage, .kernel = {3, 3}, .padding = same_padding});
      n.add(relu());
    }
  }
  n.add(global_average_pooling2d());
  add_classifier(n, o.classes);
  return n;
}

Network mlp(const MlpOptions& o) {
  check_fields(MlpOptions::kName, o);
  Network n;
  add_input(n, o, kUnitVariance);
  for (int64_t units : o.units) {
    n.add(fully_connected({.units = units, .weights_initializer = "he"}));
    n.add(relu());
  }
  add_classifier(n, o.classes);
  return n;
}

Network lenet5(const LeNet5Options& o) {
  check_fields(LeNet5Options::kName, o);
  Network n;
  add_input(n, o, kUnitVariance);
  n.add(convolution2d({.filters = 6, .kernel = {5, 5}, .padding = padding(2)}));
  n.add(tanh());
  n.add(average_pooling2d({.pool = {2, 2}, .stride = {2, 2}}));
  n.add(convolution2d({.filters = 16, .kernel = {5, 5}}));
  n.add(tanh());
  n.add(average_pooling2d({.pool = {2, 2}, .stride = {2, 2}}));
  for (int64_t units : {120, 84}) {
    n.add(fully_connected({.units = units}));
    n.add(tanh());
  }
  add_classifier(n, o.classes);
  return n;
}

Network cifar_resnet(int64_t depth, const CifarResNetOptions& o) {
  if (depth < 8 || depth > kMostLayers || (depth - 2) % 6 != 0) {
    throw InvalidArgument("[resnet] residual networks for CIFAR have 6 n + 2 layers, received " +
                              std::to_string(depth),
                          "20, 32, 44, 56 and 110 are the usual ones");
  }
  check_fields("resnet", o);
  Network n;
  add_input(n, o);
  add_normalized(n, filters_of(16, 3, 1));
  n.add(relu(), "stem");
  add_stages(n, {16, 32, 64}, (depth - 2) / 6);
  n.add(global_average_pooling2d());
  add_classifier(n, o.classes);
  return n;
}

Network resnet20(const CifarResNetOptions& o) { return cifar_resnet(20, o); }
Network resnet56(const CifarResNetOptions& o) { return cifar_resnet(56, o); }

Network resnet18(const ResNet18Options& o) {
  check_fields(ResNet18Options::kName, o);
  Network n;
  add_input(n, o);
  add_normalized(n, filters_of(64, 7, 2));
  n.add(relu());
  n.add(max_pooling2d({.pool = {3, 3}, .stride = {2, 2}, .padding = padding(1)}), "stem");
  add_stages(n, {64, 128, 256, 512}, 2);
  n.add(global_average_pooling2d());
  add_classifier(n, o.classes);
  return n;
}

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all{
      entry<PlainCnnOptions>(PlainCnnOptions::kName, PlainCnnOptions::kHelp, plain_cnn),
      entry<LeNet5Options>(LeNet5Options::kName, LeNet5Options::kHelp, lenet5),
      entry<MlpOptions>(MlpOptions::kName, MlpOptions::kHelp, mlp),
      entry<ResNet18Options>(ResNet18Options::kName, ResNet18Options::kHelp, resnet18),
      entry<CifarResNetOptions>("resnet20", "residual network of 20 layers for CIFAR", resnet20),
      entry<CifarResNetOptions>("resnet56", "residual network of 56 layers for CIFAR", resnet56),
  };
  return all;
}

const Architecture& architecture(const std::string& name) {
  std::vector<std::string> names;
  for (const Architecture& a : architectures()) {
    if (a.name == name) return a;
    names.push_back(a.name);
  }
  throw InvalidArgument("[architecture] unknown architecture `" + name + "`", suggest(name, names));
}

}  // namespace lockstep
