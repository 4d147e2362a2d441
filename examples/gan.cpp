// A generative adversarial network on the built-in digits: a generator makes digits from noise, and
// a critic estimates how far they are from real ones (Wasserstein distance with gradient penalty,
// Gulrajani et al. 2017). The penalty is a derivative inside the critic's loss, and the generator's
// loss goes through the critic. The loop is stopped half way and continued from its file; two
// worker processes, which are not stopped, end with the same bits.
//
// usage: gan [ITERATIONS]   (of the generator; writes gan.safetensors and gan.png)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "lockstep/lockstep.h"

using namespace lockstep;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int64_t kSide = 16, kLatent = 32, kRows = 64, kCriticSteps = 3;
constexpr uint64_t kNoise = 1, kMix = 2;  // draws of random numbers

DatastorePtr digits() { return resized(builtin_digits(), kSide, kSide); }

LayerPtr halving(int64_t filters) {
  return convolution2d(
      {.filters = filters, .kernel = {4, 4}, .stride = {2, 2}, .padding = same_padding});
}
LayerPtr doubling(int64_t filters) {
  return transposed_convolution2d(
      {.filters = filters, .kernel = {4, 4}, .stride = {2, 2}, .padding = same_padding});
}

// Images have values from -1 to 1.
Network make_generator() {
  return {feature_input({.features = kLatent, .normalization = "none"}),
          fully_connected({.units = 32 * 4 * 4}),
          relu(),
          reshape({.size = {32, 4, 4}}),
          doubling(16),
          relu(),
          doubling(1),
          tanh()};
}

// One number for each image. There is no batch normalization, because the penalty needs the slope
// at each image by itself.
Network make_critic() {
  return {image_input({.height = kSide, .width = kSide, .channels = 1, .normalization = "none"}),
          halving(16),
          leaky_relu({.scale = 0.2}),
          halving(32),
          leaky_relu({.scale = 0.2}),
          fully_connected({.units = 1})};
}

Tensor noise_for(const Shard& shard) {
  return ops::random_normal(Tensor::zeros({shard.size(), kLatent}), kNoise, shard.step());
}

// The critic should give high values to real images and low ones to generated ones, with a slope of
// length 1 between them.
Tensor critic_loss(Shard& shard, Network& generator) {
  const Tensor half = Tensor::full({1}, 127.5f);
  const Tensor real = ops::normalize_images(shard[0], half, ops::reciprocal(half));
  const Tensor made = generator.forward({noise_for(shard)}, {.record = false});
  const Tensor share =
      ops::random_uniform(Tensor::zeros({shard.size(), 1, 1, 1}), kMix, shard.step());
  const Tensor between = real + share * (made - real);
  Tape tape;  // inside the tape of the shard, which records its gradient
  tape.watch(between);
  const Tensor slope = tape.gradient(ops::sum(shard.forward(between)), {between})[0];
  const Tensor length = ops::norm(ops::flatten(slope), {1}, /*keep_dims=*/true);
  return shard.forward(made) - shard.forward(real) + 10 * ops::square(length - 1);
}

Tensor generator_loss(Shard& shard, Network& critic) {
  return -critic.forward({shard.forward(noise_for(shard))});
}

struct Gan {
  Network generator = make_generator(), critic = make_critic();
  AdamState generator_state, critic_state;
  LoopPosition at;
  std::vector<double> seconds;  // of iterations

  Gan() {
    generator.initialize(/*seed=*/0);
    critic.initialize(/*seed=*/1);
  }
  std::vector<LoopPart> parts() {
    return {{generator, &generator_state, "generator"}, {critic, &critic_state, "critic"}};
  }
  std::string digest() const {
    return network_digest(generator).to_string() + " " + network_digest(critic).to_string();
  }
  // Up to iteration `last` of the generator, by the threads of this process or by a group of
  // workers. `curve` gets the critic's estimates of the distance.
  void train(int64_t last, Group* workers, LineSeries& curve);
};

void Gan::train(int64_t last, Group* workers, LineSeries& curve) {
  const auto group_for = [&](Network& network, uint64_t seed) {
    return workers ? ShardGroup(network, {.threads = 1, .seed = seed}, *workers)
                   : ShardGroup(network, {.threads = available_cores(), .seed = seed});
  };
  ShardGroup generators = group_for(generator, 2), critics = group_for(critic, 3);
  MiniBatchQueue queue(digits(), {{1, kSide, kSide}},
                       {.mini_batch_size = kRows, .helped = !workers, .max_epochs = 1000}, at.epoch,
                       at.batch);
  critics.work_meanwhile([&](bool ahead) { return queue.help(ahead); });
  const Tensor rows = Tensor::zeros({kRows, 1});  // the generator has no data
  const AdamOptions options{
      .learning_rate = 5e-4, .gradient_decay = 0.5, .squared_gradient_decay = 0.9};
  while (at.iteration < last) {
    const auto begin = Clock::now();
    for (int64_t k = 1; k <= kCriticSteps; ++k) {
      const auto batch = queue.next();
      const Tensor pixels = batch->input().tensor();
      const auto step =
          sharded_value_and_gradient([&](Shard& shard) { return critic_loss(shard, generator); },
                                     {pixels}, critics, at.iteration * kCriticSteps + k);
      adam_update(critic, step.gradients, critic_state, options);
      if (k == kCriticSteps) curve.points.emplace_back(at.iteration + 1, -step.value);
    }
    const auto step =
        sharded_value_and_gradient([&](Shard& shard) { return generator_loss(shard, critic); },
                                   {rows}, generators, at.iteration + 1);
    adam_update(generator, step.gradients, generator_state, options);
    at = {at.iteration + 1, queue.epoch(), queue.batch()};
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
}

// What a network that recognizes digits says of generated ones.
struct Opinion {
  double confidence = 0;        // mean of the highest probabilities
  std::vector<int64_t> counts;  // of each class
};

Opinion opinion_of(const Tensor& pixels) {
  Network judge(
      {image_input({.height = kSide, .width = kSide, .channels = 1, .normalization = "none"}),
       convolution2d({.filters = 16, .kernel = {5, 5}}), relu(),
       max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}), fully_connected({.units = 10}),
       softmax()});
  judge.initialize(/*seed=*/0);
  train(judge, {.training = digits()},
        {.max_epochs = 2, .solver = {.type = "adam", .initial_learning_rate = 0.002}});
  const std::vector<float> scores = judge.predict(pixels).to_vector();
  Opinion opinion{.counts = std::vector<int64_t>(10)};
  for (auto row = scores.begin(); row != scores.end(); row += 10) {
    const auto best = std::max_element(row, row + 10);
    opinion.confidence += static_cast<double>(*best) / static_cast<double>(scores.size() / 10);
    ++opinion.counts[static_cast<size_t>(best - row)];
  }
  return opinion;
}

// An image as text, with a character for two pixels, one above the other.
std::string text_of(const uint8_t* pixels) {
  std::string text;
  for (int64_t y = 0; y < kSide; y += 2) {
    for (int64_t x = 0; x < kSide; ++x) {
      text += " .:-=+*#%@"[(pixels[y * kSide + x] + pixels[(y + 1) * kSide + x]) * 9 / 510];
    }
    text += '\n';
  }
  return text;
}

// Images in rows of 20.
Image sheet_of(const std::vector<uint8_t>& pixels) {
  const int64_t count = static_cast<int64_t>(pixels.size()) / (kSide * kSide);
  Image sheet{count / 20 * kSide, 20 * kSide, 1, std::vector<uint8_t>(pixels.size())};
  for (int64_t i = 0; i < count * kSide; ++i) {  // rows of pixels of all images
    const int64_t image = i / kSide, y = image / 20 * kSide + i % kSide, x = image % 20 * kSide;
    std::copy_n(pixels.begin() + i * kSide, kSide, sheet.pixels.begin() + y * sheet.width + x);
  }
  return sheet;
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
    const int64_t iterations = argc > 1 ? std::max(2, std::atoi(argv[1])) : 400;
    const std::string path = "gan.safetensors";
    LineSeries curve;
    Gan stopped;
    stopped.train(iterations / 2, nullptr, curve);
    save_loop(local_files(), path, stopped.at, stopped.parts());
    Gan gan;
    gan.at = load_loop(local_files(), path, gan.parts());
    gan.train(iterations, nullptr, curve);
    print_median(gan.seconds);
    std::printf(
        "%s",
        line_chart_text({&curve, 1}, {.title = "the critic's estimate of the distance"}).c_str());

    const Tensor noise = ops::random_normal(Tensor::zeros({200, kLatent}), kNoise, {4, 1});
    const Tensor made = 127.5 * (gan.generator.predict(noise) + 1);
    std::vector<uint8_t> pixels;
    for (const float v : made.to_vector()) pixels.push_back(static_cast<uint8_t>(v + 0.5f));
    std::vector<std::string> texts;
    for (size_t i = 0; i < 8; ++i) texts.push_back(text_of(&pixels[i * kSide * kSide]));
    std::printf("%s", side_by_side(texts, 76).c_str());
    write_atomically(local_files(), "gan.png", encode_png(sheet_of(pixels)));
    const Opinion opinion = opinion_of(made);
    std::printf("recognized as");
    for (size_t c = 0; c < 10; ++c)
      std::printf("  %d: %d", static_cast<int>(c), static_cast<int>(opinion.counts[c]));
    std::printf("\nwith a probability of %.2f\n", opinion.confidence);

    Pool pool({.workers = 2});
    const auto digests = spmd(
        pool,
        [](Spmd& block, int64_t n) {
          Gan same;
          LineSeries unused;
          same.train(n, &block.group(), unused);
          return same.digest();
        },
        iterations);
    std::printf("by threads, stopped once:  %s\nby two workers:            %s\n",
                gan.digest().c_str(), digests[0].c_str());
    const int64_t fewest = *std::min_element(opinion.counts.begin(), opinion.counts.end());
    const bool good = iterations < 400 || (fewest > 1 && opinion.confidence > 0.7);
    return digests[0] == gan.digest() && good ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    if (!e.hint().empty()) std::fprintf(stderr, "hint: %s\n", e.hint().c_str());
    return 1;
  }
}
