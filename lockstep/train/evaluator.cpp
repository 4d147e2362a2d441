#include "lockstep/train/evaluator.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "lockstep/base/arithmetic.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/train/fingerprint.h"
#include "lockstep/train/options.h"
#include "lockstep/train/tree.h"

namespace lockstep {
namespace {

constexpr int kScores = 0, kLosses = 1;

}  // namespace

struct Evaluator::State {
  Network& network;
  std::shared_ptr<const ImageCache> images;
  ThreadPool& pool;
  std::shared_ptr<const Plan> plan;
  std::vector<PlanRun> runs;  // by thread
  std::vector<std::vector<uint8_t>> scratch;
  int64_t outputs = 0;
  std::vector<double> losses;
  std::vector<uint8_t> correct;
};

std::shared_ptr<const ImageCache> cache_for(const Network& network, const DatastorePtr& data,
                                            size_t budget_bytes) {
  const auto shapes = network.input_shapes();
  if (shapes.size() != 1 || shapes[0].rank() != 3) {
    throw InvalidArgument("[training] a network with one image input wanted");
  }
  return std::make_shared<ImageCache>(data, shapes[0][1], shapes[0][2], shapes[0][0], budget_bytes);
}

void check_classifier(const Network& network, const std::vector<std::string>& classes) {
  if (network.loss() != "cross_entropy") {
    throw InvalidArgument(
        "[training] images with labels train the loss cross_entropy, the network has " +
        network.loss());
  }
  const auto shapes = network.output_shapes();
  if (shapes.size() != 1) {
    throw InvalidArgument("[training] a network with one output wanted, this has " +
                          std::to_string(shapes.size()));
  }
  if (shapes[0] == Shape{static_cast<int64_t>(classes.size())}) return;
  const auto& layers = network.layers();
  std::string last = layers.back().name;
  for (const auto& node : layers) {
    if (node.layer->type() == "fully_connected") last = node.name;
  }
  throw InvalidArgument(
      "[training] the data has " + std::to_string(classes.size()) +
          " classes, the network's output is " + shapes[0].to_string(),
      "let layer `" + last + "` have " + std::to_string(classes.size()) + " units");
}

Evaluator::Evaluator(Network& network, std::shared_ptr<const ImageCache> images, ThreadPool& pool)
    : state_(new State{network, std::move(images), pool, {}, {}, {}, 0, {}, {}}) {
  State& s = *state_;
  LoweredNetwork lowered = network.lower(kBatch, {.training = false, .pixels = true});
  const int scores = lowered.outputs.at(0);
  const LossValues loss = add_loss(lowered.graph, network.loss(), scores);
  lowered.graph.mark_output(scores);
  lowered.graph.mark_output(loss.loss);
  s.outputs = lowered.graph.shape(scores).elements() / kBatch;
  s.plan = std::make_shared<Plan>(lowered.graph, network.learnable_shapes(), PlanOptions{});
  const int64_t chunks = (s.images->size() + kBatch - 1) / kBatch;
  for (int64_t t = 0; t < std::min<int64_t>(pool.size(), std::max<int64_t>(chunks, 1)); ++t) {
    s.runs.emplace_back(s.plan, network.packed(), network.state_pointers());
  }
  s.scratch.resize(static_cast<size_t>(pool.size()));
  s.losses.resize(static_cast<size_t>(s.images->size()));
  s.correct.resize(static_cast<size_t>(s.images->size()));
}

Evaluator::~Evaluator() = default;

Evaluation Evaluator::run(Tensor* scores) {
  const ArithmeticMode outer;
  State& s = *state_;
  const int64_t n = s.images->size();
  if (scores) *scores = Tensor(Shape{n, s.outputs}, DType::f32);
  float* const out = scores ? scores->data<float>() : nullptr;
  const size_t image_bytes = s.images->image_bytes();
  s.network.packed().pack_all();
  const auto evaluate_chunk = [&](int64_t chunk, int thread) {
    const ArithmeticMode mode;
    PlanRun& run = s.runs[static_cast<size_t>(thread)];
    const int64_t first = chunk * kBatch, rows = std::min(kBatch, n - first);
    auto* pixels = static_cast<uint8_t*>(run.input(0));
    auto* labels = static_cast<int32_t*>(run.input(1));
    for (int64_t i = 0; i < kBatch; ++i) {
      uint8_t* const row = pixels + static_cast<size_t>(i) * image_bytes;
      if (i >= rows) {
        std::memset(row, 0, image_bytes);
        labels[i] = 0;
        continue;
      }
      std::memcpy(row, s.images->get(first + i, s.scratch[static_cast<size_t>(thread)]),
                  image_bytes);
      labels[i] = static_cast<int32_t>(s.images->label(first + i));
    }
    run.forward({});
    mode.check();
    const float* const score = run.output(kScores);
    for (int64_t i = 0; i < rows; ++i) {
      const float* const row = score + i * s.outputs;
      const auto at = static_cast<size_t>(first + i);
      s.losses[at] = static_cast<double>(run.output(kLosses)[i]);
      s.correct[at] = std::max_element(row, row + s.outputs) - row == labels[i];
      if (out) std::copy_n(row, s.outputs, out + (first + i) * s.outputs);
    }
  };
  // As many threads as there are runs; each takes the next chunk that nobody has.
  std::atomic<int64_t> next{0};
  const int64_t chunks = (n + kBatch - 1) / kBatch;
  s.pool.run([&](int thread) {
    if (static_cast<size_t>(thread) >= s.runs.size()) return;
    try {
      for (int64_t chunk = next++; chunk < chunks; chunk = next++) evaluate_chunk(chunk, thread);
    } catch (...) {
      next = chunks;
      throw;
    }
  });
  Evaluation result;
  result.observations = n;
  if (n == 0) {
    result.loss = result.accuracy = std::nan("");
    return result;
  }
  int64_t right = 0;
  for (uint8_t c : s.correct) right += c;
  result.loss = tree_sum(s.losses) / static_cast<double>(n);
  result.accuracy = static_cast<double>(right) / static_cast<double>(n);
  return result;
}

namespace {

Evaluation evaluate(Network& network, const DatastorePtr& data, int threads, Tensor* scores) {
  refuse_stray_environment();
  TrainingOptions options;
  options.threads = threads;
  ThreadPool pool(static_cast<int>(options.resolved().threads));
  return Evaluator(network, cache_for(network, data, 0), pool).run(scores);
}

}  // namespace

Evaluation evaluate(Network& network, const DatastorePtr& data, int threads) {
  check_classifier(network, data->classes());
  return evaluate(network, data, threads, nullptr);
}

Tensor predict(Network& network, const DatastorePtr& data, int threads) {
  Tensor scores;
  evaluate(network, data, threads, &scores);
  return scores;
}

}  // namespace lockstep
