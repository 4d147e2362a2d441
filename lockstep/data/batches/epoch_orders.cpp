#include "lockstep/data/batches/epoch_orders.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/queue_check.h"
#include "lockstep/data/datastores/datastore.h"

namespace lockstep {
namespace {

// The key of the order of mini-batches; that of observations has b = 0. Of balanced classes those
// of the draws of a class, and of the orders of the first class.
constexpr uint64_t kOfBatches = 1, kOfClasses = 2, kOfFirstClass = 3;

int64_t batches_of(int64_t n, const MiniBatchQueueOptions& options) {
  MiniBatchQueueOptions whole = options;
  whole.sequence_length = 0;
  check_mini_batches(n, whole);
  return batches_per_epoch(n, whole);
}

// The steps of a sequence that is read for it.
int64_t read_steps(const Datastore& data, int64_t index, size_t input) {
  const Example example = data.read(index);
  const ExampleValue& value = example.inputs.at(input);
  if (const auto* const array = std::get_if<Array>(&value)) return array->shape[0];
  if (const auto* const array = std::get_if<IntegerArray>(&value)) return array->shape[0];
  throw DataError("[mini-batch queue] " + data.name(index) + " has no sequence as its input " +
                  std::to_string(input + 1));
}

}  // namespace

int64_t steps_of_longest(const ExampleCache& cache, int64_t observation) {
  int64_t most = 0;
  for (size_t k = 0; k < cache.inputs().size(); ++k) {
    if (cache.inputs()[k].sequence) most = std::max(most, cache.steps(observation, k));
  }
  return most;
}

std::vector<int64_t> steps_of_observations(const ExampleCache& cache) {
  std::vector<int64_t> all;
  if (std::ranges::none_of(cache.inputs(), &CachedValue::sequence)) return all;
  for (int64_t i = 0; i < cache.size(); ++i) all.push_back(steps_of_longest(cache, i));
  return all;
}

std::vector<int64_t> steps_of_observations(const Datastore& data) {
  std::vector<int64_t> all;
  const ExampleSpec spec = data.spec();
  for (size_t k = 0; k < spec.inputs.size(); ++k) {
    if (!spec.inputs[k].sequence) continue;
    all.resize(static_cast<size_t>(data.size()));
    for (int64_t i = 0; i < data.size(); ++i) {
      const std::optional<int64_t> known = data.steps(i, k);
      int64_t& most = all[static_cast<size_t>(i)];
      most = std::max(most, known ? *known : read_steps(data, i, k));
    }
  }
  return all;
}

std::vector<int64_t> labels_of_observations(const Datastore& data) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < data.size(); ++i) labels.push_back(data.label(i));
  return labels;
}

EpochOrders::EpochOrders(int64_t n, const MiniBatchQueueOptions& options,
                         std::vector<int64_t> steps, const std::vector<int64_t>& labels)
    : n_(n),
      batches_(batches_of(n, options)),
      batch_size_(options.mini_batch_size),
      sequence_length_(options.sequence_length),
      group_by_length_(options.group_by_length),
      shuffle_(options.shuffle),
      seed_(options.seed),
      steps_(std::move(steps)) {
  for (const auto& [name, value] : {std::pair{"sequence_length", sequence_length_},
                                    std::pair{"group_by_length", group_by_length_}}) {
    require_in_queue(value == 0 || !steps_.empty(),
                     std::string(name) + " is " + std::to_string(value) +
                         ", but no input of the data is a sequence",
                     std::string("leave ") + name + " out");
  }
  if (options.balanced) {
    require_in_queue(static_cast<int64_t>(labels.size()) == n,
                     "balanced needs a class for each observation");
    std::map<int64_t, std::vector<int64_t>> members;
    for (int64_t i = 0; i < n; ++i) members[labels[static_cast<size_t>(i)]].push_back(i);
    for (auto& [unused, of_class] : members) classes_.push_back(std::move(of_class));
  }
  per_epoch_ = sequence_length_ == 0 ? batches_ : get(0)->segments_before.back();
}

std::shared_ptr<const EpochOrder> EpochOrders::get(int64_t epoch) {
  if (shuffle_ != Shuffle::every_epoch) epoch = 0;
  const MutexLock lock(mutex_);
  Entry& entry = entries_[static_cast<size_t>(epoch) % entries_.size()];
  if (entry.epoch != epoch) {
    entry.order = std::make_shared<const EpochOrder>(made(epoch));
    entry.epoch = epoch;
  }
  return entry.order;
}

EpochBatch EpochOrders::batch(const EpochOrder& order, int64_t index) const {
  EpochBatch at;
  int64_t batch = index;
  if (const std::vector<int64_t>& before = order.segments_before; !before.empty()) {
    const auto next = std::upper_bound(before.begin(), before.end(), index);
    batch = next - before.begin() - 1;
    at.segment = index - before[static_cast<size_t>(batch)];
    at.segments = *next - before[static_cast<size_t>(batch)];
  }
  at.first = batch * batch_size_;
  at.count = std::min(batch_size_, n_ - at.first);
  return at;
}

EpochOrder EpochOrders::made(int64_t epoch) const {
  EpochOrder order{classes_.empty() ? epoch_order(n_, shuffle_, seed_, epoch)
                                    : balanced_order(epoch)};
  if (sequence_length_ > 0 && epoch > 0) {
    order.observations = dealt(std::move(order.observations), epoch_order(n_, shuffle_, seed_, 0));
  }
  if (group_by_length_ > 0) group(order.observations);
  if (sequence_length_ > 0 || group_by_length_ > 0) mix(order.observations, epoch);
  if (sequence_length_ > 0) count_segments(order);
  if (!classes_.empty()) {
    std::vector<int64_t> times(static_cast<size_t>(n_));
    for (const int64_t i : order.observations) {
      order.repetitions.push_back(times[static_cast<size_t>(i)]++);
    }
  }
  return order;
}

std::vector<int64_t> EpochOrders::balanced_order(int64_t epoch) const {
  const auto key = static_cast<uint64_t>(epoch);
  const RandomStream classes({.seed = seed_, .use = RandomUse::shuffle, .a = key, .b = kOfClasses});
  struct Round {
    std::vector<int64_t> order = {};
    size_t next = 0;
    uint64_t number = 0;
  };
  std::vector<Round> rounds(classes_.size());
  std::vector<int64_t> drawn;
  for (int64_t i = 0; i < n_; ++i) {
    const uint64_t c = classes.below(static_cast<uint64_t>(i), classes_.size());
    const std::vector<int64_t>& members = classes_[c];
    Round& round = rounds[c];
    if (round.next == round.order.size()) {
      round = {random_permutation({.seed = seed_,
                                   .use = RandomUse::shuffle,
                                   .a = key,
                                   .b = kOfFirstClass + c,
                                   .c = round.number},
                                  static_cast<int64_t>(members.size())),
               0, round.number + 1};
    }
    drawn.push_back(members[static_cast<size_t>(round.order[round.next++])]);
  }
  return drawn;
}

int64_t EpochOrders::segments(int64_t observation) const {
  const int64_t steps = steps_[static_cast<size_t>(observation)];
  return std::max<int64_t>(1, (steps + sequence_length_ - 1) / sequence_length_);
}

// Deals the observations in their order to the positions where those of `pattern` have as many
// segments.
std::vector<int64_t> EpochOrders::dealt(std::vector<int64_t> order,
                                        const std::vector<int64_t>& pattern) const {
  std::map<int64_t, std::vector<int64_t>> waiting;  // by segments
  for (const int64_t observation : order) waiting[segments(observation)].push_back(observation);
  std::map<int64_t, size_t> next;
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t of = segments(pattern[i]);
    order[i] = waiting[of][next[of]++];
  }
  return order;
}

// Sorts the observations of each few mini-batches by length, the longest first; equal ones stay in
// their order. A last, partial mini-batch stays as it is: whatever was sorted into it would always
// be short.
void EpochOrders::group(std::vector<int64_t>& order) const {
  const int64_t whole = n_ / batch_size_ * batch_size_;
  const int64_t most = std::min(group_by_length_, batches_) * batch_size_;
  for (int64_t first = 0; first < whole; first += most) {
    std::stable_sort(order.begin() + first, order.begin() + std::min(whole, first + most),
                     [this](int64_t a, int64_t b) {
                       return steps_[static_cast<size_t>(a)] > steps_[static_cast<size_t>(b)];
                     });
  }
}

// Shuffles the full mini-batches. Otherwise long ones would always come first, and those with many
// segments at the same position of each epoch.
void EpochOrders::mix(std::vector<int64_t>& order, int64_t epoch) const {
  if (shuffle_ == Shuffle::never) return;
  const int64_t whole = n_ / batch_size_;
  const std::vector<int64_t> mixed = random_permutation({.seed = seed_,
                                                         .use = RandomUse::shuffle,
                                                         .a = static_cast<uint64_t>(epoch),
                                                         .b = kOfBatches},
                                                        whole);
  const std::vector<int64_t> before = order;
  for (int64_t i = 0; i < whole; ++i) {
    std::copy_n(before.begin() + mixed[static_cast<size_t>(i)] * batch_size_, batch_size_,
                order.begin() + i * batch_size_);
  }
}

void EpochOrders::count_segments(EpochOrder& order) const {
  order.segments_before.assign(1, 0);
  for (int64_t b = 0; b < batches_; ++b) {
    int64_t most = 1;
    for (int64_t i = b * batch_size_; i < std::min(n_, (b + 1) * batch_size_); ++i) {
      most = std::max(most, segments(order.observations[static_cast<size_t>(i)]));
    }
    order.segments_before.push_back(order.segments_before.back() + most);
  }
}

int64_t batches_per_epoch(const ExampleCache& cache, const MiniBatchQueueOptions& options) {
  if (options.sequence_length == 0) return batches_per_epoch(cache.size(), options);
  return EpochOrders(cache.size(), options, steps_of_observations(cache)).per_epoch();
}

int64_t batches_per_epoch(const Datastore& data, const MiniBatchQueueOptions& options) {
  if (options.sequence_length == 0) return batches_per_epoch(data.size(), options);
  return EpochOrders(data.size(), options, steps_of_observations(data)).per_epoch();
}

std::vector<int64_t> observations_of(const Datastore& data, const MiniBatchQueueOptions& options,
                                     int64_t number) {
  const bool by_length = options.sequence_length > 0 || options.group_by_length > 0;
  EpochOrders orders(data.size(), options,
                     by_length ? steps_of_observations(data) : std::vector<int64_t>(),
                     options.balanced ? labels_of_observations(data) : std::vector<int64_t>());
  const auto order = orders.get(number / orders.per_epoch());
  const EpochBatch at = orders.batch(*order, number % orders.per_epoch());
  const auto first = order->observations.begin() + at.first;
  return {first, first + at.count};
}

}  // namespace lockstep
