#include "lockstep/train/queued_step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/engine/kernels/choice.h"
#include "lockstep/parallel/comm/deal.h"
#include "lockstep/train/device_augmentation.h"
#include "lockstep/train/device_links.h"
#include "lockstep/train/device_mirror.h"
#include "lockstep/train/device_sum.h"
#include "lockstep/train/device_update.h"
#include "lockstep/train/shard_check.h"
#include "lockstep/train/shard_exchange.h"
#include "lockstep/train/shard_plans.h"
#include "lockstep/train/shard_words.h"
#include "lockstep/train/targets.h"

namespace lockstep {
namespace {

constexpr int kScores = ShardPlans::kScores, kLosses = ShardPlans::kLosses;

// Seconds until a group's devices have found their ways to each other, or go through the hosts.
constexpr double kLinkPatience = 60;

// One of the runs that a stream takes turns with, by size of the shard.
struct StreamRun {
  PlanRun plan;
  std::optional<DeviceAugmentation> images;  // where those are changed on the device
};

// An iteration's own: several may be under way.
struct Slot {
  explicit Slot(DeviceMemory& memory) : done(memory) {}

  int64_t iteration = 0;
  std::vector<ShardRange> shards;
  LeafRun own;                    // of them, this member's
  std::vector<Pinned> exchanges;  // by shard of this member's
  std::vector<std::byte> words;   // of all shards, by shard
  DeviceMark done;
};

}  // namespace

struct QueuedStep::State {
  State(Network& n, Solver& v, const TrainingOptions& options, DType inputs)
      : network(n),
        solver(v),
        device(n.device()),
        memory(memory_of(device)),
        table(kernels::table_for(device)),
        shard_size(options.shard_size),
        most_rows(std::min(options.shard_size, options.mini_batch_size)),
        streams(options.streams),
        choice{options.deterministic, options.precision == "tf32"},
        seed(static_cast<uint64_t>(options.seed)),
        // Without determinism a device may choose algorithms that give other bits each time.
        check_frequency(options.deterministic ? options.check_frequency : 0),
        class_weights(options.class_weights.begin(), options.class_weights.end()),
        loss_scale(static_cast<float>(options.scale_of_losses())),
        augments(inputs == DType::u8 && DeviceAugmentation::possible(device)),
        plans(n, options.dtype(), inputs),
        mirror(n, v, memory) {
    for (size_t i = 0; i < DeviceMirror::kSlots; ++i) slots.emplace_back(memory);
  }

  Network& network;
  Solver& solver;
  const Device device;
  DeviceMemory& memory;
  const kernels::Table& table;
  const int64_t shard_size, most_rows, streams;
  const kernels::Choice choice;
  const uint64_t seed;
  const int64_t check_frequency;
  const std::vector<float> class_weights;
  const float loss_scale;
  const bool augments;

  ShardPlans plans;
  DeviceMirror mirror;
  std::map<int64_t, std::vector<StreamRun>> runs;  // by size, then by stream
  std::optional<DeviceSum> sum;
  std::optional<DeviceUpdate> update;
  size_t most_shards = 0;
  std::vector<int64_t> shards_by_stream;

  std::unique_ptr<Group> group;
  std::unique_ptr<DeviceLinks> links;  // of the group's members; null: by way of the hosts
  std::string route;
  std::vector<double> loads;
  double limit = 0;  // seconds
  std::function<void(int stream, int64_t shard)> watch;
  std::vector<ShardOfIteration> singled;  // computed alone
  double shard_seconds = 0;
  std::vector<LeafRun> dealt;  // by member
  LeafRun own;                 // of them, this member's

  // Of an iteration with a check: what this member got as the shard's owner, and what it brings
  // and gets each time that it computes it again.
  std::optional<ShardCheck> check;
  std::unique_ptr<Pinned> owned;
  struct Again {
    Pinned exchange, gradients;
  };
  std::vector<Again> again;

  std::deque<Slot> slots;
  size_t newest = 0;          // of the last iteration that was begun
  std::deque<size_t> flying;  // slots of those that were begun and not finished
  bool values_kept = false;   // the values after that iteration come to its slot

  void watch_none() const {
    if (!watch) return;
    for (size_t k = 0; k < shards_by_stream.size(); ++k) watch(static_cast<int>(k), -1);
  }

  Slot& slot() { return slots[newest]; }
  static size_t after(size_t slot) { return (slot + 1) % DeviceMirror::kSlots; }
  static size_t before(size_t slot) { return after(after(slot)); }

  // Of this member's shards, by number in the mini-batch.
  size_t place_of(size_t j) const { return j - static_cast<size_t>(own.first); }
  size_t stream_of(size_t j) const { return place_of(j) % static_cast<size_t>(streams); }
  const Pinned& exchange_of(size_t j, size_t more) {
    return more > 0 ? again[more - 1].exchange : slot().exchanges[place_of(j)];
  }
  const Pinned& kept_of(size_t more) const { return more > 0 ? again[more - 1].gradients : *owned; }
  size_t again_now() const { return check ? static_cast<size_t>(check->times(group->rank())) : 0; }
  bool is_checked(size_t j) const { return check && check->shard == static_cast<int64_t>(j); }
  size_t word_bytes() const { return shard_word_bytes(plans.statistic_elements()); }

  void make_runs(int64_t size);
  void set_images(StreamRun& to, const MiniBatch& batch, const ShardRange& range, std::byte* host,
                  const ShardExchange& at);
  void prepare();
  void begin(const MiniBatch& batch, int64_t iteration);
  void follow_statistics(Slot& of);
  // `more`: 0, or the how-manieth time, only to see whether the same comes out.
  void add_shard(size_t j, const MiniBatch& batch, int64_t iteration, size_t more = 0);
  void gather_words(const TimeLimit& until);
  std::byte* words_of(Slot& of, size_t j) { return of.words.data() + j * word_bytes(); }
  void note_words(const ShardRange& shard, const std::byte* host, std::byte* to);
  void note_own(Slot& of);
  void check_result(int64_t iteration, const TimeLimit& until);
  StepResult result(const Slot& of) const;
  void deal();
  void wait();
  void give_up();
};

void QueuedStep::State::make_runs(int64_t size) {
  if (runs.count(size) > 0) return;
  const std::shared_ptr<const Plan> plan = [&] {
    // Algorithms are chosen while plans are compiled.
    const kernels::ThreadChoice settings(choice);
    return plans.plan(size);
  }();
  const auto useful = std::min<size_t>(static_cast<size_t>(streams), most_shards);
  // The loss of a mini-batch is a sum until the one division at the root.
  const std::vector<float> seeds(static_cast<size_t>(size), loss_scale);
  std::vector<StreamRun> made;
  for (size_t s = 0; s < useful; ++s) {
    made.push_back({PlanRun(plan, network.packed(), network.state_pointers()), {}});
    made.back().plan.set_seed(kLosses, seeds.data(), seeds.size() * sizeof(float));
  }
  runs.emplace(size, std::move(made));
}

// Memory for the shards at hand; nothing where an earlier mini-batch needed as much.
void QueuedStep::State::prepare() {
  Slot& s = slot();
  s.words.resize(s.shards.size() * word_bytes());
  for (int64_t i = 0; i < own.count; ++i) {
    const auto j = static_cast<size_t>(own.first + i);
    make_runs(s.shards[j].size);
    // A smaller mini-batch may have larger shards: room for the largest there can be.
    if (place_of(j) == s.exchanges.size()) {
      s.exchanges.emplace_back(memory, ShardExchange(plans, most_rows).bytes);
    }
    sum->leaf(j);
  }
  if (!check) return;
  make_runs(s.shards[static_cast<size_t>(check->shard)].size);
  const size_t bytes = plans.gradient_layout().bytes;
  if (check->owner == group->rank() && !owned) owned = std::make_unique<Pinned>(memory, bytes);
  while (again.size() < again_now()) {
    again.push_back({Pinned(memory, ShardExchange(plans, most_rows).bytes), Pinned(memory, bytes)});
  }
}

void QueuedStep::State::deal() {
  dealt = deal_leaves(static_cast<int64_t>(slot().shards.size()), loads);
  own = dealt[static_cast<size_t>(group->rank())];
}

// Or arrays.
void QueuedStep::State::set_images(StreamRun& to, const MiniBatch& batch, const ShardRange& range,
                                   std::byte* host, const ShardExchange& at) {
  const auto rows = static_cast<size_t>(range.size), first = static_cast<size_t>(range.first);
  const size_t row_bytes = plans.input_bytes();
  std::memcpy(host + at.inputs, batch.inputs().data() + first * row_bytes, rows * row_bytes);
  if (batch.maps.empty()) return to.plan.set_input(0, host + at.inputs, rows * row_bytes);
  if (!to.images) to.images.emplace(plans.input(), range.size, to.plan, device);
  std::memcpy(host + at.maps, batch.maps.data() + first, rows * sizeof batch.maps[0]);
  to.images->add(host + at.inputs, to.plan);
}

void QueuedStep::State::add_shard(size_t j, const MiniBatch& batch, int64_t iteration,
                                  size_t more) {
  const ShardRange range = slot().shards[j];
  const auto rows = static_cast<size_t>(range.size), first = static_cast<size_t>(range.first);
  const ShardExchange at(plans, range.size);
  std::vector<StreamRun>& all = runs.at(range.size);
  const size_t stream = more > 0 ? more % all.size() : stream_of(j);
  std::byte* const host = exchange_of(j, more).data();
  if (watch) watch(static_cast<int>(stream), static_cast<int64_t>(j));
  if (plans.labelled()) {
    std::memcpy(host + at.targets, batch.labels.data() + first, at.target_bytes);
  } else {
    const auto count = static_cast<size_t>(plans.outputs());
    copy_targets(batch, first * count, rows * count, reinterpret_cast<float*>(host + at.targets));
  }
  PlanRun& run = all[stream].plan;
  if (!class_weights.empty()) {
    auto* const weights = reinterpret_cast<float*>(host + at.weights);
    for (size_t i = 0; i < rows; ++i) {
      weights[i] = class_weights[static_cast<size_t>(batch.labels[first + i])] * loss_scale;
    }
    run.set_seed(kLosses, weights, rows * sizeof(float));
  }
  const kernels::StepInfo step{seed, static_cast<uint64_t>(iteration), range.first};
  set_images(all[stream], batch, range, host, at);
  run.set_input(1, host + at.targets, at.target_bytes);
  run.forward(step);
  run.get_output(kLosses, host + at.losses, rows * sizeof(float));
  if (plans.labelled()) {
    run.get_output(kScores, host + at.scores,
                   rows * static_cast<size_t>(plans.outputs()) * sizeof(float));
  }
  std::byte* to = host + at.statistics;
  for (const MovingStatistics& of : plans.statistics()) {
    const size_t bytes = static_cast<size_t>(of.channels) * sizeof(float);
    run.get_output(of.mean_output, to, bytes);
    run.get_output(of.variance_output, to + bytes, bytes);
    to += 2 * bytes;
  }
  fail_point("backward", iteration, static_cast<int64_t>(j));
  run.backward(step);
  const size_t bytes = plans.gradient_layout().bytes;
  if (is_checked(j)) {
    std::byte* const kept = kept_of(more).data();
    memory.copy_to_host(kept, run.gradients(), bytes, run.queue());
    if (corruption_is_set()) {
      memory.synchronize(run.queue());
      corruption_point("gradients", iteration, static_cast<int64_t>(j), kept, bytes);
      memory.copy_from_host(run.gradients(), kept, bytes, run.queue());
    }
  }
  if (more > 0) return;
  memory.copy(sum->leaf(j), run.gradients(), bytes, run.queue());
  ++shards_by_stream[stream];
}

// The host computes batch statistics that move; copies of the last iteration's are done.
void QueuedStep::State::follow_statistics(Slot& of) {
  if (plans.statistics().empty()) return;
  std::vector<const float*> values;
  for (size_t j = 0; j < of.shards.size(); ++j) {
    values.push_back(reinterpret_cast<const float*>(words_of(of, j) + sizeof(ShardWords)));
  }
  lockstep::follow_statistics(plans.statistics(), of.shards, values,
                              [&](int k) { return mirror.state(k); });
}

// What all shards say.
void QueuedStep::State::gather_words(const TimeLimit& until) {
  std::vector<size_t> sizes;
  for (const LeafRun& run : dealt) {
    sizes.push_back(static_cast<size_t>(run.count) * word_bytes());
  }
  std::vector<std::byte>& words = slot().words;
  const auto mine = std::span(words).subspan(static_cast<size_t>(own.first) * word_bytes(),
                                             sizes[static_cast<size_t>(group->rank())]);
  group->all_gather(Bytes(mine.begin(), mine.end()), sizes, words, until);
}

void QueuedStep::State::wait() {
  for (const auto& [size, all] : runs) {
    for (const auto& run : all) run.plan.synchronize();
  }
}

void QueuedStep::State::note_words(const ShardRange& shard, const std::byte* host, std::byte* to) {
  const ShardExchange at(plans, shard.size);
  const auto* const loss = reinterpret_cast<const float*>(host + at.losses);
  const auto* const weight = reinterpret_cast<const float*>(host + at.weights);
  ShardWords said;
  for (int64_t i = 0; i < shard.size; ++i) {
    const float counts = class_weights.empty() ? 1 : weight[i] / loss_scale;
    said.loss += static_cast<double>(counts) * static_cast<double>(loss[i]);
  }
  if (plans.labelled()) {
    said.correct = count_correct(reinterpret_cast<const float*>(host + at.scores),
                                 reinterpret_cast<const int32_t*>(host + at.targets), shard.size,
                                 plans.outputs());
  }
  std::memcpy(to, &said, sizeof said);
  std::memcpy(to + sizeof said, host + at.statistics, word_bytes() - sizeof said);
}

// What this member's shards say, when the device is done with them.
void QueuedStep::State::note_own(Slot& of) {
  for (size_t i = 0; i < static_cast<size_t>(of.own.count); ++i) {
    const size_t j = static_cast<size_t>(of.own.first) + i;
    note_words(of.shards[j], of.exchanges[i].data(), words_of(of, j));
  }
}

// Whether all who computed the shard that is checked got the same.
void QueuedStep::State::check_result(int64_t iteration, const TimeLimit& until) {
  const auto j = static_cast<size_t>(check->shard);
  const size_t each = network.learnables().size() + 1;
  const int rank = group->rank();
  std::vector<Digest> mine(ShardCheck::kMostResults * each);
  std::vector<std::byte> said(word_bytes());
  for (size_t more = rank == check->owner ? 0 : 1; more <= again_now(); ++more) {
    auto* to = mine.data() + more * each;
    for (const auto& entry : plans.gradient_layout().entries) {
      *to++ = digest_of(kept_of(more).data() + entry.offset, entry.spec.bytes());
    }
    note_words(slot().shards[j], exchange_of(j, more).data(), said.data());
    *to = digest_of(said.data(), said.size());
  }
  const auto size = static_cast<size_t>(group->size());
  std::vector<Digest> all(size * mine.size());
  group->all_gather(std::as_bytes(std::span(mine)),
                    std::vector<size_t>(size, mine.size() * sizeof(Digest)),
                    std::as_writable_bytes(std::span(all)), until);
  std::vector<std::string> names;
  for (const auto& l : network.learnables()) names.push_back(l.name);
  compare_results(iteration, *check, names, [&](int member) {
    return all.data() + static_cast<size_t>(member) * mine.size();
  });
}

StepResult QueuedStep::State::result(const Slot& of) const {
  StepResult result;
  std::vector<double> losses;
  for (size_t j = 0; j < of.shards.size(); ++j) {
    ShardWords said;
    std::memcpy(&said, of.words.data() + j * word_bytes(), sizeof said);
    losses.push_back(said.loss);
    result.correct += said.correct;
  }
  result.loss_sum = tree_sum(losses);
  return result;
}

QueuedStep::QueuedStep(Network& network, Solver& solver, const TrainingOptions& options,
                       DType inputs)
    : state_(std::make_unique<State>(network, solver, options, inputs)) {
  State& s = *state_;
  std::vector<ShardRange>& shards = s.slot().shards;
  shards = cut_into_shards(options.mini_batch_size, options.shard_size);
  s.most_shards = shards.size();
  s.shards_by_stream.assign(static_cast<size_t>(s.streams), 0);
  for (const auto& shard : shards) s.make_runs(shard.size);
  s.sum.emplace(s.device, s.plans.gradient_layout().bytes, s.most_shards);
  join(std::move(LocalGroup::of_threads({.size = 1})[0]), {1}, 1);
  s.update.emplace(network, solver, options, s.plans, s.sum->result(), s.mirror);
  // Copies made for earlier uses of the network may be older than its values.
  network.packed().pack_all();
}

QueuedStep::~QueuedStep() {
  state_->links.reset();  // the device may wait for others
  try {
    state_->give_up();
  } catch (const Error&) {
    // A device that fails here has failed before, where it could be told.
  }
}

void QueuedStep::join(std::unique_ptr<Group> group, std::vector<double> loads, double limit) {
  State& s = *state_;
  s.links.reset();
  s.group = std::move(group);
  s.loads = std::move(loads);
  s.limit = limit;
  // Another run needs other memory.
  s.give_up();
  for (Slot& slot : s.slots) slot.exchanges.clear();
  s.values_kept = false;
  s.owned.reset();
  s.again.clear();
  s.sum->forget_leaves();
  s.mirror.fetch_states();  // values may have come from another member
  s.route.clear();
  if (s.group->size() == 1) return;
  std::string why;
  s.links = DeviceLinks::between(*s.group, s.device, std::min(limit / 5, kLinkPatience),
                                 TimeLimit(limit), why);
  s.route = s.links ? "from GPU to GPU" : "through the hosts' memory: " + why;
}

std::string QueuedStep::route() const { return state_->route; }

// Nothing of it goes through windows.
GroupSumOptions QueuedStep::sum_options() const {
  return {.most_leaves = static_cast<int64_t>(state_->most_shards)};
}

int64_t QueuedStep::check_frequency() const { return state_->check_frequency; }

void QueuedStep::watch(std::function<void(int, int64_t)> watch) {
  state_->watch = std::move(watch);
}

void QueuedStep::compute_alone(std::vector<ShardOfIteration> shards) {
  state_->singled = std::move(shards);
}

bool QueuedStep::augments() const { return state_->augments; }

double QueuedStep::shard_seconds() const { return state_->shard_seconds; }

// Adds a mini-batch's shards, and the sum of this member's.
void QueuedStep::State::begin(const MiniBatch& batch, int64_t iteration) {
  newest = after(newest);
  Slot& s = slot();
  s.iteration = iteration;
  s.shards = cut_into_shards(batch.size(), shard_size);
  check_batch(batch, s.shards.size(), most_shards, plans);
  deal();
  s.own = own;
  check = check_due(iteration, check_frequency, dealt);
  prepare();
  const auto first = static_cast<size_t>(own.first), count = static_cast<size_t>(own.count);
  const auto single = [&](size_t j) {
    return std::find(singled.begin(), singled.end(),
                     ShardOfIteration{iteration, static_cast<int64_t>(j)}) != singled.end();
  };
  for (size_t j = first; j < first + count; ++j) {
    if (!single(j)) add_shard(j, batch, iteration);
  }
  for (size_t more = 1; more <= again_now(); ++more) {
    add_shard(static_cast<size_t>(check->shard), batch, iteration, more);
  }
  // From now on it is the device that has them, in an order of its own.
  watch_none();
  for (size_t j = first; j < first + count; ++j) {
    if (!single(j)) continue;
    wait();
    add_shard(j, batch, iteration);
    wait();
    watch_none();
  }
  for (const auto& [size, all] : runs) {
    for (const auto& run : all) run.plan.join();
  }
  memory.activate();
  sum->add_own(s.shards.size(), own);
}

// Waits for the device, and goes back to the iteration that was finished last.
void QueuedStep::State::give_up() {
  wait();
  memory.activate();
  memory.synchronize(memory.default_queue());
  if (flying.empty()) return;
  newest = before(flying.front());
  flying.clear();
  mirror.add_values_back(newest);
  network.packed().pack_all();
  mirror.send_states();
  memory.synchronize(memory.default_queue());
}

StepResult QueuedStep::compute(const MiniBatch& batch, int64_t iteration) {
  State& s = *state_;
  const auto begun = std::chrono::steady_clock::now();
  s.values_kept = false;
  s.begin(batch, iteration);
  s.wait();
  Slot& slot = s.slot();
  s.note_own(slot);
  if (s.own.count > 0) {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
    s.shard_seconds = taken.count() / static_cast<double>(s.own.count);
  }
  fail_point("exchange", iteration);
  const TimeLimit until(s.limit);
  if (s.check) s.check_result(iteration, until);
  if (s.group->size() > 1) {
    s.gather_words(until);
    if (s.links) {
      s.sum->exchange(*s.links, slot.shards.size(), s.dealt, until);
    } else {
      s.sum->exchange(*s.group, slot.shards.size(), s.dealt, until);
    }
  }
  return s.result(slot);
}

void QueuedStep::apply(const UpdateScalars& scalars) {
  State& s = *state_;
  fail_point("update", scalars.iteration);
  s.memory.activate();
  s.follow_statistics(s.slot());
  s.mirror.send_states();
  s.update->add(scalars, s.newest);
  s.values_kept = true;
}

Digest QueuedStep::digest(int64_t iteration) {
  State& s = *state_;
  s.memory.synchronize(s.memory.default_queue());
  return s.mirror.digest(iteration, s.newest);
}

bool QueuedStep::runs_ahead(int64_t iteration) const {
  const State& s = *state_;
  const bool checked = s.check_frequency > 0 && iteration % s.check_frequency == 0;
  return s.group->size() == 1 && !s.update->waits() && !checked;
}

void QueuedStep::begin(const MiniBatch& batch, const UpdateScalars& scalars) {
  State& s = *state_;
  if (!s.values_kept) s.mirror.add_values(s.newest);
  s.values_kept = false;
  s.begin(batch, scalars.iteration);
  fail_point("exchange", scalars.iteration);
  fail_point("update", scalars.iteration);
  s.update->add(scalars, s.newest);
  s.slot().done.set(s.memory.default_queue());
  s.flying.push_back(s.newest);
  s.values_kept = true;
}

FinishedIteration QueuedStep::finish() {
  State& s = *state_;
  const size_t at = s.flying.front();
  Slot& slot = s.slots[at];
  slot.done.wait();
  s.note_own(slot);
  FinishedIteration finished{s.result(slot), {}};
  if (!std::isfinite(finished.sums.loss_sum)) {
    s.give_up();
    return finished;
  }
  s.flying.pop_front();
  s.follow_statistics(slot);
  finished.digest = s.mirror.digest(slot.iteration, at);
  // Nobody reads them before.
  if (s.flying.empty()) s.mirror.send_states();
  return finished;
}

const std::vector<int64_t>& QueuedStep::shards_by_worker() const {
  return state_->shards_by_stream;
}

}  // namespace lockstep
