// Well-known architectures as networks to train, for images of any size and any number of classes.
// initialize() sets the parameters.
//
//   Network network = resnet20({.classes = 100});
//
// All networks end in probabilities (softmax) and are trained with cross-entropy; unet() has them
// for each pixel. The command `lockstep architecture NAME` prints each one as a job file.
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

// The images and classes of networks for ImageNet.
struct ImageNetOptions {
  int64_t height = 224, width = 224, channels = 3, classes = 1000;
  void visit(FieldVisitor& v);
};
// Residual network for ImageNet (He et al. 2016, table 1): 7 x 7 convolution and max pooling, then
// four stages of two blocks with 64 to 512 filters. The shortcut is a projection where a stage
// starts with fewer pixels.
Network resnet18(const ImageNetOptions& options = {});
// Stages of 3, 4, 6 and 3 blocks, of two convolutions, or of three with four times as many channels
// at their ends (the stride is the middle one's, as in torchvision).
Network resnet34(const ImageNetOptions& options = {});
Network resnet50(const ImageNetOptions& options = {});

// MobileNetV2 (Sandler et al. 2018): blocks that widen the channels six times, filter each channel
// alone and narrow them without an activation.
Network mobilenetv2(const ImageNetOptions& options = {});

// EfficientNet-B0 (Tan, Le 2019): such blocks with swish and squeeze and excitation. Branches are
// dropped by stochastic depth, whose probability grows by stage to nearly `stochastic_depth`
// (torchvision: by block). Images of 224 x 224; others have no other filters.
struct EfficientNetOptions {
  int64_t height = 224, width = 224, channels = 3, classes = 1000;
  double stochastic_depth = 0.2;
  void visit(FieldVisitor& v);
};
Network efficientnet_b0(const EfficientNetOptions& options = {});

// ConvNeXt-T (Liu et al. 2022): filters of 7 x 7 for each channel alone, normalization of the
// channels of each pixel, and two products with GELU between them. Stochastic depth as above.
struct ConvNextOptions {
  int64_t height = 224, width = 224, channels = 3, classes = 1000;
  double stochastic_depth = 0.1;
  void visit(FieldVisitor& v);
};
Network convnext_tiny(const ConvNextOptions& options = {});

// A vision transformer with 192 channels, 3 heads and 12 blocks, which normalize first (Dosovitskiy
// et al. 2021; this size: Touvron et al. 2021), on patches of `patch` x `patch` pixels. The mean
// over the patches replaces the class token (timm: global_pool="avg", class_token=False).
struct VitOptions {
  int64_t height = 224, width = 224, channels = 3, classes = 1000, patch = 16;
  void visit(FieldVisitor& v);
};
Network vit_tiny(const VitOptions& options = {});

// U-Net (Ronneberger et al. 2015) with padding and batch normalization: `depth` times two
// convolutions and max pooling, with twice the filters each time, then as many transposed
// convolutions, which the results of the way down join. The result is the probability of each class
// for each pixel: classes x height x width. Height and width must be multiples of 2^depth.
struct UNetOptions {
  int64_t height = 128, width = 128, channels = 3, classes = 2;
  int64_t filters = 64, depth = 4;
  void visit(FieldVisitor& v);
};
Network unet(const UNetOptions& options = {});

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
