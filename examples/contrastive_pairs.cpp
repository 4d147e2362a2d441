// A network learns from pairs of digits to map equal ones near each other and different ones
// apart, in a space of 8 dimensions (Hadsell, Chopra, LeCun 2006). Both images of a pair go through
// the same network, and a pair is one observation of the mini-batch. New images then belong to the
// class with the nearest center. The loop is stopped half way and continued from its file; two
// worker processes, which are not stopped, end with the same bits.
//
// usage: contrastive_pairs [ITERATIONS]   (writes contrastive_pairs.safetensors)
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "lockstep/lockstep.h"

using namespace lockstep;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int64_t kSide = 28, kRows = 128;
constexpr size_t kClasses = 10, kDimensions = 8;

Network make_network() {
  Network network(
      {image_input(
           {.height = kSide, .width = kSide, .channels = 1, .normalization = "rescale-symmetric"}),
       convolution2d({.filters = 8, .kernel = {5, 5}, .stride = {2, 2}}), relu(),
       convolution2d({.filters = 16, .kernel = {3, 3}, .stride = {2, 2}}), relu(),
       fully_connected({.units = 64}), relu(), fully_connected({.units = kDimensions})});
  network.initialize(/*seed=*/0);
  return network;
}

std::vector<DatastorePtr> open_data() {
  return split_each_label(builtin_digits(), {0.9}, /*seed=*/0);  // training and test data
}

Tensor images_of(const MiniBatch& batch) { return batch.input().tensor(); }

// Equal digits should have no distance, and different ones at least 1.
Tensor pair_loss(Shard& shard) {
  const Tensor first = shard.forward(shard[0]), second = shard.forward(shard[1]);
  const Tensor distance = ops::norm(first - second, {1});
  const Tensor& equal = shard[2];
  return equal * ops::square(distance) + (1 - equal) * ops::square(ops::maximum(1 - distance, 0));
}

// The partner of each observation of a mini-batch: in even rows the next one of the same class, in
// odd rows the next one of another class, if there is one.
std::vector<int64_t> partners_of(std::span<const int32_t> labels) {
  const auto n = static_cast<int64_t>(labels.size());
  std::vector<int64_t> partners;
  for (int64_t i = 0; i < n; ++i) {
    int64_t other = (i + 1) % n;
    while (other != i && (labels[other] == labels[i]) != (i % 2 == 0)) other = (other + 1) % n;
    partners.push_back(other);
  }
  return partners;
}

struct Embedding {
  Network network = make_network();
  AdamState state;
  LoopPosition at;
  std::vector<double> seconds;  // of iterations

  // Up to iteration `last`, by the threads of this process or by a group of workers.
  void train(int64_t last, Group* workers) {
    ShardGroup group = workers ? ShardGroup(network, {.threads = 1}, *workers)
                               : ShardGroup(network, {.threads = available_cores()});
    MiniBatchQueue queue(open_data()[0], network.input_shapes(),
                         {.mini_batch_size = kRows, .helped = !workers, .max_epochs = 1000},
                         at.epoch, at.batch);
    set_input_normalization(network, queue.channels(group.pool()));
    group.work_meanwhile([&](bool ahead) { return queue.help(ahead); });
    while (at.iteration < last) {
      const auto begin = Clock::now();
      const auto batch = queue.next();
      const int64_t iteration = at.iteration + 1;
      const std::span<const uint8_t> pixels = batch->input().values<uint8_t>();
      const std::span<const int32_t> labels = batch->labels();
      std::vector<uint8_t> others(pixels.size());
      std::vector<float> equal;
      const std::vector<int64_t> partners = partners_of(labels);
      for (int64_t i = 0; i < kRows; ++i) {
        const int64_t other = partners[i], size = kSide * kSide;
        std::copy_n(pixels.begin() + other * size, size, others.begin() + i * size);
        equal.push_back(labels[other] == labels[i] ? 1 : 0);
      }
      const Tensor second = Tensor::from(std::span(others), {kRows, 1, kSide, kSide});
      const Tensor same = Tensor::from(std::span(equal), {kRows});
      const auto [loss, gradients] = sharded_value_and_gradient(
          pair_loss, {images_of(*batch), second, same}, group, iteration);
      adam_update(network, gradients, state, {.learning_rate = 2e-3});
      at = {iteration, queue.epoch(), queue.batch()};
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  }
};

using Point = std::array<float, kDimensions>;

double distance_of(const Point& a, const Point& b) {
  double squares = 0;
  for (size_t k = 0; k < kDimensions; ++k) squares += std::pow(static_cast<double>(a[k] - b[k]), 2);
  return std::sqrt(squares);
}

// The points of images, with their classes.
struct Points {
  std::vector<Point> of;
  std::vector<int32_t> labels;
};

Points points_of(Network& network, const DatastorePtr& store) {
  MiniBatchQueue queue(store, network.input_shapes(), {.mini_batch_size = store->size()});
  const auto all = queue.next();
  const std::vector<float> values = network.predict(images_of(*all)).to_vector();
  const std::span<const int32_t> labels = all->labels();
  Points points{std::vector<Point>(labels.size()), {labels.begin(), labels.end()}};
  for (size_t i = 0; i < values.size(); ++i)
    points.of[i / kDimensions][i % kDimensions] = values[i];
  return points;
}

std::vector<Point> centers_of(const Points& points) {
  std::vector<Point> centers(kClasses);
  std::vector<float> counts(kClasses);
  for (size_t i = 0; i < points.of.size(); ++i) {
    const auto c = static_cast<size_t>(points.labels[i]);
    for (size_t k = 0; k < kDimensions; ++k) centers[c][k] += points.of[i][k];
    ++counts[c];
  }
  for (size_t c = 0; c < kClasses; ++c) {
    for (float& v : centers[c]) v /= counts[c];
  }
  return centers;
}

// Prints the mean distances of the images of each class from all centers. Returns the share of
// images whose nearest center is that of their class.
double print_distances(const Points& points, const std::vector<Point>& centers) {
  std::vector<std::array<double, kClasses>> sums(kClasses);
  std::vector<double> counts(kClasses);
  double right = 0;
  for (size_t i = 0; i < points.of.size(); ++i) {
    const auto c = static_cast<size_t>(points.labels[i]);
    std::array<double, kClasses> distances;
    for (size_t k = 0; k < kClasses; ++k) {
      distances[k] = distance_of(points.of[i], centers[k]);
      sums[c][k] += distances[k];
    }
    ++counts[c];
    const auto nearest = std::min_element(distances.begin(), distances.end());
    right += nearest == distances.begin() + c ? 1 : 0;
  }
  std::printf("center of");
  for (size_t k = 0; k < kClasses; ++k) std::printf("%6d", static_cast<int>(k));
  for (size_t c = 0; c < kClasses; ++c) {
    std::printf("\nimages of %d ", static_cast<int>(c));
    for (const double sum : sums[c]) std::printf("%6.2f", sum / counts[c]);
  }
  std::printf("\n");
  return right / static_cast<double>(points.of.size());
}

// Prints the median duration of the iterations after the stop; benchmarks/peers/examples.py reads
// it.
void print_median(std::vector<double> seconds) {
  const auto middle = seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  std::printf("an iteration: %.3f ms (median)\n", 1e3 * *middle);
}

}  // namespace

int main(int argc, char** argv) {
  const Runtime runtime(argc, argv);
  try {
    const int64_t iterations = argc > 1 ? std::max(2, std::atoi(argv[1])) : 1000;
    const std::string path = "contrastive_pairs.safetensors";
    Embedding stopped;
    stopped.train(iterations / 2, nullptr);
    save_loop(local_files(), path, stopped.at, {{stopped.network, &stopped.state}});
    Embedding whole;
    whole.at = load_loop(local_files(), path, {{whole.network, &whole.state}});
    whole.train(iterations, nullptr);
    print_median(whole.seconds);
    const auto data = open_data();
    const double accuracy = print_distances(points_of(whole.network, data[1]),
                                            centers_of(points_of(whole.network, data[0])));
    std::printf("test images that are nearest to the center of their class: %.1f%%\n",
                100 * accuracy);

    Pool pool({.workers = 2});
    const auto digests = spmd(
        pool,
        [](Spmd& block, int64_t last) {
          Embedding same;
          same.train(last, &block.group());
          return network_digest(same.network).to_string();
        },
        iterations);
    const std::string digest = network_digest(whole.network).to_string();
    std::printf("by threads, stopped once:  %s\nby two workers:            %s\n", digest.c_str(),
                digests[0].c_str());
    return digests[0] == digest && accuracy > (iterations < 500 ? 0.3 : 0.9) ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    if (!e.hint().empty()) std::fprintf(stderr, "hint: %s\n", e.hint().c_str());
    return 1;
  }
}
