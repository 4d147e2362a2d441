#include "lockstep/runs/jobs/networks/architecture_job.h"

#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/engine/nn/architectures/architectures.h"
#include "lockstep/runs/jobs/networks/network_text.h"

namespace lockstep {
namespace {

constexpr const char* built_in_digits = R"([data]
train = "builtin:digits"
validation_fraction = 0.1
test_fraction = 0.1
)";
constexpr const char* folder_of_images = R"([data]
train = "images/train"            # yours: one folder of images for each class
validation_fraction = 0.1
resize = true                     # images to the network's input
)";

constexpr const char* usual_training = R"([training]
initial_learning_rate = 0.05
mini_batch_size = 128
max_epochs = 12
)";
// For networks without batch normalization.
constexpr const char* plain_training = R"([training]
initial_learning_rate = 0.01
mini_batch_size = 128
max_epochs = 12
)";
// He et al. 2016: the rates of sections 4.2 (CIFAR) and 3.4 (ImageNet), with drops by epochs. A
// warmup as in Goyal et al. 2017 precedes them, because they are high for an untrained network.
constexpr const char* cifar_training = R"([training]
initial_learning_rate = 0.1
learning_rate_schedule = ["warmup", "piecewise"]
schedule_epochs = [5]             # of warmup; the rate is for this mini_batch_size: scale both
drop_factor = 0.1
drop_period = 70                  # epochs
momentum = 0.9
l2 = 1e-4
mini_batch_size = 128
max_epochs = 180
)";
constexpr const char* imagenet_training = R"([training]
initial_learning_rate = 0.1
learning_rate_schedule = ["warmup", "piecewise"]
schedule_epochs = [5]             # of warmup; the rate is for this mini_batch_size: scale both
drop_factor = 0.1
drop_period = 30                  # epochs
momentum = 0.9
l2 = 1e-4
mini_batch_size = 256
max_epochs = 90
)";

// For networks that learn with AdamW and a long warmup (Liu et al. 2022, Touvron et al. 2021, for
// fewer observations in a mini-batch).
constexpr const char* adamw_training = R"([training]
solver = "adamw"
initial_learning_rate = 5e-4
learning_rate_schedule = ["warmup", "cosine"]
schedule_epochs = [10]            # of warmup; the rate is for this mini_batch_size: scale both
l2 = 0.05
mini_batch_size = 256
max_epochs = 100
)";
constexpr const char* pixel_training = R"([training]
solver = "adam"
initial_learning_rate = 1e-3
mini_batch_size = 16
max_epochs = 40
)";

const char* training_of(const std::string& name) {
  static const std::map<std::string, const char*> known{
      {"convnext_tiny", adamw_training}, {"efficientnet_b0", imagenet_training},
      {"mlp", plain_training},           {"mobilenetv2", imagenet_training},
      {"resnet18", imagenet_training},   {"resnet20", cifar_training},
      {"resnet34", imagenet_training},   {"resnet50", imagenet_training},
      {"resnet56", cifar_training},      {"unet", pixel_training},
      {"vit_tiny", adamw_training}};
  const auto found = known.find(name);
  return found == known.end() ? usual_training : found->second;
}

// Label images with as many classes as the network has.
std::string images_of_pixels(int64_t classes) {
  std::string names;
  for (int64_t c = 0; c < classes; ++c) {
    names += (c > 0 ? ", \"" : "\"") + std::to_string(c) + "\"";
  }
  return R"([data]
train = "images"                  # yours
targets = "masks"                 # a PNG file for each image, with the class of each pixel
pixel_classes = [)" +
         names + R"(]  # their names, from the value 0 on
# ignored_value = 255             # of pixels that have no class
validation_fraction = 0.1
resize = true                     # images and masks to the network's input
)";
}

}  // namespace

std::string architecture_job(const std::string& name, const nlohmann::json& fields) {
  const Architecture& chosen = architecture(name);
  const Network network = chosen.make(fields);
  const std::string text = network_text(network);  // throws if the network is not valid
  const bool fits_digits = network.input_shapes() == std::vector<Shape>{{1, 28, 28}} &&
                           network.output_shapes() == std::vector<Shape>{{10}};
  const bool of_pixels = network.output_shapes().at(0).rank() > 1;
  const std::string data = fits_digits ? built_in_digits
                           : of_pixels ? images_of_pixels(network.output_shapes().at(0)[0])
                                       : folder_of_images;
  return "# " + chosen.help + "\n\n" + data + "\n" + text + "\n" + training_of(name);
}

}  // namespace lockstep
