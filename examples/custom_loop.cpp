// Trains on the built-in digits with a custom training loop: any loss of tensors, a custom learning
// rate, periodic validation. Each mini-batch is divided into shards that the threads share. The
// number of threads affects the speed but not the result. With --profile it prints where the time
// was spent; --device cuda:0 trains on a GPU.
#include <algorithm>
#include <cstdio>
#include <string_view>

#include "lockstep/lockstep.h"

using namespace lockstep;

int main(int argc, char** argv) {
  const Runtime runtime(argc, argv);  // a GPU is tested at its first use by a copy of this program
  bool profile = false;
  Device device;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--profile") {
      profile = true;
    } else if (argument == "--device" && i + 1 < argc) {
      device = parse_device(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: custom_loop [--profile] [--device NAME]\n");
      return 2;
    }
  }
  const auto parts = split_each_label(builtin_digits(), {0.8, 0.1}, /*seed=*/0);
  Network network({image_input({.height = 28, .width = 28, .channels = 1})});
  for (const int64_t kernel : {5, 3, 3}) {
    network.add(convolution2d(
        {.filters = 20, .kernel = {kernel, kernel}, .padding = padding(kernel == 3 ? 1 : 0)}));
    network.add(batch_normalization());
    network.add(relu());
  }
  network.add(fully_connected({.units = 10}));
  network.add(softmax());
  network.initialize(/*seed=*/0);
  network.to(device);
  ShardGroup group(network,
                   {.threads = available_cores(), .shard_size = 16, .seed = 0, .profile = profile});

  constexpr int64_t kEpochs = 3;
  MiniBatchQueue queue(parts[0], network.input_shapes(),
                       {.mini_batch_size = 128,
                        .augmentation = {.translate_x = {-2, 2}, .translate_y = {-2, 2}},
                        .helped = true,
                        .max_epochs = kEpochs});
  // Reads all images once. They stay in memory, and the input layer subtracts their mean.
  set_input_normalization(network, queue.channels(group.pool()));
  // The first thread that has finished its shards prepares the next mini-batch.
  group.work_meanwhile([&](bool ahead) { return queue.help(ahead); });
  const int64_t per_epoch = queue.batches_per_epoch(), iterations = kEpochs * per_epoch;

  // One value for each observation. shard.forward(shard[0]) with ops::cross_entropy() on the
  // probabilities would work as well, but the scores before softmax are exact even if they are far
  // apart.
  const auto loss = [](Shard& shard) {
    const Tensor scores = shard.forward(shard[0], {.outputs = {"fully_connected_1"}});
    return ops::softmax_cross_entropy(scores, shard[1]);
  };
  SgdmState state;
  for (int64_t iteration = 1; queue.has_data(); ++iteration) {
    const auto batch = queue.next();
    const Tensor x = batch->input().tensor();
    const Tensor labels = Tensor::from(batch->labels(), {batch->size()});
    const auto step = sharded_value_and_gradient(loss, {x, labels}, group, iteration);
    // Rises during the first 20 iterations, then falls linearly to 0.
    const auto done = static_cast<double>(iteration), all = static_cast<double>(iterations);
    const double rate = 0.05 * std::min(done / 20, (all - done) / (all - 20));
    sgdm_update(network, step.gradients, state,
                {.learning_rate = rate, .l2 = 1e-4, .pool = &group.pool()});
    group.end_iteration();

    if (iteration % 40 == 0) {
      std::printf("iteration %3d  loss %.3f  rate %.4f\n", static_cast<int>(iteration), step.value,
                  rate);
    }
    if (iteration % per_epoch == 0) {
      std::printf("epoch %d: validation accuracy %.1f %%\n", static_cast<int>(batch->epoch + 1),
                  100 * evaluate(network, parts[1]).accuracy);
    }
  }
  if (const auto where = group.profile()) std::printf("%s\n", profile_table(*where, 80).c_str());
  const double accuracy = evaluate(network, parts[2]).accuracy;
  std::printf("test accuracy %.1f %%, digest %s\n", 100 * accuracy,
              network_digest(network).to_string().c_str());
  return accuracy >= 0.98 ? 0 : 1;
}
