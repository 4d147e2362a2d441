#include "lockstep/train/evaluation/evaluator.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/train/evaluation/batch_evaluator.h"

namespace lockstep {
namespace {

constexpr int64_t kChunk = EvaluatedBatches::kChunk;

// For metrics that take observations in order: the number of chunks that each thread computes
// before these metrics take them. It bounds the stored scores.
constexpr int64_t kChunksAThread = 8;

// A batch number beyond every end.
constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 2;

// The area that several processes share: the next batch and the end, then losses by observation,
// what is kept of outputs (EvaluatedBatches::kept()), and scores by output.
struct Area {
  Area(std::byte* memory, int64_t observations, int64_t of_kept)
      : next(reinterpret_cast<std::atomic<int64_t>*>(memory)),
        end(next + 1),
        losses(reinterpret_cast<double*>(memory + Evaluator::kAreaHead)),
        kept(reinterpret_cast<int64_t*>(losses + observations)),
        scores(reinterpret_cast<float*>(kept + of_kept)) {}

  // `scores`: of all outputs, or 0.
  static size_t bytes(int64_t observations, int64_t kept, int64_t scores) {
    return Evaluator::kAreaHead + static_cast<size_t>(observations) * sizeof(double) +
           static_cast<size_t>(kept) * sizeof(int64_t) +
           static_cast<size_t>(scores) * sizeof(float);
  }

  std::atomic<int64_t>*next, *end;  // of the batches that remain
  double* losses;
  int64_t* kept;
  float* scores;
};

}  // namespace

struct Evaluator::State {
  State(Network& network, Data data, ThreadPool& p, Measures measures)
      : pool(p),
        batches(network, std::move(data), p.size()),
        results(batches, std::move(measures)) {}

  ThreadPool& pool;
  EvaluatedBatches batches;
  EvaluationResults results;
  std::unique_ptr<BatchEvaluator> evaluator;  // null until it is prepared

  int64_t width() const { return batches.output().elements(); }

  void prepare() {
    if (evaluator) return;
    const bool targets = results.wants_scores();
    evaluator = batches.on_cpu() ? evaluator_by_threads(batches, pool, targets)
                                 : evaluator_by_device(batches, pool, targets);
  }

  // Makes the copies of parameters that the plans read. The user's own loss runs the network by
  // Network::forward(), which makes copies again unless their digests are known: it would write
  // them while other threads read.
  void pack() {
    PackedParameters& packed = batches.network().packed();
    if (batches.data().loss) {
      packed.refresh(packed.digests());
    } else {
      packed.pack_all();
    }
  }

  void begin() {
    prepare();
    evaluator->begin();
    pack();
  }

  void compute(const BatchEvaluator::Next& next, float* outputs) {
    evaluator->compute(next, [&](const ComputedBatch& batch) { results.take(batch, outputs); });
  }
};

Evaluator::Evaluator(Network& network, Data data, ThreadPool& pool, Measures measures)
    : state_(new State(network, std::move(data), pool, std::move(measures))) {}

Evaluator::~Evaluator() = default;

void Evaluator::prepare() { state_->prepare(); }

Evaluation Evaluator::run(Tensor* outputs) {
  const ArithmeticMode outer;
  State& s = *state_;
  const EvaluatedBatches& batches = s.batches;
  float* out = nullptr;
  if (outputs) {
    *outputs = Tensor(batch_shape(batches.outputs(), batches.output()), DType::f32);
    out = outputs->data<float>();
  }
  s.begin();
  s.results.write_here();  // also after a part that failed
  s.results.begin();
  const bool in_order = s.results.in_order();
  const int64_t together = s.evaluator->together(), of_batch = batches.chunks_of_batch();
  // On a device several chunks make a batch.
  const int64_t round = std::max(together, kChunksAThread * together / of_batch);
  const int64_t most = in_order ? round : batches.count();
  for (int64_t first = 0; first < batches.count(); first += most) {
    const int64_t end = std::min(first + most, batches.count());
    if (in_order) {
      s.results.next_round(first * of_batch, std::min(end * of_batch, batches.chunks()));
    }
    std::atomic<int64_t> present{first};
    const auto next = [&]() -> std::optional<int64_t> {
      const int64_t batch = present.fetch_add(1);
      if (batch >= end) return std::nullopt;
      return batch;
    };
    s.compute(next, out);
  }
  if (in_order) s.results.next_round(batches.chunks(), batches.chunks());
  return s.results.summarize();
}

bool Evaluator::wants_scores() const { return state_->results.wants_scores(); }

size_t Evaluator::area_bytes(bool scores) const {
  const EvaluatedBatches& batches = state_->batches;
  return Area::bytes(batches.observations(), batches.kept(),
                     scores ? batches.outputs() * state_->width() : 0);
}

int64_t Evaluator::batches() const { return state_->batches.count(); }

void Evaluator::partition(std::byte* memory, int64_t first, int64_t end) {
  const Area area(memory, 0, 0);
  area.end->store(end);
  area.next->store(first < end ? first : kNever);
}

void Evaluator::call_off(std::byte* memory) { Area(memory, 0, 0).next->store(kNever); }

void Evaluator::merge(std::byte* memory, const std::byte* other, int64_t first, int64_t end,
                      bool scores) const {
  const EvaluatedBatches& batches = state_->batches;
  const int64_t n = batches.observations(), width = state_->width();
  const Area to(memory, n, batches.kept());
  const Area from(const_cast<std::byte*>(other), n, batches.kept());
  const int64_t batch = batches.size();
  const int64_t from_row = first * batch, rows = std::min(end * batch, n) - from_row;
  if (rows <= 0) return;
  std::copy_n(from.losses + from_row, rows, to.losses + from_row);
  const IndexRange kept = batches.kept_of({from_row, rows});
  std::copy_n(from.kept + kept.first, kept.count, to.kept + kept.first);
  if (scores) {
    const IndexRange outputs = batches.outputs_of({from_row, rows});
    std::copy_n(from.scores + outputs.first * width, outputs.count * width,
                to.scores + outputs.first * width);
  }
}

void Evaluator::take_part(std::byte* memory, bool scores, std::atomic<int64_t>* begun) {
  const ArithmeticMode outer;
  State& s = *state_;
  const Area area(memory, s.batches.observations(), s.batches.kept());
  const int64_t end = area.end->load();
  s.begin();
  s.results.write_to(area.losses, area.kept);
  const auto next = [&]() -> std::optional<int64_t> {
    const int64_t b = area.next->fetch_add(1);
    if (b >= end) return std::nullopt;
    if (begun != nullptr) begun->fetch_add(1);
    fail_point("validation", 0, b);
    return b;
  };
  s.compute(next, scores ? area.scores : nullptr);
  s.results.write_here();
}

Evaluation Evaluator::result(const std::byte* memory) {
  State& s = *state_;
  const EvaluatedBatches& batches = s.batches;
  const int64_t n = batches.observations(), width = s.width();
  const Area area(const_cast<std::byte*>(memory), n, batches.kept());
  std::copy_n(area.losses, n, s.results.losses().data());
  const bool pixels = batches.pixels() > 0;
  if (!pixels) std::copy_n(area.kept, batches.kept(), s.results.predicted().data());
  s.results.begin();
  std::vector<float> targets;
  std::vector<uint8_t> scratch;
  const bool adds = pixels || s.results.has_metrics();
  for (int64_t chunk = 0; adds && chunk < batches.chunks(); ++chunk) {
    const IndexRange rows{chunk * kChunk, batches.rows_of_chunk(chunk)};
    const IndexRange outputs = batches.outputs_of(rows);
    const float* const scores = wants_scores() ? area.scores + outputs.first * width : nullptr;
    if (pixels) {
      const IndexRange kept = batches.kept_of(rows);
      s.results.add_pixels(chunk, scores,
                           {area.kept + kept.first, static_cast<size_t>(kept.count)});
      continue;
    }
    if (batches.against() == Against::images) {
      targets.resize(static_cast<size_t>(outputs.count * width));
      for (int64_t i = rows.first; i < rows.end(); ++i) {
        const int64_t at = batches.outputs_of({i, 1}).first - outputs.first;
        copy_target(batches.targets(), i, scratch, targets.data() + at * width);
      }
    }
    s.results.add(chunk, scores, targets.data());
  }
  return s.results.summarize();
}

}  // namespace lockstep
