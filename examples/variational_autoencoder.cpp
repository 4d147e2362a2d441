// A variational autoencoder on the built-in digits (Kingma, Welling 2014): an encoder describes an
// image by a normal distribution over 8 numbers, and a decoder draws the image from a sample of
// it. The samples are keyed random numbers, so they do not depend on who computes them. The loop is
// stopped half way and continued from its file; two worker processes, which are not stopped, end
// with the same bits.
//
// usage: variational_autoencoder [ITERATIONS]   (writes variational_autoencoder.safetensors)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "lockstep/lockstep.h"

using namespace lockstep;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int64_t kSide = 28, kPixels = kSide * kSide, kCode = 8;
constexpr int64_t kRows = 128, kShard = 64;  // two shards; each has gradients of 320,000 weights
constexpr uint64_t kNoise = 1;               // a draw of random numbers

// Encoder and decoder are two branches of one network, so that one call gives the gradients of
// both. A call that asks for the outputs of one branch does not run the other.
Network make_network() {
  Network network;
  network.add(feature_input({.features = kPixels, .normalization = "none"}), "image");
  network.add(fully_connected({.units = 200}));
  const std::string hidden = network.add(relu());
  network.add(fully_connected({.units = kCode}), "mean", {hidden});
  network.add(fully_connected({.units = kCode}), "log_variance", {hidden});
  network.add(feature_input({.features = kCode, .normalization = "none"}), "code", {});
  network.add(fully_connected({.units = 200}), {}, {"code"});
  network.add(relu());
  network.add(fully_connected({.units = kPixels}), "logits");  // of the pixels
  network.initialize(/*seed=*/0);
  return network;
}

// Inputs of the branch that does not run.
Tensor no_images(int64_t n) { return Tensor::zeros({n, kPixels}); }
Tensor no_codes(int64_t n) { return Tensor::zeros({n, kCode}); }

// Values from 0 to 1.
template <ops::Operand T>
T from_pixels(const T& pixels) {
  return ops::astype(pixels, DType::f32) / 255;
}

// A sample of the code. Compiled, neighboring ops are one.
const CompiledFunction sample([](const std::vector<Value>& x) {
  const Value &mean = x[0], &log_variance = x[1];
  const Value noise = ops::random_normal(mean, kNoise);
  return std::vector<Value>{mean + ops::exp(0.5 * log_variance) * noise};
});

// Cross-entropy of the pixels, and the divergence from a standard normal distribution.
const CompiledFunction cost([](const std::vector<Value>& x) {
  const Value &logits = x[0], image = from_pixels(x[1]), &mean = x[2], &log_variance = x[3];
  const Value drawn = ops::sum(ops::softplus(logits) - logits * image, {1});
  const Value described =
      0.5 * ops::sum(ops::square(mean) + ops::exp(log_variance) - 1 - log_variance, {1});
  return std::vector<Value>{drawn + described};
});

// The negative evidence lower bound of each image, in nats.
Tensor negative_elbo(Shard& shard) {
  const Tensor image = from_pixels(shard[0]);
  const auto code =
      shard.forward_all({image, no_codes(shard.size())}, {.outputs = {"mean", "log_variance"}});
  const Tensor drawn_from = sample(code, shard.step())[0];
  const Tensor logits =
      shard.forward_all({no_images(shard.size()), drawn_from}, {.outputs = {"logits"}})[0];
  return cost({logits, shard[0], code[0], code[1]})[0];
}

Tensor pixels_of(const MiniBatch& batch) {
  return batch.input().tensor().reshaped({batch.size(), kPixels});
}

const std::vector<Shape> kImages{{1, kSide, kSide}};

struct Autoencoder {
  Network network = make_network();
  AdamState state;
  LoopPosition at;
  std::vector<double> seconds;  // of iterations
  LineSeries bound;             // of the mini-batches

  // Up to iteration `last`, by the threads of this process or by a group of workers.
  void train(int64_t last, Group* workers) {
    const ShardGroupOptions options{
        .threads = workers ? 1 : available_cores(), .shard_size = kShard, .seed = 1};
    ShardGroup group =
        workers ? ShardGroup(network, options, *workers) : ShardGroup(network, options);
    MiniBatchQueue queue(split_each_label(builtin_digits(), {0.9}, /*seed=*/0)[0], kImages,
                         {.mini_batch_size = kRows, .helped = !workers, .max_epochs = 1000},
                         at.epoch, at.batch);
    group.work_meanwhile([&](bool ahead) { return queue.help(ahead); });
    while (at.iteration < last) {
      const auto begin = Clock::now();
      const auto batch = queue.next();
      const int64_t iteration = at.iteration + 1;
      const auto [loss, gradients] =
          sharded_value_and_gradient(negative_elbo, {pixels_of(*batch)}, group, iteration);
      adam_update(network, gradients, state, {.learning_rate = 2e-3, .pool = &group.pool()});
      bound.points.emplace_back(iteration, -loss);
      at = {iteration, queue.epoch(), queue.batch()};
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  }
};

// An image as text, with a character for 2 x 4 pixels of 28 x 28.
std::string text_of(const float* image) {
  std::string text;
  for (int64_t y = 0; y < kSide; y += 4) {
    for (int64_t x = 0; x < kSide; x += 2) {
      float sum = 0;
      for (int64_t k = 0; k < 8; ++k) sum += image[(y + k / 2) * kSide + x + k % 2];
      text += " .:-=+*#%@"[std::min(9, static_cast<int>(sum / 8 * 12))];
    }
    text += '\n';
  }
  return text;
}

void print_images(const char* title, const Tensor& images) {
  const std::vector<float> values = images.to_vector();
  std::vector<std::string> texts;
  for (size_t i = 0; i < 5; ++i) texts.push_back(text_of(&values[i * kPixels]));
  std::printf("%s\n%s", title, side_by_side(texts, 80).c_str());
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
    const int64_t iterations = argc > 1 ? std::max(2, std::atoi(argv[1])) : 700;
    const std::string path = "variational_autoencoder.safetensors";
    Autoencoder stopped;
    stopped.train(iterations / 2, nullptr);
    save_loop(local_files(), path, stopped.at, {{stopped.network, &stopped.state}});
    Autoencoder whole;
    whole.bound = stopped.bound;
    whole.at = load_loop(local_files(), path, {{whole.network, &whole.state}});
    whole.train(iterations, nullptr);
    print_median(whole.seconds);
    std::printf(
        "%s", line_chart_text({&whole.bound, 1}, {.title = "evidence lower bound, nats"}).c_str());

    // Test images, what is left of them after the code, and images of codes that no image has.
    MiniBatchQueue test(split_each_label(builtin_digits(), {0.9}, /*seed=*/0)[1], kImages,
                        {.mini_batch_size = 1000});
    const Tensor pixels = pixels_of(*test.next()), images = from_pixels(pixels);
    Network& network = whole.network;
    const int64_t n = images.shape()[0];
    const Tensor code = network.forward({images, no_codes(n)}, {.outputs = {"mean"}});
    const auto drawn = [&](const Tensor& codes) {
      return ops::sigmoid(network.forward({no_images(n), codes}, {.outputs = {"logits"}}));
    };
    print_images("test images", images);
    print_images("drawn from their codes", drawn(code));
    print_images("drawn from random codes", drawn(ops::random_normal(code, kNoise, {2, 1})));
    double bound = 0;
    for (const float v : evaluate_loss(network, negative_elbo, {pixels}))
      bound -= static_cast<double>(v) / static_cast<double>(n);
    std::printf("test images: evidence lower bound %.1f nats\n", bound);

    Pool pool({.workers = 2});
    const auto digests = spmd(
        pool,
        [](Spmd& block, int64_t last) {
          Autoencoder same;
          same.train(last, &block.group());
          return network_digest(same.network).to_string();
        },
        iterations);
    const std::string digest = network_digest(network).to_string();
    std::printf("by threads, stopped once:  %s\nby two workers:            %s\n", digest.c_str(),
                digests[0].c_str());
    return digests[0] == digest && bound > (iterations < 300 ? -400 : -200) ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    if (!e.hint().empty()) std::fprintf(stderr, "hint: %s\n", e.hint().c_str());
    return 1;
  }
}
