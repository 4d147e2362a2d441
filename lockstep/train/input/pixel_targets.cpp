#include "lockstep/train/input/pixel_targets.h"

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/images/augmentation.h"
#include "lockstep/engine/nn/loss.h"

namespace lockstep {

bool labels_pixels(const Network& network) {
  const std::vector<NetworkValue> outputs = network.outputs();
  return outputs.size() == 1 && !outputs[0].sequence && outputs[0].shape.rank() == 3 &&
         takes_labels(network.loss());
}

bool has_pixel_labels(const Datastore& data) {
  const std::optional<ValueSpec> target = data.spec().target;
  return target && target->pixel_labels();
}

void check_pixel_classifier(const Network& network, const Datastore& data) {
  const auto count = static_cast<int64_t>(data.classes().size());
  const NetworkValue output = network.outputs().at(0);
  const Shape input = network.input_shapes().at(0);
  if (!takes_labels(network.loss())) {
    throw InvalidArgument(
        "[training] label images need a loss of labels, such as cross_entropy, "
        "but the network has " +
            network.loss(),
        "set loss = \"cross_entropy\", after a softmax");
  }
  if (output.sequence || output.shape.rank() != 3 || input.rank() != 3) {
    throw InvalidArgument("[training] the data (" + data.describe() +
                              ") has a label for each pixel, but the network's output is of " +
                              output.to_string(),
                          "end the network in a map of " + std::to_string(count) +
                              " channels in the size of its input: convolution2d, then softmax");
  }
  if (output.shape[0] != count) {
    throw InvalidArgument("[training] the data has " + counted(count, "class", "classes") +
                              " of pixels, but the network's output has " +
                              counted(output.shape[0], "channel") + " (" +
                              output.shape.to_string() + ")",
                          "the last convolution needs " + counted(count, "filter"));
  }
  if (output.shape[1] != input[1] || output.shape[2] != input[2]) {
    throw InvalidArgument("[training] the network's output of " + output.shape.to_string() +
                              " has another size than its input of " + input.to_string() +
                              ", but each pixel of an image has a label",
                          "enlarge the output: upsampling2d, or transposed_convolution2d");
  }
}

std::vector<int64_t> count_each_pixel_label(const Datastore& data, int threads) {
  ThreadPool pool(threads);
  const size_t classes = data.classes().size();
  std::vector<std::vector<int64_t>> counts(static_cast<size_t>(pool.size()),
                                           std::vector<int64_t>(classes));
  pool.for_each(data.size(), [&](int64_t i, int thread) {
    const Example example = data.read(i);
    for (const uint8_t pixel : std::get<Image>(example.target).pixels) {
      if (pixel != ignored_pixel) ++counts[static_cast<size_t>(thread)].at(pixel);
    }
  });
  std::vector<int64_t> sums(classes);
  for (const std::vector<int64_t>& some : counts) {
    for (size_t c = 0; c < classes; ++c) sums[c] += some[c];
  }
  return sums;
}

}  // namespace lockstep
