// Cuts a mini-batch into shards and spreads them over threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/base/threads/thread_pool.h"

namespace lockstep {

// V = ceil(n / shard_size) shards. Their sizes differ by at most one, larger ones first.
std::vector<IndexRange> cut_into_shards(int64_t n, int64_t shard_size);

// Divides consecutive shards of `rows` rows or fewer into bundles that threads compute together, at
// least one for each thread if there are enough shards. The bits do not depend on the bundles.
std::vector<IndexRange> cut_into_bundles(const IndexRange& shards, int64_t rows, int threads);

// Runs body(shard, thread, mode) for every shard in [0, count). Each thread uses the law's
// floating-point mode, which the body checks at its end. The first `threads` threads of the pool
// (0: all that it uses) each begin with one shard; the remaining shards go to the next free thread.
// After an exception, which is rethrown, no further shard is begun. If `rest` is given, each of
// these threads calls it in the same mode when there is no further shard for it; `busy` is the
// number of threads that still compute shards.
void for_each_shard(
    ThreadPool& pool, int64_t count,
    const std::function<void(int64_t shard, int thread, const ArithmeticMode& mode)>& body,
    int threads = 0,
    const std::function<void(int thread, const std::atomic<int>& busy)>& rest = {});

// Runs body(i, thread) for [0, count). A thread has the same indices in every call, so that their
// memory stays in its caches, until it takes over some that another thread has not begun. After an
// exception, which is rethrown, the other threads go on. `rest`: as above.
void for_each_in_place(
    ThreadPool& pool, int64_t count, const std::function<void(int64_t i, int thread)>& body,
    const std::function<void(int thread, const std::atomic<int>& busy)>& rest = {});

}  // namespace lockstep
