#include "lockstep/engine/nn/architectures/architectures.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/engine/nn/architectures/parts.h"

namespace lockstep {

void parts::check_visited(const char* name, const std::function<void(FieldVisitor& v)>& visit) {
  nlohmann::ordered_json written;
  FieldWriter writer(written);
  visit(writer);
  const nlohmann::json fields = written;
  FieldReader reader(fields, name);
  visit(reader);
}

using namespace parts;  // NOLINT

namespace {

constexpr int64_t kMostLayers = 1000;

// Adds two convolutions and a shortcut (He et al. 2016, figure 2). The shortcut is the identity, or
// a projection if the number of filters or pixels changes.
void add_block(Network& n, int64_t filters, int64_t stride, bool project, const std::string& prefix,
               const std::string& suffix) {
  std::string shortcut = last_name(n);
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
void add_stages(Network& n, const std::vector<int64_t>& filters,
                const std::vector<int64_t>& blocks) {
  for (size_t stage = 0; stage < filters.size(); ++stage) {
    const std::string number = std::to_string(stage + 1);
    if (stage > 0) add_block(n, filters[stage], 2, true, "down" + number, "");
    const int64_t alike = stage > 0 ? blocks[stage] - 1 : blocks[stage];
    for (int64_t block = 1; block <= alike; ++block) {
      add_block(n, filters[stage], 1, false, "stage" + number, suffix_of(block, alike));
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
void ImageNetOptions::visit(FieldVisitor& v) { visit_sizes(v, *this); }

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
  add_stages(n, {16, 32, 64}, std::vector<int64_t>(3, (depth - 2) / 6));
  n.add(global_average_pooling2d());
  add_classifier(n, o.classes);
  return n;
}

Network resnet20(const CifarResNetOptions& o) { return cifar_resnet(20, o); }
Network resnet56(const CifarResNetOptions& o) { return cifar_resnet(56, o); }

namespace {

void add_imagenet_stem(Network& n, const ImageNetOptions& o) {
  add_input(n, o);
  add_normalized(n, filters_of(64, 7, 2));
  n.add(relu());
  n.add(max_pooling2d({.pool = {3, 3}, .stride = {2, 2}, .padding = padding(1)}), "stem");
}

Network of_basic_blocks(const char* name, const ImageNetOptions& o,
                        const std::vector<int64_t>& blocks) {
  check_fields(name, o);
  Network n;
  add_imagenet_stem(n, o);
  add_stages(n, {64, 128, 256, 512}, blocks);
  n.add(global_average_pooling2d());
  add_classifier(n, o.classes);
  return n;
}

// Three convolutions, which narrow and widen the channels, and a shortcut (He et al. 2016, figure
// 5). The stride is that of the middle one, as in torchvision.
void add_bottleneck(Network& n, int64_t filters, int64_t stride, bool project,
                    const std::string& prefix, const std::string& suffix) {
  std::string shortcut = last_name(n);
  const std::string input = shortcut;
  add_normalized(n, filters_of(filters, 1, 1));
  n.add(relu());
  add_normalized(n, filters_of(filters, 3, stride));
  n.add(relu());
  const std::string branch =
      add_normalized(n, filters_of(4 * filters, 1, 1), prefix + "/branch" + suffix);
  if (project) {
    shortcut = add_normalized(n, filters_of(4 * filters, 1, stride), prefix + "/shortcut", {input});
  }
  n.add(addition(), {}, {branch, shortcut});
  n.add(relu(), prefix + "/out" + suffix);
}

}  // namespace

Network resnet18(const ImageNetOptions& o) { return of_basic_blocks("resnet18", o, {2, 2, 2, 2}); }

Network resnet34(const ImageNetOptions& o) { return of_basic_blocks("resnet34", o, {3, 4, 6, 3}); }

Network resnet50(const ImageNetOptions& o) {
  check_fields("resnet50", o);
  Network n;
  add_imagenet_stem(n, o);
  const std::vector<int64_t> blocks{3, 4, 6, 3};
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    const std::string number = std::to_string(stage + 1);
    const int64_t filters = int64_t{64} << stage, alike = blocks[stage] - 1;
    add_bottleneck(n, filters, stage > 0 ? 2 : 1, true, (stage > 0 ? "down" : "widen") + number,
                   "");
    for (int64_t block = 1; block <= alike; ++block) {
      add_bottleneck(n, filters, 1, false, "stage" + number, suffix_of(block, alike));
    }
  }
  n.add(global_average_pooling2d());
  add_classifier(n, o.classes);
  return n;
}

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all{
      entry<PlainCnnOptions>(PlainCnnOptions::kName, PlainCnnOptions::kHelp, plain_cnn),
      entry<ConvNextOptions>("convnext_tiny", "ConvNeXt-T (Liu et al. 2022)", convnext_tiny),
      entry<EfficientNetOptions>("efficientnet_b0", "EfficientNet-B0 (Tan, Le 2019)",
                                 efficientnet_b0),
      entry<LeNet5Options>(LeNet5Options::kName, LeNet5Options::kHelp, lenet5),
      entry<MlpOptions>(MlpOptions::kName, MlpOptions::kHelp, mlp),
      entry<ImageNetOptions>("mobilenetv2", "MobileNetV2 (Sandler et al. 2018)", mobilenetv2),
      entry<ImageNetOptions>("resnet18", "residual network of 18 layers for ImageNet", resnet18),
      entry<CifarResNetOptions>("resnet20", "residual network of 20 layers for CIFAR", resnet20),
      entry<ImageNetOptions>("resnet34", "residual network of 34 layers for ImageNet", resnet34),
      entry<ImageNetOptions>("resnet50", "residual network of 50 layers for ImageNet", resnet50),
      entry<CifarResNetOptions>("resnet56", "residual network of 56 layers for CIFAR", resnet56),
      entry<UNetOptions>("unet", "U-Net (Ronneberger et al. 2015): a class for each pixel", unet),
      entry<VitOptions>("vit_tiny", "vision transformer of 12 small blocks (Touvron et al. 2021)",
                        vit_tiny),
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
