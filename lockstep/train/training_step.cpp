#include "lockstep/train/training_step.h"

#include <atomic>

#include "lockstep/base/error.h"
#include "lockstep/train/queued_step.h"
#include "lockstep/train/sharded_step.h"

namespace lockstep {

std::vector<ShardRange> cut_into_shards(int64_t n, int64_t shard_size) {
  if (n < 1 || shard_size < 1) throw InvalidArgument("[training] an empty mini-batch or shard");
  const int64_t count = (n + shard_size - 1) / shard_size;
  std::vector<ShardRange> shards;
  int64_t first = 0;
  for (int64_t j = 0; j < count; ++j) {
    const int64_t size = n / count + (j < n % count ? 1 : 0);
    shards.push_back({first, size});
    first += size;
  }
  return shards;
}

void for_each_shard(
    ThreadPool& pool, int64_t count,
    const std::function<void(int64_t shard, int thread, const ArithmeticMode& mode)>& body,
    int threads, const std::function<void(int thread, const std::atomic<int>& busy)>& rest) {
  if (threads == 0) threads = pool.size();
  std::atomic<int64_t> next{threads};
  std::atomic<int> busy{threads};
  const auto compute = [&](int thread) {
    const ArithmeticMode mode;
    for (int64_t j = thread; j < count; j = next++) {
      try {
        body(j, thread, mode);
      } catch (...) {
        next = count;  // the others stop after the shard they are at
        --busy;        // and wait for nobody who has none
        throw;
      }
    }
  };
  pool.run([&](int thread) {
    if (thread >= threads) return;
    compute(thread);
    --busy;
    if (rest) rest(thread, busy);
  });
}

void TrainingStep::begin(const MiniBatch&, const UpdateScalars&) {
  throw Unsupported("[training] this step begins no iteration ahead");
}

FinishedIteration TrainingStep::finish() {
  throw Unsupported("[training] this step begins no iteration ahead");
}

std::unique_ptr<TrainingStep> make_training_step(Network& network, Solver& solver, ThreadPool& pool,
                                                 const TrainingOptions& options, DType inputs,
                                                 StepLedger* ledger) {
  if (network.device() == Device{}) {
    return std::make_unique<ShardedStep>(network, solver, pool, options, inputs, ledger);
  }
  if (ledger) {
    throw Unsupported("[training] a profile is taken on the CPU only", "set device = \"cpu\"");
  }
  return std::make_unique<QueuedStep>(network, solver, options, inputs);
}

}  // namespace lockstep
