#include "lockstep/train/evaluation/evaluator.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/engine/plan/plan.h"
#include "lockstep/parallel/reduce/tree.h"
#include "lockstep/train/evaluation/device_batches.h"
#include "lockstep/train/evaluation/metric_run.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/programs/shard.h"
#include "lockstep/train/state/fingerprint.h"
#include "lockstep/train/step/shards.h"

namespace lockstep {
namespace {

constexpr int kScores = 0, kLosses = 1;

// For metrics that take observations in order: the number of batches that each thread computes
// before these metrics take them. It bounds the stored scores.
constexpr int64_t kBatchesAThread = 8;

// Rows that a thread copies at a time to memory that is sent to a device.
constexpr int64_t kCopiedRows = 32;

// Metrics take observations in chunks, which are the same on every device.
constexpr int64_t kChunk = Evaluator::kBatch;

}  // namespace

struct Evaluator::State {
  enum class Against { labels, images, nothing };

  State(Network& n, Data d, ThreadPool& p, Measures m)
      : network(n),
        data(std::move(d)),
        targets(targets_of(*data.images, data.targets.get())),
        pool(p),
        measures(std::move(m)) {}

  Network& network;
  Data data;
  const CachedTargets targets;
  ThreadPool& pool;
  const Measures measures;
  Against against = Against::nothing;
  int64_t batch = kBatch;     // observations
  Shape output;               // of one observation
  bool prepared = false;      // the following exist
  std::vector<PlanRun> runs;  // on the CPU, by thread
  std::unique_ptr<DeviceBatches> on_device;
  std::vector<std::vector<uint8_t>> scratch;  // by thread
  std::vector<double> losses;
  std::vector<int64_t> predicted;  // classes
  // Destination of a chunk's results: the members above, or an area that several processes share.
  double* losses_to = nullptr;
  int64_t* predicted_to = nullptr;
  // State of the current run.
  std::optional<MetricRun> metrics;
  std::vector<std::vector<float>> wanted_images;  // by thread: the targets of a chunk
  struct Kept {
    std::vector<float> scores, targets;
  };
  std::vector<Kept> kept;  // by chunk of the round, for metrics that take observations in order
  int64_t round = 0;       // first chunk of the round

  int64_t batches() const { return (data.images->size() + batch - 1) / batch; }
  int64_t chunks() const { return (data.images->size() + kChunk - 1) / kChunk; }
  int64_t chunks_of_batch() const { return batch / kChunk; }
  IndexRange batch_rows(int64_t b) const {
    return {b * batch, std::min(batch, data.images->size() - b * batch)};
  }
  int64_t rows_of(int64_t chunk) const {
    return std::min(kChunk, data.images->size() - chunk * kChunk);
  }
  bool on_cpu() const { return network.device().is_cpu(); }

  LoweredNetwork lower(int64_t rows) const;
  void prepare();
  std::vector<ScoredObservation> observations(int64_t chunk, const float* made_scores,
                                              const float* made_targets) const;
  void measure(int64_t chunk, const float* made_scores, const float* made_targets);
  void compute(int64_t first, int64_t end, float* outputs);
  void compute_on_device(const std::function<std::optional<int64_t>()>& next, float* outputs);
  void clear_padding(const std::vector<uint8_t*>& to, void* wanted, int64_t rows) const;
  void fill_rows(const std::vector<uint8_t*>& to, void* wanted, const IndexRange& rows,
                 int64_t first, int thread);
  void fill_inputs(const std::vector<uint8_t*>& to, void* wanted, const IndexRange& rows,
                   int thread);
  void expect(const IndexRange& rows) const;
  // Number of the plans' input for labels or targets.
  int target_input() const { return static_cast<int>(data.images->inputs().size()); }
  // Bytes of a label or a target.
  size_t wanted_bytes() const {
    return against == Against::images
               ? static_cast<size_t>(targets.value->elements()) * sizeof(float)
               : sizeof(int32_t);
  }
  // Whether plans compute the loss.
  bool plans_have_loss() const { return against != Against::nothing && !data.loss; }
  std::vector<float> custom_losses(const IndexRange& rows, int thread);
  void evaluate_batch(int64_t b, int thread, const ArithmeticMode& mode, float* outputs);
  void take_results(const IndexRange& rows, int thread, const float* made, const float* loss,
                    const float* wanted_images, float* outputs);
  // The classes of the labels. Empty if there are no labels.
  std::vector<std::string> classes() const {
    return against == Against::labels ? data.images->store()->classes()
                                      : std::vector<std::string>{};
  }
  void begin_metrics() {
    metrics.reset();
    if (against == Against::nothing || measures.metrics.empty()) return;
    metrics.emplace(measures.metrics, MetricProblem{classes(), output}, chunks());
  }
  Evaluation summarize();
};

Evaluator::Evaluator(Network& network, Data data, ThreadPool& pool, Measures measures)
    : state_(new State(network, std::move(data), pool, std::move(measures))) {
  State& s = *state_;
  using Against = State::Against;
  if (s.data.noise.any()) check_images(*s.data.images->store(), "noise");
  if (s.targets) {
    s.against = Against::images;
  } else if (network.loss() == "cross_entropy" || s.data.loss) {
    s.against = Against::labels;
  }
  const LoweredNetwork lowered = s.lower(kBatch);
  s.output = lowered.graph.shape(lowered.outputs.at(0)).without_batch();
  if (!s.on_cpu()) {
    // Of the network alone: neither the type of its inputs nor a loss changes the batches.
    const std::vector<DType> inputs(s.data.images->inputs().size(), DType::f32);
    s.batch = DeviceBatches::rows_for(
        network.lower(kBatch, {.training = false, .inputs = inputs}).graph, kBatch);
  }
  const auto n = static_cast<size_t>(s.data.images->size());
  s.scratch.resize(static_cast<size_t>(pool.size()));
  s.losses.resize(n);
  s.predicted.resize(n);
  s.losses_to = s.losses.data();
  s.predicted_to = s.predicted.data();
  s.wanted_images.resize(s.scratch.size());
}

LoweredNetwork Evaluator::State::lower(int64_t rows) const {
  LoweredNetwork lowered =
      network.lower(rows, {.training = false, .inputs = data.images->input_types()});
  const int scores = lowered.outputs.at(0);
  lowered.graph.mark_output(scores);
  if (plans_have_loss()) {
    lowered.graph.mark_output(add_loss(lowered.graph, network.loss(), scores).loss);
  }
  return lowered;
}

void Evaluator::State::prepare() {
  if (prepared) return;
  // The user's loss computes with f32.
  const bool as_training = !on_cpu() && !data.loss;
  PlanOptions options;
  if (as_training) options.precision = data.precision;
  std::optional<kernels::ThreadChoice> choice;
  if (as_training && data.choice) choice.emplace(*data.choice);
  const auto plan = std::make_shared<Plan>(lower(batch).graph, network.parameter_shapes(), options,
                                           network.device());
  if (on_cpu()) {
    const int64_t most = std::max<int64_t>(batches(), 1);
    for (int64_t t = 0; t < std::min<int64_t>(pool.size(), most); ++t) {
      runs.emplace_back(plan, network.packed(), network.state_pointers());
    }
  } else {
    BatchRow row;
    if (against != Against::nothing) row.wanted = wanted_bytes();
    row.losses = plans_have_loss();
    row.scores = static_cast<size_t>(output.elements()) * sizeof(float);
    for (const CachedValue& input : data.images->inputs()) row.inputs.push_back(input.bytes);
    on_device = std::make_unique<DeviceBatches>(network, plan, batch, row);
  }
  prepared = true;
}

Evaluator::~Evaluator() = default;

void Evaluator::prepare() { state_->prepare(); }

// Sets the rows of a batch behind the first `rows` to zero.
void Evaluator::State::clear_padding(const std::vector<uint8_t*>& to, void* labels_or_targets,
                                     int64_t rows) const {
  const auto clear = [&](void* memory, size_t bytes) {
    std::memset(static_cast<uint8_t*>(memory) + static_cast<size_t>(rows) * bytes, 0,
                static_cast<size_t>(batch - rows) * bytes);
  };
  for (size_t k = 0; k < to.size(); ++k) clear(to[k], data.images->inputs()[k].bytes);
  if (against != Against::nothing) clear(labels_or_targets, wanted_bytes());
}

// These observations will be read.
void Evaluator::State::expect(const IndexRange& rows) const {
  std::vector<int64_t> indices(static_cast<size_t>(rows.count));
  std::iota(indices.begin(), indices.end(), rows.first);
  data.images->expect(indices);
}

// Fills these rows of a batch that begins with observation `first`. `labels_or_targets` is the
// loss's input, if there is a loss.
void Evaluator::State::fill_rows(const std::vector<uint8_t*>& to, void* labels_or_targets,
                                 const IndexRange& rows, int64_t first, int thread) {
  auto& memory = scratch[static_cast<size_t>(thread)];
  for (int64_t i = rows.first; i < rows.end(); ++i) {
    const uint8_t* const example = data.images->get(first + i, memory);
    for (size_t k = 0; k < to.size(); ++k) {
      const CachedValue& input = data.images->inputs()[k];
      uint8_t* const row = to[k] + static_cast<size_t>(i) * input.bytes;
      std::memcpy(row, example + input.offset, input.bytes);
      if (input.kind == ValueKind::array) continue;
      add_noise(data.noise, data.seed, fixed_noise_epoch, first + i, row,
                static_cast<int64_t>(input.bytes), static_cast<int64_t>(k));
    }
    if (against == Against::labels) {
      static_cast<int32_t*>(labels_or_targets)[i] =
          static_cast<int32_t>(data.images->label(first + i));
    } else if (against == Against::images) {
      float* const row = static_cast<float*>(labels_or_targets) + i * targets.value->elements();
      if (targets.cache == data.images.get()) {
        copy_target(*targets.value, example, row);
      } else {
        copy_target(targets, first + i, memory, row);
      }
    }
  }
}

void Evaluator::State::fill_inputs(const std::vector<uint8_t*>& to, void* labels_or_targets,
                                   const IndexRange& rows, int thread) {
  clear_padding(to, labels_or_targets, rows.count);
  expect(rows);
  fill_rows(to, labels_or_targets, {0, rows.count}, rows.first, thread);
}

// Evaluates the batches that `next` returns until there is none. All threads of the pool fill a
// batch while the device computes the ones before.
void Evaluator::State::compute_on_device(const std::function<std::optional<int64_t>()>& next,
                                         float* outputs) {
  const ArithmeticMode mode;
  struct Begun {
    size_t place = 0;
    IndexRange rows;
  };
  std::deque<Begun> under_way;
  on_device->make_places(batches());
  const auto take = [&] {
    const auto [place, rows] = under_way.front();
    under_way.pop_front();
    on_device->wait(place);
    const void* const wanted = against == Against::images ? on_device->wanted(place) : nullptr;
    take_results(rows, 0, on_device->scores(place), on_device->losses(place),
                 static_cast<const float*>(wanted), outputs);
  };
  for (size_t place = 0;; place = (place + 1) % on_device->places()) {
    const std::optional<int64_t> b = next();
    if (!b) break;
    if (under_way.size() == on_device->places()) take();
    const IndexRange rows = batch_rows(*b);
    // An evaluation that failed may have left a batch there.
    on_device->wait(place);
    const std::vector<uint8_t*> to = on_device->inputs(place);
    void* const wanted = on_device->wanted(place);
    clear_padding(to, wanted, rows.count);
    expect(rows);
    const auto pieces = cut_into_shards(rows.count, kCopiedRows);
    for_each_shard(pool, static_cast<int64_t>(pieces.size()),
                   [&](int64_t i, int thread, const ArithmeticMode&) {
                     fill_rows(to, wanted, pieces[static_cast<size_t>(i)], rows.first, thread);
                   });
    on_device->begin(place);
    under_way.push_back({place, rows});
  }
  while (!under_way.empty()) take();
}

// The user's loss of a batch with these observations.
std::vector<float> Evaluator::State::custom_losses(const IndexRange& rows, int thread) {
  std::vector<Tensor> tensors;
  std::vector<uint8_t*> to;
  const std::vector<Shape> shapes = network.input_shapes();
  for (size_t k = 0; k < shapes.size(); ++k) {
    tensors.emplace_back(batch_shape(batch, shapes[k]), data.images->inputs()[k].dtype());
    to.push_back(static_cast<uint8_t*>(tensors.back().raw()));
  }
  Tensor compared(Shape{batch}, DType::i32);
  if (against == Against::images) {
    const int64_t elements = targets.value->elements();
    const Shape shape =
        output.elements() == elements ? batch_shape(batch, output) : Shape{batch, elements};
    compared = Tensor(shape, DType::f32);
  }
  fill_inputs(to, compared.raw(), rows, thread);
  tensors.push_back(compared);
  for (Tensor& tensor : tensors) tensor = tensor.to(network.device());
  return evaluate_loss(network, data.loss.function, tensors);
}

std::vector<ScoredObservation> Evaluator::State::observations(int64_t chunk,
                                                              const float* made_scores,
                                                              const float* made_targets) const {
  const auto width = static_cast<size_t>(output.elements());
  std::vector<ScoredObservation> all;
  for (int64_t i = 0; i < rows_of(chunk); ++i) {
    ScoredObservation o;
    o.index = chunk * kChunk + i;
    o.scores = {made_scores + static_cast<size_t>(i) * width, width};
    if (against == Against::labels) {
      o.label = data.images->label(o.index);
    } else {
      o.target = {made_targets + static_cast<size_t>(i) * width, width};
    }
    all.push_back(o);
  }
  return all;
}

void Evaluator::State::measure(int64_t chunk, const float* made_scores, const float* made_targets) {
  metrics->add(chunk, observations(chunk, made_scores, made_targets));
  if (!metrics->in_order()) return;
  Kept& k = kept[static_cast<size_t>(chunk - round)];
  const auto count = static_cast<size_t>(rows_of(chunk) * output.elements());
  k.scores.assign(made_scores, made_scores + count);
  if (made_targets) k.targets.assign(made_targets, made_targets + count);
}

// Takes the results of a batch with these observations.
void Evaluator::State::take_results(const IndexRange& rows, int thread, const float* made,
                                    const float* loss, const float* wanted, float* outputs) {
  const int64_t width = output.elements();
  std::vector<float> custom;
  if (data.loss && against != Against::nothing) {
    custom = custom_losses(rows, thread);
    loss = custom.data();
  }
  for (int64_t i = 0; i < rows.count; ++i) {
    const float* const row = made + i * width;
    const auto at = static_cast<size_t>(rows.first + i);
    if (against != Against::nothing) losses_to[at] = static_cast<double>(loss[i]);
    if (against == Against::labels) {
      predicted_to[at] = predicted_class({row, static_cast<size_t>(width)});
    }
    if (outputs) std::copy_n(row, width, outputs + (rows.first + i) * width);
  }
  if (!metrics) return;
  for (int64_t i = 0; i < rows.count; i += kChunk) {
    measure((rows.first + i) / kChunk, made + i * width, wanted ? wanted + i * width : nullptr);
  }
}

// On the CPU.
void Evaluator::State::evaluate_batch(int64_t b, int thread, const ArithmeticMode& mode,
                                      float* outputs) {
  PlanRun& run = runs[static_cast<size_t>(thread)];
  const IndexRange rows = batch_rows(b);
  const float* wanted_image = nullptr;
  std::vector<std::byte> unused;  // the wanted outputs, where only the user's loss reads them
  void* compared = nullptr;
  if (plans_have_loss()) {
    compared = run.input(target_input());
  } else if (against != Against::nothing) {
    unused.resize(static_cast<size_t>(batch) * wanted_bytes());
    compared = unused.data();
  }
  std::vector<uint8_t*> to;
  for (int k = 0; k < target_input(); ++k) to.push_back(static_cast<uint8_t*>(run.input(k)));
  fill_inputs(to, compared, rows, thread);
  if (metrics && against == Against::images) {
    // The run may reuse its inputs' memory.
    auto& copy = wanted_images[static_cast<size_t>(thread)];
    copy.assign(static_cast<float*>(compared),
                static_cast<float*>(compared) + rows.count * output.elements());
    wanted_image = copy.data();
  }
  run.forward({});
  mode.check();
  take_results(rows, thread, run.output(kScores), plans_have_loss() ? run.output(kLosses) : nullptr,
               wanted_image, outputs);
}

// Evaluates batches [first, end). On the CPU each thread takes the next batch.
void Evaluator::State::compute(int64_t first, int64_t end, float* outputs) {
  if (!on_cpu()) {
    const auto next = [&]() -> std::optional<int64_t> {
      if (first == end) return std::nullopt;
      return first++;
    };
    return compute_on_device(next, outputs);
  }
  const auto body = [&](int64_t b, int thread, const ArithmeticMode& mode) {
    evaluate_batch(first + b, thread, mode, outputs);
  };
  for_each_shard(pool, end - first, body, static_cast<int>(runs.size()));
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
  s.prepare();
  s.network.packed().pack_all();
  const int64_t batches = s.batches();
  s.begin_metrics();
  const bool in_order = s.metrics && s.metrics->in_order();
  const auto together = s.on_device ? 1 : static_cast<int64_t>(s.runs.size());
  // On a device several chunks make a batch.
  const int64_t kept = std::max(together, kBatchesAThread * together / s.chunks_of_batch());
  const int64_t most = in_order ? kept : batches;
  s.kept.resize(in_order ? static_cast<size_t>(most * s.chunks_of_batch()) : 0);
  for (int64_t first = 0; first < batches; first += most) {
    const int64_t end = std::min(first + most, batches);
    s.round = first * s.chunks_of_batch();
    s.compute(first, end, out);
    const int64_t last = std::min(end * s.chunks_of_batch(), s.chunks());
    for (int64_t chunk = s.round; in_order && chunk < last; ++chunk) {
      const State::Kept& k = s.kept[static_cast<size_t>(chunk - s.round)];
      s.metrics->add_in_order(s.observations(chunk, k.scores.data(), k.targets.data()));
    }
  }
  return s.summarize();
}

// Sums the results of the chunks in a fixed order.
Evaluation Evaluator::State::summarize() {
  const State& s = *this;
  const int64_t n = s.data.images->size();
  const bool labelled = s.against == Against::labels && s.network.loss() == "cross_entropy";
  Evaluation result;
  result.observations = n;
  result.loss = result.accuracy = std::nan("");
  if (metrics) result.metrics = metrics->finish();
  if (labelled && s.measures.confusion) result.confusion.emplace(classes());
  if (n == 0) return result;
  if (s.against != Against::nothing) result.loss = tree_sum(s.losses) / static_cast<double>(n);
  if (!labelled) return result;
  int64_t right = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t label = s.data.images->label(i), taken = s.predicted[static_cast<size_t>(i)];
    right += taken == label;
    if (result.confusion) result.confusion->add(label, taken);
  }
  result.accuracy = static_cast<double>(right) / static_cast<double>(n);
  return result;
}

namespace {

// A batch number beyond every end.
constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 2;

// The area that several processes share: the next batch and the end, then losses, classes and
// scores by observation.
struct Area {
  Area(std::byte* memory, int64_t observations)
      : next(reinterpret_cast<std::atomic<int64_t>*>(memory)),
        end(next + 1),
        losses(reinterpret_cast<double*>(memory + Evaluator::kAreaHead)),
        predicted(reinterpret_cast<int64_t*>(losses + observations)),
        scores(reinterpret_cast<float*>(predicted + observations)) {}

  static size_t bytes(int64_t observations, int64_t width, bool with_scores) {
    const size_t scores = with_scores ? static_cast<size_t>(width) * sizeof(float) : 0;
    return Evaluator::kAreaHead +
           static_cast<size_t>(observations) * (sizeof(double) + sizeof(int64_t) + scores);
  }

  std::atomic<int64_t>*next, *end;  // of the batches that remain
  double* losses;
  int64_t* predicted;
  float* scores;
};

}  // namespace

bool Evaluator::wants_scores() const {
  return state_->against != State::Against::nothing && !state_->measures.metrics.empty();
}

size_t Evaluator::area_bytes(bool scores) const {
  return Area::bytes(state_->data.images->size(), state_->output.elements(), scores);
}

int64_t Evaluator::batches() const { return state_->batches(); }

void Evaluator::partition(std::byte* memory, int64_t first, int64_t end) {
  const Area area(memory, 0);
  area.end->store(end);
  area.next->store(first < end ? first : kNever);
}

void Evaluator::call_off(std::byte* memory) { Area(memory, 0).next->store(kNever); }

void Evaluator::merge(std::byte* memory, const std::byte* other, int64_t first, int64_t end,
                      bool scores) const {
  const int64_t n = state_->data.images->size(), width = state_->output.elements();
  const Area to(memory, n), from(const_cast<std::byte*>(other), n);
  const int64_t batch = state_->batch;
  const int64_t from_row = first * batch, rows = std::min(end * batch, n) - from_row;
  if (rows <= 0) return;
  std::copy_n(from.losses + from_row, rows, to.losses + from_row);
  std::copy_n(from.predicted + from_row, rows, to.predicted + from_row);
  if (scores)
    std::copy_n(from.scores + from_row * width, rows * width, to.scores + from_row * width);
}

void Evaluator::take_part(std::byte* memory, bool scores, std::atomic<int64_t>* begun) {
  const ArithmeticMode outer;
  State& s = *state_;
  const Area area(memory, s.data.images->size());
  const int64_t end = area.end->load();
  s.prepare();
  s.network.packed().pack_all();
  s.losses_to = area.losses;
  s.predicted_to = area.predicted;
  float* const outputs = scores ? area.scores : nullptr;
  const auto next = [&]() -> std::optional<int64_t> {
    const int64_t b = area.next->fetch_add(1);
    if (b >= end) return std::nullopt;
    if (begun != nullptr) begun->fetch_add(1);
    fail_point("validation", 0, b);
    return b;
  };
  if (s.on_device) {
    s.compute_on_device(next, outputs);
  } else {
    s.pool.run([&](int thread) {
      if (static_cast<size_t>(thread) >= s.runs.size()) return;
      const ArithmeticMode mode;
      while (const auto b = next()) s.evaluate_batch(*b, thread, mode, outputs);
    });
  }
  s.losses_to = s.losses.data();
  s.predicted_to = s.predicted.data();
}

Evaluation Evaluator::result(const std::byte* memory) {
  State& s = *state_;
  const int64_t n = s.data.images->size(), width = s.output.elements();
  const Area area(const_cast<std::byte*>(memory), n);
  std::copy_n(area.losses, n, s.losses.data());
  std::copy_n(area.predicted, n, s.predicted.data());
  s.begin_metrics();
  std::vector<float> wanted;
  std::vector<uint8_t> scratch;
  for (int64_t chunk = 0; s.metrics && chunk < s.chunks(); ++chunk) {
    if (s.against == State::Against::images) {
      wanted.resize(static_cast<size_t>(s.rows_of(chunk) * width));
      for (int64_t i = 0; i < s.rows_of(chunk); ++i) {
        copy_target(s.targets, chunk * kChunk + i, scratch, wanted.data() + i * width);
      }
    }
    const auto observations =
        s.observations(chunk, area.scores + chunk * kChunk * width, wanted.data());
    s.metrics->add(chunk, observations);
    if (s.metrics->in_order()) s.metrics->add_in_order(observations);
  }
  return s.summarize();
}

namespace {

Evaluation evaluate(Network& network, const DatastorePtr& data, const EvaluationOptions& options,
                    Measures measures, Tensor* outputs) {
  refuse_stray_environment();
  const OrdinaryArithmetic arithmetic;
  TrainingOptions resources;
  resources.threads = options.threads;
  ThreadPool pool(static_cast<int>(resources.resolved().threads));
  // Outputs do not depend on targets, which need not fit the network then.
  const bool compares = outputs == nullptr;
  const auto images = cache_for(network, data, 0, CachedImages::exact, compares);
  const auto targets = target_cache_for(network, compares ? options.targets : nullptr, images, 0);
  return Evaluator(network, {images, targets, options.noise, options.seed}, pool,
                   std::move(measures))
      .run(outputs);
}

}  // namespace

Evaluation evaluate(Network& network, const DatastorePtr& data, const EvaluationOptions& options) {
  check_fits(network, *data, options.targets);
  const auto problem = metric_problem(network, *data, options.targets);
  if (options.confusion && target_spec(*data, options.targets)) {
    throw InvalidArgument(
        "[evaluate] a confusion matrix needs classes, but the targets are images");
  }
  return evaluate(
      network, data, options,
      {metrics_for(options.metrics, options.custom_metrics, problem), options.confusion}, nullptr);
}

Tensor predict(Network& network, const DatastorePtr& data, const EvaluationOptions& options) {
  Tensor outputs;
  evaluate(network, data, options, {}, &outputs);
  return outputs;
}

}  // namespace lockstep
