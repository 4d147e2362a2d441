// A training loop of one's own: a tape, a loss, gradients, an update. The network is one node on
// the tape and runs the same plan as the trainer's.
#include <cstdio>

#include "lockstep/lockstep.h"

using namespace lockstep;

int main() {
  const auto parts = split_each_label(builtin_digits(), {0.9}, /*seed=*/0);
  Network network({image_input({.height = 28, .width = 28, .channels = 1, .normalization = "none"}),
                   batch_normalization(), convolution2d({.filters = 16, .kernel = {5, 5}}), relu(),
                   max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}),
                   fully_connected({.units = 10}), softmax()});
  network.initialize(/*seed=*/0);
  TrainingOptions options;
  options.l2 = 0;
  const auto solver = make_solver(network, options);
  const std::vector<Tensor> learnables = network.learnable_values();

  const auto images = std::make_shared<const ImageCache>(parts[0], 28, 28, 1, size_t{64} << 20);
  MiniBatchQueueOptions batches;
  batches.mini_batch_size = 100;
  MiniBatchQueue queue(images, batches);
  for (int64_t iteration = 1; queue.has_data(); ++iteration) {
    const auto batch = queue.next();
    const Tensor x = Tensor::from(std::span(batch->pixels), Shape{batch->size(), 1, 28, 28});
    const Tensor labels = Tensor::from(std::span(batch->labels), Shape{batch->size()});

    Tape tape;
    tape.watch(learnables);
    const Tensor scores = network.forward({x}, {.training = true});
    const Tensor loss = ops::mean(ops::cross_entropy(scores, labels));
    const auto gradients = tape.gradient(loss, learnables);
    for (size_t i = 0; i < gradients.size(); ++i) {
      solver->update(i, gradients[i].data<float>(),
                     {.learning_rate = 0.05, .iteration = iteration});
    }
    if (iteration % 15 == 0) {
      std::printf("iteration %2d  loss %.3f\n", static_cast<int>(iteration),
                  static_cast<double>(loss.item()));
    }
  }
  std::printf("held-out accuracy %.1f %%\n", 100 * evaluate(network, parts[1]).accuracy);
}
