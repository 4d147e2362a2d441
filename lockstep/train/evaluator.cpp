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
#include "lockstep/train/targets.h"
#include "lockstep/train/tree.h"

namespace lockstep {
namespace {

constexpr int kScores = 0, kLosses = 1;

}  // namespace

struct Evaluator::State {
  enum class Against { labels, images, nothing };

  State(Network& n, Data d, ThreadPool& p) : network(n), data(std::move(d)), pool(p) {}

  Network& network;
  Data data;
  ThreadPool& pool;
  Against against = Against::nothing;
  std::shared_ptr<const Plan> plan;
  std::vector<PlanRun> runs;  // by thread
  std::vector<std::vector<uint8_t>> scratch;
  // On a GPU: what goes there and comes back.
  std::vector<uint8_t> pixels;
  std::vector<std::byte> targets;
  std::vector<float> scores, row_losses;
  Shape output;  // of one observation
  std::vector<double> losses;
  std::vector<uint8_t> correct;

  void fill_inputs(uint8_t* pixels, void* wanted, int64_t first, int64_t rows, int thread);
  void run_on_device(PlanRun& run, int64_t first, int64_t rows);
  void evaluate_chunk(int64_t chunk, int thread, float* outputs);
};

Evaluator::Evaluator(Network& network, Data data, ThreadPool& pool)
    : state_(new State(network, std::move(data), pool)) {
  State& s = *state_;
  using Against = State::Against;
  if (s.data.targets) {
    s.against = Against::images;
  } else if (network.loss() == "cross_entropy") {
    s.against = Against::labels;
  }
  LoweredNetwork lowered = network.lower(kBatch, {.training = false, .pixels = true});
  const int scores = lowered.outputs.at(0);
  lowered.graph.mark_output(scores);
  if (s.against != Against::nothing) {
    lowered.graph.mark_output(add_loss(lowered.graph, network.loss(), scores).loss);
  }
  s.output = lowered.graph.shape(scores).without_batch();
  s.plan = std::make_shared<Plan>(lowered.graph, network.learnable_shapes(), PlanOptions{},
                                  network.device());
  const int64_t n = s.data.images->size(), chunks = (n + kBatch - 1) / kBatch;
  const int64_t workers = network.device() == Device{} ? pool.size() : 1;
  for (int64_t t = 0; t < std::min<int64_t>(workers, std::max<int64_t>(chunks, 1)); ++t) {
    s.runs.emplace_back(s.plan, network.packed(), network.state_pointers());
  }
  s.scratch.resize(static_cast<size_t>(pool.size()));
  s.losses.resize(static_cast<size_t>(n));
  s.correct.resize(static_cast<size_t>(n));
}

Evaluator::~Evaluator() = default;

// Rows beyond `rows` are zeros. `wanted`: the loss's input, where there is a loss.
void Evaluator::State::fill_inputs(uint8_t* to, void* wanted, int64_t first, int64_t rows,
                                   int thread) {
  const size_t bytes = data.images->image_bytes();
  auto& memory = scratch[static_cast<size_t>(thread)];
  std::memset(to + static_cast<size_t>(rows) * bytes, 0,
              static_cast<size_t>(kBatch - rows) * bytes);
  for (int64_t i = 0; i < rows; ++i) {
    uint8_t* const row = to + static_cast<size_t>(i) * bytes;
    std::memcpy(row, data.images->get(first + i, memory), bytes);
    add_noise(data.noise, data.seed, fixed_noise_epoch, first + i, row,
              static_cast<int64_t>(bytes));
  }
  if (against == Against::labels) {
    auto* const labels = static_cast<int32_t*>(wanted);
    for (int64_t i = 0; i < kBatch; ++i) {
      labels[i] = i < rows ? static_cast<int32_t>(data.images->label(first + i)) : 0;
    }
  } else if (against == Against::images) {
    const size_t count = data.targets->image_bytes();
    auto* const values = static_cast<float*>(wanted);
    std::fill_n(values + static_cast<size_t>(rows) * count,
                static_cast<size_t>(kBatch - rows) * count, 0.0f);
    for (int64_t i = 0; i < rows; ++i) {
      pixels_to_targets(data.targets->get(first + i, memory), count,
                        values + static_cast<size_t>(i) * count);
    }
  }
}

void Evaluator::State::run_on_device(PlanRun& run, int64_t first, int64_t rows) {
  const auto batch = static_cast<size_t>(kBatch), width = static_cast<size_t>(output.elements());
  pixels.resize(batch * data.images->image_bytes());
  targets.resize(batch * (against == Against::labels ? sizeof(int32_t) : width * sizeof(float)));
  scores.resize(batch * width);
  row_losses.resize(batch);
  fill_inputs(pixels.data(), targets.data(), first, rows, 0);
  run.set_input(0, pixels.data(), pixels.size());
  if (against != Against::nothing) run.set_input(1, targets.data(), targets.size());
  run.forward({});
  run.get_output(kScores, scores.data(), scores.size() * sizeof(float));
  if (against != Against::nothing) {
    run.get_output(kLosses, row_losses.data(), row_losses.size() * sizeof(float));
  }
  run.synchronize();
}

void Evaluator::State::evaluate_chunk(int64_t chunk, int thread, float* outputs) {
  const ArithmeticMode mode;
  PlanRun& run = runs[static_cast<size_t>(thread)];
  const int64_t first = chunk * kBatch, rows = std::min(kBatch, data.images->size() - first);
  const float *made = nullptr, *loss = nullptr;
  if (network.device() == Device{}) {
    void* const wanted = against == Against::nothing ? nullptr : run.input(1);
    fill_inputs(static_cast<uint8_t*>(run.input(0)), wanted, first, rows, thread);
    run.forward({});
    mode.check();
    made = run.output(kScores);
    loss = against == Against::nothing ? nullptr : run.output(kLosses);
  } else {
    run_on_device(run, first, rows);
    made = scores.data();
    loss = row_losses.data();
  }
  const int64_t width = output.elements();
  for (int64_t i = 0; i < rows; ++i) {
    const float* const row = made + i * width;
    const auto at = static_cast<size_t>(first + i);
    if (against != Against::nothing) losses[at] = static_cast<double>(loss[i]);
    if (against == Against::labels) {
      correct[at] = std::max_element(row, row + width) - row == data.images->label(first + i);
    }
    if (outputs) std::copy_n(row, width, outputs + (first + i) * width);
  }
}

Evaluation Evaluator::run(Tensor* outputs) {
  const ArithmeticMode outer;
  State& s = *state_;
  const int64_t n = s.data.images->size();
  float* out = nullptr;
  if (outputs) {
    std::vector<int64_t> dims = s.output.dims();
    dims.insert(dims.begin(), n);
    *outputs = Tensor(Shape(dims), DType::f32);
    out = outputs->data<float>();
  }
  s.network.packed().pack_all();
  // As many threads as there are runs; each takes the next chunk that nobody has.
  std::atomic<int64_t> next{0};
  const int64_t chunks = (n + kBatch - 1) / kBatch;
  s.pool.run([&](int thread) {
    if (static_cast<size_t>(thread) >= s.runs.size()) return;
    try {
      for (int64_t chunk = next++; chunk < chunks; chunk = next++) {
        s.evaluate_chunk(chunk, thread, out);
      }
    } catch (...) {
      next = chunks;
      throw;
    }
  });
  Evaluation result;
  result.observations = n;
  result.loss = result.accuracy = std::nan("");
  if (n == 0) return result;
  if (s.against != State::Against::nothing)
    result.loss = tree_sum(s.losses) / static_cast<double>(n);
  if (s.against == State::Against::labels) {
    int64_t right = 0;
    for (uint8_t c : s.correct) right += c;
    result.accuracy = static_cast<double>(right) / static_cast<double>(n);
  }
  return result;
}

namespace {

Evaluation evaluate(Network& network, const DatastorePtr& data, const EvaluationOptions& options,
                    Tensor* outputs) {
  refuse_stray_environment();
  TrainingOptions resources;
  resources.threads = options.threads;
  ThreadPool pool(static_cast<int>(resources.resolved().threads));
  const auto images = cache_for(network, data, 0);
  const auto targets = target_cache_for(network, options.targets, images, 0);
  return Evaluator(network, {images, targets, options.noise, options.seed}, pool).run(outputs);
}

}  // namespace

Evaluation evaluate(Network& network, const DatastorePtr& data, const EvaluationOptions& options) {
  check_fits(network, data->classes(), options.targets);
  return evaluate(network, data, options, nullptr);
}

Tensor predict(Network& network, const DatastorePtr& data, const EvaluationOptions& options) {
  Tensor outputs;
  evaluate(network, data, options, &outputs);
  return outputs;
}

}  // namespace lockstep
