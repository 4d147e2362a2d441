#include "lockstep/data/batches/mini_batch_queue.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/pause.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/data/batches/epoch_orders.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/batches/free_mini_batches.h"
#include "lockstep/data/batches/mini_batch_rows.h"
#include "lockstep/data/batches/mini_batch_tensors.h"
#include "lockstep/data/batches/queue_check.h"

namespace lockstep {
namespace {

// Processor time of the calling thread.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void check(const ExampleCache* cache, const MiniBatchQueueOptions& options) {
  require_in_queue(cache != nullptr, "the cache is null");
  const int64_t n = cache->size();
  require_in_queue(n > 0, "there are no observations (" + cache->store()->describe() + ")");
  check_mini_batches(n, options);
  MiniBatchRows::check(*cache, options);
}

void check_start(const MiniBatchQueueOptions& options, int64_t per_epoch, int64_t first_epoch,
                 int64_t first_batch) {
  require_in_queue(first_epoch >= 0 && first_epoch <= options.max_epochs,
                   "cannot start at epoch " + std::to_string(first_epoch) + " of " +
                       std::to_string(options.max_epochs));
  require_in_queue(first_batch >= 0 && first_batch <= per_epoch,
                   "cannot start at mini-batch " + std::to_string(first_batch) + " of " +
                       std::to_string(per_epoch) + " in an epoch");
}

// Targets by step are cut with the input that has their steps.
void check_targets(const ExampleCache& cache, const MiniBatchQueueOptions& options) {
  const CachedTargets targets = targets_of(cache, options.targets.get());
  if (options.sequence_length == 0 || !targets || !targets.value->sequence) return;
  for (int64_t i = 0; i < cache.size(); ++i) {
    const int64_t steps = targets.steps(i);
    bool fits = false;
    for (size_t k = 0; k < cache.inputs().size(); ++k) {
      fits = fits || (cache.inputs()[k].sequence && cache.steps(i, k) == steps);
    }
    require_in_queue(fits,
                     cache.store()->name(i) + " has " +
                         counted(steps_of_longest(cache, i), "step", "steps") + ", but " +
                         std::to_string(steps) + " in its target, so they cannot be cut alike",
                     "leave sequence_length out");
  }
}

std::shared_ptr<EpochOrders> orders_of(const ExampleCache& cache,
                                       const MiniBatchQueueOptions& options) {
  const bool by_length = options.sequence_length > 0 || options.group_by_length > 0;
  check_targets(cache, options);
  return std::make_shared<EpochOrders>(
      cache.size(), options, by_length ? steps_of_observations(cache) : std::vector<int64_t>(),
      options.balanced ? labels_of_observations(*cache.store()) : std::vector<int64_t>());
}

}  // namespace

struct MiniBatchQueue::State {
  // A mini-batch in progress, a finished one, or the exception that prevented it. Guarded by the
  // queue's mutex, with two exceptions that Clang cannot follow. Threads that make claimed rows use
  // `batch` and `wanted` without the mutex. The one thread that begins or finishes a mini-batch
  // changes all members that it needs without the mutex.
  struct Slot {
    std::unique_ptr<MiniBatch> batch;
    std::vector<IndexRange> wanted, others;  // others: with which wanted ones are mixed
    int64_t rows = 0, claimed = 0;           // rows that ranges have claimed
    int ranges = 0;                          // row ranges in progress
    int64_t failed = 0;                      // first row that failed, if there is an error
    std::exception_ptr error;
    bool ready = false;
  };
  // Rows of a mini-batch for one thread. A range is short, so that no thread waits long for the
  // last one.
  struct RowRange {
    int64_t number = 0, first = 0, end = 0;
  };
  static constexpr int64_t kRowsOfRange = 8;
  static constexpr double between_looks = 0.2;  // seconds, at options.cancelled

  const std::shared_ptr<const ExampleCache> cache;
  const MiniBatchQueueOptions options;
  const std::shared_ptr<EpochOrders> orders;
  const int64_t per_epoch;
  const int64_t end;    // number of mini-batches in all epochs
  const bool may_help;  // whether compute threads call help()
  // Images of an index were not read before the first mini-batch.
  const bool from_network = cache->size() > 0 && cache->store()->facts(0) != nullptr;
  // Nor were those of which an earlier reading is known.
  const bool recalled = cache->recalled() || (options.targets && options.targets->recalled());
  std::atomic<bool> passed{false};  // whether an epoch's mini-batches were taken
  const int64_t start_at;
  int64_t expected_to;  // mini-batches before this one were announced to the datastore; see begin()
  const MiniBatchRows rows;
  const std::shared_ptr<FreeMiniBatches> free_list;
  std::atomic<bool> stop{false};

  Mutex mutex;
  ConditionVariable wake_makers, wake_taker;
  // Numbers of mini-batches, counted over all epochs: the next one for the caller, the first one
  // with unclaimed rows, the next one to begin (at most taken + prefetch).
  int64_t taken LOCKSTEP_GUARDED_BY(mutex);
  int64_t working LOCKSTEP_GUARDED_BY(mutex);
  int64_t begun LOCKSTEP_GUARDED_BY(mutex);
  bool beginning LOCKSTEP_GUARDED_BY(mutex) = false;   // a thread begins the next one
  bool waited_for LOCKSTEP_GUARDED_BY(mutex) = false;  // whether next() waits
  // Mini-batch i is in slot i % prefetch.
  std::vector<Slot> slots LOCKSTEP_GUARDED_BY(mutex);
  std::vector<std::vector<uint8_t>> scratches LOCKSTEP_GUARDED_BY(mutex);
  size_t scratches_taken LOCKSTEP_GUARDED_BY(mutex) = 0;
  // Processor time of makers for `made` mini-batches.
  double seconds LOCKSTEP_GUARDED_BY(mutex) = 0;
  int64_t made LOCKSTEP_GUARDED_BY(mutex) = 0;
  // Destroyed before the slots, so that copies are done before their memory is freed.
  std::optional<MiniBatchTensors> tensors;
  std::vector<std::thread> makers;

  State(std::shared_ptr<const ExampleCache> images, MiniBatchQueueOptions o, int64_t first_epoch,
        int64_t first_batch)
      : cache(std::move(images)),
        options(std::move(o)),
        orders(orders_of(*cache, options)),
        per_epoch(orders->per_epoch()),
        end(per_epoch * options.max_epochs),
        may_help(options.helped && fit_into_memory()),
        start_at(std::min(end, first_epoch * per_epoch + first_batch)),
        expected_to(start_at),
        rows(*cache, options),
        free_list(std::make_shared<FreeMiniBatches>(
            static_cast<size_t>(options.prefetch + options.threads + 2))),
        taken(std::min(end, first_epoch * per_epoch + first_batch)),
        working(taken),
        begun(taken),
        slots(static_cast<size_t>(options.prefetch)) {
    check_start(options, per_epoch, first_epoch, first_batch);
    if (!options.device.empty()) tensors.emplace(options.device, slots.size());
  }

  ~State() {
    {
      const MutexLock lock(mutex);
      stop.store(true);
    }
    wake_makers.notify_all();
    for (std::thread& maker : makers) maker.join();
  }

  // Compute threads must not wait for a disk.
  bool fit_into_memory() const {
    const auto fits = [](const ExampleCache& images) { return images.capacity() >= images.size(); };
    return fits(*cache) && (!options.targets || fits(*options.targets));
  }
  // Whether examples that were not read before the first mini-batch have been read since. After an
  // epoch only those are missing that it dropped at its end; they are read ahead. Members of a
  // group read other examples in each epoch.
  bool all_read() const {
    if (!from_network && !recalled) return true;
    if (passed.load() && !options.rows && !options.balanced) return true;
    return cache->filled() && (!options.targets || options.targets->filled());
  }
  // False until all examples have been read: compute threads must not wait for a network either.
  bool helped() const { return may_help && all_read(); }
  // The number of a mini-batch, counted over all epochs.
  int64_t number_of(const MiniBatch& batch) const { return batch.epoch * per_epoch + batch.index; }

  // Not checked: only next() changes `taken`, and only the caller's thread calls next() and this,
  // so the value needs no lock here.
  int64_t taken_by_caller() const LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS { return taken; }

  Slot& slot_of(int64_t number) LOCKSTEP_REQUIRES(mutex) {
    return slots[static_cast<size_t>(number % static_cast<int64_t>(slots.size()))];
  }

  void start() {
    // Until memory holds what was recalled, images are decoded as fast as a first reading would.
    const bool slow = recalled && fit_into_memory() && !all_read();
    const int most = slow ? std::max(options.threads, available_cores()) : options.threads;
    const int64_t useful = std::min<int64_t>(most, end - taken_by_caller());
    for (int64_t i = 0; i < useful; ++i) {
      makers.emplace_back([this, until_read = i >= options.threads] { make_all(until_read); });
    }
  }

  // Whether there is work for mini-batches below `limit`.
  bool can_work(int64_t limit) const LOCKSTEP_REQUIRES(mutex) {
    if (working < begun) return working < limit;
    return !beginning && begun < std::min({end, taken + options.prefetch, limit});
  }
  // If compute threads help, background threads only make the mini-batch for which the caller
  // waits.
  int64_t makers_limit() const LOCKSTEP_REQUIRES(mutex) {
    return !helped() ? end : waited_for ? taken + 1 : 0;
  }

  // Begins a mini-batch. Releases the mutex meanwhile, because computing the order of an epoch
  // takes time.
  void begin_next() LOCKSTEP_REQUIRES(mutex) {
    beginning = true;
    const int64_t number = begun;
    Slot& slot = slot_of(number);
    slot.rows = slot.claimed = 0;
    {
      const MutexUnlock unlocked(mutex);
      try {
        slot.batch = free_list->take();
        begin(number, slot);
      } catch (...) {
        slot.error = std::current_exception();
      }
    }
    slot.ready = slot.error != nullptr;
    beginning = false;
    ++begun;
    pass_over();
    wake_taker.notify_one();
    if (can_work(makers_limit())) wake_makers.notify_all();
  }

  // Skips mini-batches without unclaimed rows.
  void pass_over() LOCKSTEP_REQUIRES(mutex) {
    while (working < begun && slot_of(working).claimed == slot_of(working).rows) ++working;
  }

  // Makes one row range of a mini-batch below `limit`. Returns false if there is none. Releases the
  // mutex during the work.
  bool work(int64_t limit) LOCKSTEP_REQUIRES(mutex) {
    if (!can_work(limit)) return false;
    if (working == begun) begin_next();
    if (working == begun || working >= limit) return true;
    Slot& slot = slot_of(working);
    const RowRange range{working, slot.claimed, std::min(slot.claimed + kRowsOfRange, slot.rows)};
    scratches.reserve(scratches.size() + scratches_taken + 1);  // push_back() below must not throw
    slot.claimed = range.end;
    ++slot.ranges;
    pass_over();
    std::vector<uint8_t> scratch;
    if (!scratches.empty()) {
      scratch = std::move(scratches.back());
      scratches.pop_back();
    }
    ++scratches_taken;
    std::exception_ptr error;
    int64_t row = range.first;
    {
      const MutexUnlock unlocked(mutex);
      try {
        const ArithmeticMode mode;  // the same mode on every thread
        for (; row < range.end && !stop.load(std::memory_order_relaxed); ++row) {
          make(slot, row, scratch);
        }
      } catch (...) {
        error = std::current_exception();
      }
    }
    scratches.push_back(std::move(scratch));
    --scratches_taken;
    if (error && (!slot.error || row < slot.failed)) {
      slot.error = error;
      slot.failed = row;
    }
    // Rows are claimed in order, so the first failing row does not depend on the speed of the
    // threads.
    if (slot.error) slot.claimed = slot.rows;
    pass_over();
    const bool last = --slot.ranges == 0 && slot.claimed == slot.rows;
    if (last && !stop.load()) finish(slot);
    return true;
  }

  // Releases the mutex meanwhile.
  void finish(Slot& slot) LOCKSTEP_REQUIRES(mutex) {
    if (!slot.error) {
      std::exception_ptr error;
      {
        const MutexUnlock unlocked(mutex);
        try {
          const ArithmeticMode mode;
          slot.batch->observations_digest = digest_observations(slot.batch->observations);
          if (rows.mixes()) {
            const std::vector<IndexRange> all{{0, slot.batch->size()}};
            rows.mix(*slot.batch, options.rows ? slot.wanted : all);
          }
          if (options.preprocess) {
            options.preprocess(*slot.batch);
            slot.batch->check();
          }
          if (tensors) {
            tensors->make(*slot.batch, number_of(*slot.batch));
          }
        } catch (...) {
          error = std::current_exception();
        }
      }
      slot.error = error;
    }
    slot.ready = true;
    ++made;
    wake_taker.notify_one();
  }

  // With `until_read` until all_read().
  void make_all(bool until_read) {
    // If cores are scarce, this thread must not take a core from a compute thread, but should run
    // while that thread waits. A failure of this call is harmless. Another class than the usual one
    // was chosen by the user.
    const sched_param none{};
    if (sched_getscheduler(0) == SCHED_OTHER) {
      pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
    }
    const MutexLock lock(mutex);
    for (;;) {
      const auto over = [&] { return stop.load() || (until_read && all_read()); };
      while (!over() && !can_work(makers_limit())) wake_makers.wait(mutex);
      if (over()) {
        wake_makers.notify_one();  // for another one, if this one was woken to work
        return;
      }
      const double before = thread_seconds();
      work(makers_limit());
      seconds += thread_seconds() - before;
      // Other threads can make row ranges of the mini-batch that this one began.
      if (!helped() && (options.threads > 1 || recalled) && can_work(end)) wake_makers.notify_one();
    }
  }

  // Tells the datastore what the next mini-batches need: some 1,024 observations.
  void expect_from(int64_t number) {
    const int64_t ahead = std::max<int64_t>(options.prefetch, 1024 / options.mini_batch_size);
    const int64_t until = std::min(end, number + ahead + 1);
    for (expected_to = std::max(expected_to, number); expected_to < until; ++expected_to) {
      const int64_t epoch = expected_to / per_epoch, index = expected_to % per_epoch;
      if (epoch > number / per_epoch + 1) return;  // two orders are kept
      const auto order = orders->get(epoch);
      const EpochBatch at = orders->batch(*order, index);
      if (at.segment > 0 && expected_to > start_at) continue;
      std::vector<int64_t> wanted;
      const auto add = [&](int64_t begin_row, int64_t end_row) {
        const auto first = order->observations.begin() + at.first;
        wanted.insert(wanted.end(), first + begin_row, first + end_row);
      };
      if (options.rows) {
        const std::vector<IndexRange> ranges = options.rows(epoch, index, at.count);
        for (const IndexRange& range : ranges) add(range.first, range.end());
        if (rows.mixes()) {
          for (const IndexRange& range : MiniBatchRows::mixed_with(ranges, at.count)) {
            add(range.first, range.end());
          }
        }
      } else {
        add(0, at.count);
      }
      cache->expect(wanted);
      if (options.targets && options.targets != cache) options.targets->expect(wanted);
    }
  }

  // For next(): returns when there may be news. `look` is the next time to ask options.cancelled.
  void wait_for_makers(TimeLimit& look) LOCKSTEP_REQUIRES(mutex) {
    if (!options.cancelled) return wake_taker.wait(mutex);
    wake_taker.wait_until(mutex, look);
    if (slot_of(taken).ready || !look.reached()) return;
    look = TimeLimit(between_looks);
    const MutexUnlock unlocked(mutex);
    if (!options.cancelled()) return;
    throw Cancelled("[mini-batch queue] stopped while waiting for the next mini-batch");
  }

  // Called by one thread at a time.
  void begin(int64_t number, Slot& slot) {
    if (from_network ? !cache->filled() : !helped()) expect_from(number);
    MiniBatch& batch = *slot.batch;
    batch.epoch = number / per_epoch;
    batch.index = number % per_epoch;
    const auto order = orders->get(batch.epoch);
    const EpochBatch at = orders->batch(*order, batch.index);
    batch.segment = at.segment;
    batch.segments = at.segments;
    const auto first = order->observations.begin() + at.first;
    batch.observations.assign(first, first + at.count);
    batch.repetitions.clear();
    if (!order->repetitions.empty()) {
      const auto times = order->repetitions.begin() + at.first;
      batch.repetitions.assign(times, times + at.count);
    }
    rows.begin(batch);
    if (options.rows) slot.wanted = options.rows(batch.epoch, batch.index, at.count);
    if (rows.mixes()) slot.others = MiniBatchRows::mixed_with(slot.wanted, at.count);
    slot.rows = at.count;
  }

  void make(Slot& slot, int64_t row, std::vector<uint8_t>& scratch) const {
    rows.label(*slot.batch, row);
    const auto holds = [&](auto& r) { return row >= r.first && row < r.end(); };
    if (options.rows && std::ranges::none_of(slot.wanted, holds) &&
        std::ranges::none_of(slot.others, holds)) {
      return;
    }
    rows.make(*slot.batch, row, scratch);
  }
};

MiniBatchQueue::MiniBatchQueue(std::shared_ptr<const ExampleCache> cache,
                               MiniBatchQueueOptions options, int64_t first_epoch,
                               int64_t first_batch) {
  check(cache.get(), options);
  state_ = std::make_unique<State>(std::move(cache), std::move(options), first_epoch, first_batch);
  state_->start();
}

MiniBatchQueue::MiniBatchQueue(const DatastorePtr& data, const std::vector<Shape>& inputs,
                               MiniBatchQueueOptions options, int64_t first_epoch,
                               int64_t first_batch)
    : MiniBatchQueue(MiniBatchRows::cache_of(data, inputs, options), options, first_epoch,
                     first_batch) {}

MiniBatchQueue::~MiniBatchQueue() = default;

bool MiniBatchQueue::has_data() const { return state_->taken_by_caller() < state_->end; }

std::shared_ptr<const MiniBatch> MiniBatchQueue::next() {
  State& state = *state_;
  require_in_queue(has_data(), "there is no further mini-batch after the last epoch",
                   "check has_data() before next(), or raise max_epochs");
  std::unique_ptr<MiniBatch> batch;
  bool wake = false;
  {
    const MutexLock lock(state.mutex);
    State::Slot& slot = state.slot_of(state.taken);
    TimeLimit look(State::between_looks);
    state.waited_for = !slot.ready;
    if (state.helped() && state.waited_for) state.wake_makers.notify_all();
    while (!slot.ready) {
      if (state.helped() && state.can_work(state.taken + 1)) {
        state.work(state.taken + 1);
      } else {
        state.wait_for_makers(look);
      }
    }
    state.waited_for = false;
    if (slot.error != nullptr) std::rethrow_exception(slot.error);
    batch = std::move(slot.batch);
    slot.ready = false;
    if (++state.taken - state.start_at >= state.per_epoch) state.passed.store(true);
    wake = state.can_work(state.makers_limit());
  }
  if (wake) state.wake_makers.notify_one();
  if (state.tensors) state.tensors->join(state.number_of(*batch));
  // Captures the list, because the mini-batch may outlive the queue.
  return {batch.release(), [list = state.free_list](const MiniBatch* dropped) {
            list->put(std::unique_ptr<MiniBatch>(const_cast<MiniBatch*>(dropped)));
          }};
}

bool MiniBatchQueue::help(bool ahead) {
  State& state = *state_;
  if (!state.helped()) return false;
  {
    const MutexLock lock(state.mutex);
    const int64_t limit = ahead ? state.end : state.taken + 1;
    if (state.work(limit)) return true;
    if (!state.beginning || state.begun >= limit) return false;
  }
  // Another thread will soon have work to share.
  for (int i = 0; i < 64; ++i) pause_processor();
  return true;
}

void MiniBatchQueue::reset(int64_t epoch) {
  require_in_queue(epoch >= 0 && epoch <= state_->options.max_epochs,
                   "cannot go to epoch " + std::to_string(epoch) + " of " +
                       std::to_string(state_->options.max_epochs));
  state_ = std::make_unique<State>(state_->cache, state_->options, epoch, 0);
  state_->start();
}

void MiniBatchQueue::shuffle(uint64_t seed) {
  MiniBatchQueueOptions options = state_->options;
  options.seed = seed;
  if (options.shuffle == Shuffle::never) options.shuffle = Shuffle::once;
  state_ = std::make_unique<State>(state_->cache, std::move(options), 0, 0);
  state_->start();
}

double MiniBatchQueue::seconds_each() const {
  const MutexLock lock(state_->mutex);
  return state_->made == 0 ? 0 : state_->seconds / static_cast<double>(state_->made);
}

std::vector<std::vector<ChannelSummary>> MiniBatchQueue::channels(ThreadPool& pool) {
  // Nothing else may read the cache meanwhile: this ends the threads, and the new ones wait.
  state_ = std::make_unique<State>(state_->cache, state_->options, epoch(), batch());
  std::exception_ptr failed;
  std::vector<std::vector<ChannelSummary>> all;
  try {
    all = state_->cache->fill(pool).channels();
  } catch (...) {
    failed = std::current_exception();
  }
  state_->start();
  if (failed) std::rethrow_exception(failed);
  return all;
}

int64_t MiniBatchQueue::batches_per_epoch() const { return state_->per_epoch; }
int64_t MiniBatchQueue::epoch() const { return state_->taken_by_caller() / state_->per_epoch; }
int64_t MiniBatchQueue::batch() const { return state_->taken_by_caller() % state_->per_epoch; }

}  // namespace lockstep
