// Well-known architectures as networks to train, for images of any size and any number of classes.
// initialize() sets the parameters.
//
//   Network network = resnet20({.classes = 100});
//
// All networks end in probabilities (softmax) and are trained with cross-entropy. The command
// `lockstep architecture NAME` prints each one as a job file.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/fields.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

// Stages of `depth` convolutions (3 x 3, each with batch normalization and ReLU). The first stage
// has `filters` filters. Each further stage has twice as many, on images of half the size. The
// average over the image and one fully connected layer follow.
struct PlainCnnOptions {
  static constexpr const char* kName = "cnn";
  static constexpr const char* kHelp = "plain convolutional network: stages of equal convolutions";
  int64_t height = 32, width = 32, channels = 3, classes = 10;
  int64_t filters = 16, depth = 1, stages = 3;
  void visit(FieldVisitor& v);
};
Network plain_cnn(const PlainCnnOptions& options = {});

// Fully connected layers with the given numbers of units and ReLU, and one more for the classes.
struct MlpOptions {
  static constexpr const char* kName = "mlp";
  static constexpr const char* kHelp = "multilayer perceptron: fully connected layers with ReLU";
  int64_t height = 28, width = 28, channels = 1, classes = 10;
  std::vector<int64_t> units = {512, 256};
  void visit(FieldVisitor& v);
};
Network mlp(const MlpOptions& options = {});

// LeNet-5 (LeCun et al. 1998) in its modern form. Images of 28 x 28 pixels with a border of 2
// replace the paper's 32 x 32. The filters of the second convolution read all channels. Softmax
// replaces the radial basis functions. 61,706 parameters for one channel and ten classes.
struct LeNet5Options {
  static constexpr const char* kName = "lenet5";
  static constexpr const char* kHelp = "LeNet-5 (LeCun et al. 1998)";
  int64_t height = 28, width = 28, channels = 1, classes = 10;
  void visit(FieldVisitor& v);
};
Network lenet5(const LeNet5Options& options = {});

// Residual networks for CIFAR (He et al. 2016, section 4.2): 3 x 3 filters, three stages of 16, 32
// and 64 filters on images of 32, 16 and 8 pixels, batch normalization, weights initialized as in
// He et al. 2015. The shortcut is a projection where a stage starts with fewer pixels (option B: 1
// x 1 convolution and batch normalization) and the identity elsewhere. The paper's option A has
// 2,752 fewer parameters.
struct CifarResNetOptions {
  int64_t height = 32, width = 32, channels = 3, classes = 10;
  void visit(FieldVisitor& v);
};
Network resnet20(const CifarResNetOptions& options = {});
Network resnet56(const CifarResNetOptions& options = {});
// Any depth of 6 n + 2 layers, with n blocks per stage. Throws InvalidArgument for other depths.
Network cifar_resnet(int64_t depth, const CifarResNetOptions& options = {});

// Residual network for ImageNet (He et al. 2016, table 1): 7 x 7 convolution and max pooling, then
// four stages of two blocks with 64 to 512 filters. The shortcut is a projection where a stage
// starts with fewer pixels.
struct ResNet18Options {
  static constexpr const char* kName = "resnet18";
  static constexpr const char* kHelp = "residual network of 18 layers for ImageNet";
  int64_t height = 224, width = 224, channels = 3, classes = 1000;
  void visit(FieldVisitor& v);
};
Network resnet18(const ResNet18Options& options = {});

// An entry of the list of architectures.
struct Architecture {
  std::string name;
  std::string help;               // one line
  std::vector<FieldInfo> fields;  // of the options
  // Makes the network from fields of the options; missing fields have their defaults. Throws
  // InvalidArgument for invalid fields.
  std::function<Network(const nlohmann::json& fields)> make;
};

// All architectures in alphabetical order.
const std::vector<Architecture>& architectures();
// Throws InvalidArgument for an unknown name; the hint gives the most similar name.
const Architecture& architecture(const std::string& name);

}  // namespace lockstep
