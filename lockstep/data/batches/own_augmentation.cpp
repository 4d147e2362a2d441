#include "lockstep/data/batches/own_augmentation.h"

#include <exception>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"

namespace lockstep {
namespace {

Image to_image(const PlanarImage& from) {
  Image image{from.height, from.width, from.channels, {}};
  const int64_t area = from.height * from.width;
  image.pixels.resize(static_cast<size_t>(area * from.channels));
  for (int64_t c = 0; c < from.channels; ++c) {
    const uint8_t* const plane = from.planes + c * area;
    for (int64_t p = 0; p < area; ++p) {
      image.pixels[static_cast<size_t>(p * from.channels + c)] = plane[p];
    }
  }
  return image;
}

class Caller {
 public:
  Caller(const OwnAugmentation& own, const OwnAugmentationTask& task,
         const AugmentedExample& example)
      : own_(own), task_(task), observation_(example.observation), epoch_(example.epoch) {}

  void call(AugmentedExample& example) const {
    try {
      const ArithmeticMode mode;  // whatever the function leaves, the thread goes on with its own
      own_.function(example);
      mode.check();
    } catch (const Cancelled&) {
      throw;
    } catch (const Error& e) {
      throw Error(where() + " failed: " + e.what(), e.hint());
    } catch (const std::exception& e) {
      throw Error(where() + " failed: " + e.what());
    }
    check_images(example);
  }

  void require_same(const AugmentedExample& one, const AugmentedExample& other) const {
    if (one.images == other.images && one.target == other.target) return;
    throw InvalidArgument(where() + " made other pixels when it was called again",
                          "it may depend on the example and on its random stream alone, not on "
                          "variables that change or on other generators");
  }

 private:
  std::string where() const {
    return "[augmentation] the function `" + own_.name + "` for " + task_.name() +
           " (observation " + std::to_string(observation_) + ", epoch " +
           std::to_string(epoch_ + 1) + ")";
  }

  void check_images(const AugmentedExample& e) const {
    if (e.images.size() != task_.images.size()) {
      throw InvalidArgument(where() + " left " + std::to_string(e.images.size()) +
                            " images; expected " + std::to_string(task_.images.size()));
    }
    for (size_t k = 0; k < e.images.size(); ++k) check_size(e.images[k], task_.images[k]);
    if (e.target.has_value() != (task_.target != nullptr)) {
      throw InvalidArgument(where() + (e.target
                                           ? " made a target, but the observation has none that "
                                             "is an image"
                                           : " removed the target"));
    }
    if (!e.target) return;
    check_size(*e.target, *task_.target);
    if (task_.classes > 0) check_labels(*e.target);
  }

  void check_size(const Image& image, const PlanarImage& expected) const {
    const auto text = [](int64_t height, int64_t width, int64_t channels) {
      return std::to_string(height) + " x " + std::to_string(width) + " x " +
             std::to_string(channels);
    };
    const auto& [height, width, channels, planes] = expected;
    const auto bytes = static_cast<size_t>(height * width * channels);
    const bool fits = image.height == height && image.width == width &&
                      image.channels == channels && image.pixels.size() == bytes;
    if (fits) return;
    throw InvalidArgument(where() + " made an image of " +
                              text(image.height, image.width, image.channels) + " with " +
                              std::to_string(image.pixels.size()) + " bytes; expected " +
                              text(height, width, channels),
                          "an augmentation keeps the size of an image");
  }

  void check_labels(const Image& labels) const {
    for (const uint8_t pixel : labels.pixels) {
      if (pixel < task_.classes || pixel == ignored_pixel) continue;
      throw InvalidArgument(where() + " made a pixel of class " + std::to_string(pixel) +
                                " of a label image with " + std::to_string(task_.classes) +
                                " classes",
                            "pixels of label images are copied, not interpolated; ignored_pixel "
                            "has no class");
    }
  }

  const OwnAugmentation& own_;
  const OwnAugmentationTask& task_;
  const int64_t observation_, epoch_;
};

}  // namespace

void augment_by_function(const OwnAugmentation& own, AugmentedExample example,
                         const OwnAugmentationTask& task) {
  for (const PlanarImage& image : task.images) example.images.push_back(to_image(image));
  if (task.target) example.target = to_image(*task.target);
  const Caller caller(own, task, example);
  if (task.twice) {
    AugmentedExample again = example;
    caller.call(again);
    caller.call(example);
    caller.require_same(again, example);
  } else {
    caller.call(example);
  }
  for (size_t k = 0; k < example.images.size(); ++k) {
    to_planes_into(example.images[k], task.images[k].planes);
  }
  if (task.target) to_planes_into(*example.target, task.target->planes);
}

}  // namespace lockstep
