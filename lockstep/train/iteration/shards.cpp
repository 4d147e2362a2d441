#include "lockstep/train/iteration/shards.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {

std::vector<IndexRange> cut_into_shards(int64_t n, int64_t shard_size) {
  if (n < 1 || shard_size < 1) throw InvalidArgument("[training] an empty mini-batch or shard");
  const int64_t count = (n + shard_size - 1) / shard_size;
  std::vector<IndexRange> shards;
  int64_t first = 0;
  for (int64_t j = 0; j < count; ++j) {
    const int64_t size = n / count + (j < n % count ? 1 : 0);
    shards.push_back({first, size});
    first += size;
  }
  return shards;
}

std::vector<IndexRange> cut_into_bundles(const IndexRange& shards, int64_t rows, int threads) {
  // More rows do not make products faster, and their inputs leave the second cache.
  constexpr int64_t kMostRows = 128;
  const int64_t fair = (shards.count + threads - 1) / threads;
  const int64_t most = std::max<int64_t>(1, std::min(fair, kMostRows / rows));
  std::vector<IndexRange> bundles = cut_into_shards(shards.count, most);
  for (IndexRange& bundle : bundles) bundle.first += shards.first;
  return bundles;
}

void for_each_shard(
    ThreadPool& pool, int64_t count,
    const std::function<void(int64_t shard, int thread, const ArithmeticMode& mode)>& body,
    int threads, const std::function<void(int thread, const std::atomic<int>& busy)>& rest) {
  threads = threads == 0 ? pool.used() : std::min(threads, pool.used());
  std::atomic<int64_t> next{threads};
  std::atomic<int> busy{threads};
  const auto compute = [&](int thread) {
    const ArithmeticMode mode;
    for (int64_t j = thread; j < count; j = next++) {
      try {
        body(j, thread, mode);
      } catch (...) {
        next = count;  // the other threads stop after their present shard
        --busy;        // and do not wait for this thread
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

void for_each_in_place(ThreadPool& pool, int64_t count,
                       const std::function<void(int64_t i, int thread)>& body,
                       const std::function<void(int thread, const std::atomic<int>& busy)>& rest) {
  struct alignas(64) Begun {
    std::atomic<int64_t> indices{0};
  };
  const int threads = pool.used();
  std::vector<Begun> begun(static_cast<size_t>(threads));
  std::atomic<int> busy{threads};
  pool.run([&](int thread) {
    for (int k = 0; k < threads; ++k) {
      const int owner = (thread + k) % threads;
      std::atomic<int64_t>& next = begun[static_cast<size_t>(owner)].indices;
      for (int64_t i = owner + threads * next++; i < count; i = owner + threads * next++) {
        try {
          body(i, thread);
        } catch (...) {
          --busy;  // the other threads do not wait for this thread
          throw;
        }
      }
    }
    --busy;
    if (rest) rest(thread, busy);
  });
}

}  // namespace lockstep
