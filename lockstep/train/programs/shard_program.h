// The computation of one shard of a mini-batch: a network and a loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>

#include "lockstep/base/bytes.h"
#include "lockstep/base/digest.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/profile/pass_times.h"
#include "lockstep/train/programs/shard_bundles.h"

namespace lockstep {

// Number of iterations whose results are kept: the one under way and the last two.
inline constexpr size_t kIterationSlots = 3;

// One computation of one shard.
struct ShardTask {
  int64_t iteration = 1;  // from 1; determines random numbers
  int64_t shard = 0;      // number in the mini-batch
  IndexRange rows;        // of the mini-batch
  int worker = 0;         // a thread, or a stream of the device
  // 0: the gradients are added to the sum. k: the k-th repetition by this process, for a check
  // only.
  int repeat = 0;
  std::byte* summary = nullptr;  // receives summary_bytes() bytes
  // On a device: memory for what the host sends and for what the device returns, with the bytes of
  // staging(). Pinned memory of the host, then memory of the device.
  std::byte *sent = nullptr, *returned = nullptr;
  std::byte *sent_there = nullptr, *returned_there = nullptr;
};

// Bytes that a shard sends to a device, and that the device returns; both multiples of 64.
struct ShardStaging {
  size_t sent = 0, returned = 0;
};

// Gradients of all parameters, in the program's gradient_layout(), in memory of its device. On a
// device they are valid when the work on `stream` is done.
struct ShardGradients {
  std::byte* data = nullptr;
  void* stream = nullptr;
};

// Computes losses and gradients of shards for an executor (shard_executor.h). The program gets its
// mini-batch before the iteration begins. One thread calls prepare(). Several workers call
// compute() at once, each with different tasks.
class ShardProgram {
 public:
  virtual ~ShardProgram() = default;

  // Compiles plans for shards of these sizes and allocates memory for `workers` workers. The first
  // call fixes the gradient layout.
  virtual void prepare(std::span<const IndexRange> shards, int workers) = 0;
  // Valid after prepare(). Stays the same while layout_version() does.
  virtual const GradientLayout& gradient_layout() const = 0;
  // A number that changes when gradient_layout() does.
  virtual uint64_t layout_version() const { return 0; }
  // The largest number of workers that can compute at the same time.
  virtual int most_workers() const { return std::numeric_limits<int>::max(); }

  // Bytes of a shard's summary: its results other than the gradients. 0: summaries vary in size;
  // then the program stores them, and encode_summaries() transfers them.
  virtual size_t summary_bytes() const = 0;
  // Whether an iteration may begin before the one before it is finished, on a device.
  virtual bool runs_ahead() const { return summary_bytes() > 0; }
  // On a device: what a shard with `rows` rows sends and returns.
  virtual ShardStaging staging(int64_t rows) const {
    (void)rows;
    return {};
  }

  // After prepare(), on the CPU: computes several shards together. Null if the program cannot.
  virtual BundledProgram* bundled() { return nullptr; }
  // Must be called after prepare() and before compute(), by one thread.
  virtual void prepare_shards() {}

  // On the CPU: begins the shards of an iteration that are computed one by one, of which this
  // process computes those with these numbers (a number may occur twice). Returns the number of
  // tasks that threads complete before the first shard. They call compute_before() for each one,
  // and then one thread calls end_before().
  virtual int64_t begin_shards(std::span<const IndexRange> shards,
                               std::span<const int64_t> numbers) {
    (void)shards, (void)numbers;
    return 0;
  }
  // The shards that task `task` computes for.
  virtual IndexRange shards_before(int64_t task) const {
    (void)task;
    return {};
  }
  virtual void compute_before(int64_t task, int64_t iteration, int thread) {
    (void)task, (void)iteration, (void)thread;
  }
  virtual void end_before() {}

  // On the CPU: computes the shard. On a device: adds the work to the worker's stream.
  virtual ShardGradients compute(const ShardTask& task) = 0;
  // On a device, after its work is done: completes the summary.
  virtual void complete(const ShardTask& task) { (void)task; }
  // Waits for all work that compute() added to streams.
  virtual void wait() {}
  // Makes the device's default stream wait for all work that compute() added.
  virtual void join() {}

  // Digest of the results that a check compares, other than the gradients.
  virtual Digest summary_digest(const ShardTask& task) const = 0;
  // For summaries that vary in size: encodes summaries of shards of this member, and decodes those
  // of another member.
  virtual Bytes encode_summaries(const IndexRange& shards) const {
    (void)shards;
    return {};
  }
  virtual void decode_summaries(const IndexRange& shards, const Bytes& bytes) {
    (void)shards, (void)bytes;
  }

  // Times the passes of the plans alone, if there is a profiler.
  virtual void time_passes(ThreadPool& pool, PassFloors& floors) { (void)pool, (void)floors; }
};

}  // namespace lockstep
