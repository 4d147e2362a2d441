// A custom training loop over worker processes, in two versions. In the literal version each worker
// takes mini-batches from its own part of the images, and the loop itself combines gradients, loss
// and network state. As with all such loops, the result depends on the number of workers. In the
// lawful version the same workers share the shards of each mini-batch, and the network has the same
// bits for any number of workers.
//
// usage: custom_parallel_loop [WORKERS [EPOCHS]]
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "lockstep/lockstep.h"

using namespace lockstep;

namespace {

constexpr int64_t kClasses = 10;
constexpr int64_t kEach = 128;  // observations of each worker in a mini-batch

struct Point {
  int64_t iteration = 0, epoch = 0;
  double loss = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(iteration, epoch, loss);
  }
};

// The result of a worker.
struct Trained {
  std::string digest;
  Bytes model;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(digest, model);
  }
};

std::vector<DatastorePtr> open_data() {
  return split_each_label(builtin_digits(), {0.9}, /*seed=*/0);  // training and test data
}

Network make_network() {
  Network network({image_input({.height = 28, .width = 28, .channels = 1})});
  for (const int64_t kernel : {5, 3, 3}) {
    network.add(convolution2d(
        {.filters = 20, .kernel = {kernel, kernel}, .padding = padding(kernel == 3 ? 1 : 0)}));
    network.add(batch_normalization());
    network.add(relu());
  }
  network.add(fully_connected({.units = kClasses}));
  network.add(softmax());
  network.initialize(/*seed=*/0);
  return network;
}

// The input layer subtracts the mean of all training images, in all workers.
void normalize_inputs(Network& network, MiniBatchQueue& queue) {
  ThreadPool one(1);
  set_input_normalization(network, queue.channels(one));
}

// Called when a mini-batch is prepared, ahead of its use. The targets are one-hot.
void preprocess(MiniBatch& batch) { batch.set("targets", one_hot(batch.labels(), kClasses)); }

Tensor images_of(const MiniBatch& batch) { return batch.input().tensor(); }

// This worker's share of a mini-batch of n observations: one more for each of the first n % size
// workers.
int64_t share_of(int64_t n, const Spmd& block) {
  return n / block.size() + (block.index() < n % block.size() ? 1 : 0);
}

// The sum over workers of `factor` times their values.
Tensor weighted_sum(Spmd& block, const Tensor& tensor, double factor) {
  std::vector<float> values = tensor.to_vector();
  for (float& v : values) v *= static_cast<float>(factor);
  values = block.plus(values);
  return Tensor::from(std::span(values), tensor.shape());
}

// Combines the moving statistics of all workers: x = sum of w_j x_j, and s^2 = sum of w_j (s_j^2 +
// (x_j - x)^2), where w_j is the share of worker j.
void combine_state(Spmd& block, const Network& network, double share) {
  const auto& all = network.state();
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    if (!all[i].name.ends_with(".mean") || !all[i + 1].name.ends_with(".variance")) continue;
    const Tensor &own_mean = all[i].value, &own_variance = all[i + 1].value;
    const Tensor mean = weighted_sum(block, own_mean, share);
    Tensor spread = own_variance.clone();
    for (int64_t k = 0; k < mean.shape().elements(); ++k) {
      const float apart = own_mean.data<float>()[k] - mean.data<float>()[k];
      spread.data<float>()[k] += apart * apart;
    }
    own_variance.copy_from(weighted_sum(block, spread, share));
    own_mean.copy_from(mean);
  }
}

Trained literal_loop(Spmd& block, int64_t epochs, const QueueSender<Point>& client) {
  const DatastorePtr all = open_data()[0];
  Network network = make_network();
  {
    MiniBatchQueue of_all(all, network.input_shapes(), {});
    normalize_inputs(network, of_all);
  }
  MiniBatchQueue queue(partition(all, block.size(), block.index()), network.input_shapes(),
                       {.mini_batch_size = share_of(kEach * block.size(), block),
                        .prefetch = 2,
                        .max_epochs = epochs,
                        .preprocess = preprocess});
  SgdmState state;
  const auto both = [](bool a, bool b) { return a && b; };
  for (int64_t iteration = 1; block.reduce(queue.has_data(), both); ++iteration) {
    const auto batch = queue.next();
    const Tensor images = images_of(*batch);
    const Tensor wanted = (*batch)["targets"].tensor();
    auto [loss, gradients] = value_and_gradient(
        [&] {
          const Tensor scores =
              network.forward({images}, {.training = true, .outputs = {"fully_connected_1"}});
          return ops::mean(ops::softmax_cross_entropy(scores, wanted));
        },
        network);
    const double share =
        static_cast<double>(batch->size()) / static_cast<double>(block.plus(batch->size()));
    for (Tensor& gradient : gradients) gradient = weighted_sum(block, gradient, share);
    loss = block.plus(share * loss);
    combine_state(block, network, share);
    sgdm_update(network, gradients, state, {.learning_rate = 0.01});
    if (block.index() == 0) client.send({iteration, batch->epoch + 1, loss});
  }
  return {network_digest(network).to_string(), encode_model(network, all->classes())};
}

Trained lawful_loop(Spmd& block, int64_t mini_batch, int64_t epochs,
                    const QueueSender<Point>& client) {
  const DatastorePtr all = open_data()[0];
  Network network = make_network();
  // Every worker loads the whole mini-batch and computes its own shards of it.
  MiniBatchQueue queue(all, network.input_shapes(),
                       {.mini_batch_size = mini_batch, .max_epochs = epochs});
  normalize_inputs(network, queue);
  ShardGroup group(network, {.threads = 1}, block.group());
  SgdmState state;
  for (int64_t iteration = 1; queue.has_data(); ++iteration) {
    const auto batch = queue.next();
    const Tensor labels = Tensor::from(batch->labels(), {batch->size()});
    const auto [loss, gradients] = sharded_value_and_gradient(
        [](Shard& shard) {
          const Tensor scores = shard.forward(shard[0], {.outputs = {"fully_connected_1"}});
          return ops::softmax_cross_entropy(scores, shard[1]);
        },
        {images_of(*batch), labels}, group, iteration);
    sgdm_update(network, gradients, state, {.learning_rate = 0.01});
    if (block.index() == 0) client.send({iteration, batch->epoch + 1, loss});
  }
  return {network_digest(network).to_string(), encode_model(network, all->classes())};
}

// The curve of the loss, redrawn on a terminal as it grows.
class Curve {
 public:
  void add(const Point& p) {
    const auto now = std::chrono::steady_clock::now();
    if (line_.points.empty()) began_ = now;
    line_.points.emplace_back(static_cast<double>(p.iteration), p.loss);
    epoch_ = p.epoch;
    if (isatty(STDOUT_FILENO) && now - drawn_ > std::chrono::milliseconds(200)) draw();
  }
  void draw() {
    drawn_ = std::chrono::steady_clock::now();
    if (line_.points.empty()) return;
    const double seconds = std::chrono::duration<double>(drawn_ - began_).count();
    const std::string text = line_chart_text(
        {&line_, 1},
        {.title = "loss, epoch " + std::to_string(epoch_) + ", elapsed " + format_duration(seconds),
         .rows = 8});
    if (lines_ > 0) std::printf("\x1b[%dA", lines_);
    std::printf("%s", text.c_str());
    std::fflush(stdout);
    lines_ =
        isatty(STDOUT_FILENO) ? static_cast<int>(std::count(text.begin(), text.end(), '\n')) : 0;
  }

 private:
  LineSeries line_;
  int64_t epoch_ = 0;
  int lines_ = 0;
  std::chrono::steady_clock::time_point began_, drawn_;
};

// Compares the most likely class of each test image with its label.
double test_accuracy(const Trained& trained) {
  Network network = decode_model(trained.model).network.clone();
  const DatastorePtr test = open_data()[1];
  const std::vector<float> scores = predict(network, test).to_vector();
  int64_t right = 0;
  for (int64_t i = 0; i < test->size(); ++i) {
    const auto first = scores.begin() + i * kClasses;
    right += std::max_element(first, first + kClasses) - first == test->label(i) ? 1 : 0;
  }
  return static_cast<double>(right) / static_cast<double>(test->size());
}

}  // namespace

int main(int argc, char** argv) {
  const Runtime runtime(argc, argv);
  try {
    // As many workers as there are GPUs, or four on the CPU.
    const auto gpus = static_cast<int>(kernels::list_devices().size());
    const int workers = argc > 1 ? std::max(1, std::atoi(argv[1])) : gpus > 0 ? gpus : 4;
    const int64_t epochs = argc > 2 ? std::max(1, std::atoi(argv[2])) : 20;
    Curve literal_curve, lawful_curve;  // before the pool, whose callbacks use them
    Pool pool({.workers = workers});
    std::printf("%d GPUs, %d workers, mini-batches of %d for each\n", gpus, pool.size(),
                static_cast<int>(kEach));

    DataQueue<Point> first(pool);
    first.after_each([&](const Point& p) { literal_curve.add(p); });
    const auto literal = spmd(
        pool,
        [](Spmd& block, int64_t n, const QueueSender<Point>& client) {
          return literal_loop(block, n, client);
        },
        epochs, first.sender());
    const double literal_accuracy = test_accuracy(literal[0]);
    first.finish();
    literal_curve.draw();
    std::printf("the literal loop:  test accuracy %.2f%%, digest %s\n\n", 100 * literal_accuracy,
                literal[0].digest.c_str());

    DataQueue<Point> second(pool);
    second.after_each([&](const Point& p) { lawful_curve.add(p); });
    const auto lawful = [](Spmd& block, int64_t size, int64_t n, const QueueSender<Point>& client) {
      return lawful_loop(block, size, n, client);
    };
    const int64_t mini_batch = kEach * workers;
    const auto shared = spmd(pool, lawful, mini_batch, epochs, second.sender());
    const double lawful_accuracy = test_accuracy(shared[0]);
    second.finish();
    lawful_curve.draw();
    std::printf("the lawful loop:   test accuracy %.2f%%, digest %s\n", 100 * lawful_accuracy,
                shared[0].digest.c_str());

    pool.resize(1);
    DataQueue<Point> unread(pool);
    unread.after_each([](const Point&) {});
    const auto alone = spmd(pool, lawful, mini_batch, epochs, unread.sender());
    std::printf("by one worker:     %sdigest %s\n",
                alone[0].digest == shared[0].digest ? "the same " : "ANOTHER ",
                alone[0].digest.c_str());
    const bool good = std::min(literal_accuracy, lawful_accuracy) >= (epochs < 10 ? 0.9 : 0.98);
    return good && alone[0].digest == shared[0].digest ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    if (!e.hint().empty()) std::fprintf(stderr, "hint: %s\n", e.hint().c_str());
    return 1;
  }
}
