// Loops whose passes are distributed in chunks to the free workers of a pool. Results do not depend
// on the distribution. Thread-safe. Functions have no state (Pool::submit()). Arguments are sent
// with every chunk: keep large values on the workers instead (worker_value.h).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/pool/pool.h"

namespace lockstep {

struct LoopOptions {
  int64_t chunk = 0;  // passes in each chunk; 0: about four chunks for each worker
  SubmitOptions submit = {};
};

namespace detail {

int64_t chunk_of(int64_t n, int64_t wanted, int workers);
// Gives the pass its own random numbers. Throws Cancelled if the loop's task is asked to stop.
void begin_pass(int64_t index);

template <class F, class... A>
auto pass(F f, int64_t index, const A&... arguments) {
  begin_pass(index);
  return f(index, arguments...);
}

// Number of leaves in the left half of the fixed tree over n leaves: the largest power of two below
// n, for n >= 2.
int64_t left_leaves(int64_t n);

// combine() over the results of leaf(i) for i in [first, first + count), by the fixed tree.
template <class R, class Leaf, class Combine>
R reduce_tree(int64_t first, int64_t count, const Leaf& leaf, const Combine& combine) {
  if (count == 1) return leaf(first);
  const int64_t left = left_leaves(count);
  R a = reduce_tree<R>(first, left, leaf, combine);
  R b = reduce_tree<R>(first + left, count - left, leaf, combine);
  return combine(std::move(a), std::move(b));
}

// Waits in order, so that the first error is that of the lowest index. Cancels the rest after an
// error.
template <class R, class Use>
void fetch_in_order(const std::vector<Future<R>>& futures, Use use) {
  for (size_t i = 0; i < futures.size(); ++i) {
    try {
      use(futures[i], i);
    } catch (...) {
      for (size_t k = i + 1; k < futures.size(); ++k) futures[k].cancel();
      throw;
    }
  }
}

}  // namespace detail

// Runs f(index, arguments...) for every index in [0, n). Throws InvalidArgument for n < 0. Throws
// the error of the lowest index that failed; no further pass begins after an error.
template <class F, class... A>
void parallel_for_with(const LoopOptions& options, Pool& pool, int64_t n, F f,
                       const A&... arguments) {
  const int64_t chunk = detail::chunk_of(n, options.chunk, pool.size());
  std::vector<Future<void>> futures;
  for (int64_t first = 0; first < n; first += chunk) {
    futures.push_back(pool.submit_with(
        options.submit,
        [](int64_t from, int64_t to, const detail::Sent<A>&... a) {
          for (int64_t i = from; i < to; ++i) detail::pass(detail::function_of_type<F>(), i, a...);
        },
        first, std::min(n, first + chunk), arguments...));
  }
  detail::fetch_in_order(futures, [](const Future<void>& done, size_t) { done.get(); });
  static_cast<void>(f);
}

template <class F, class... A>
void parallel_for(Pool& pool, int64_t n, F f, const A&... arguments) {
  parallel_for_with({}, pool, n, f, arguments...);
}

// The results of f(index, arguments...) for all indexes in [0, n), in order. Throws like
// parallel_for().
template <class F, class... A>
auto parallel_map_with(const LoopOptions& options, Pool& pool, int64_t n, F f,
                       const A&... arguments) {
  using R = std::invoke_result_t<F, int64_t, detail::Sent<A>...>;
  const int64_t chunk = detail::chunk_of(n, options.chunk, pool.size());
  std::vector<Future<std::vector<R>>> futures;
  for (int64_t first = 0; first < n; first += chunk) {
    futures.push_back(pool.submit_with(
        options.submit,
        [](int64_t from, int64_t to, const detail::Sent<A>&... a) {
          std::vector<R> results;
          for (int64_t i = from; i < to; ++i)
            results.push_back(detail::pass(detail::function_of_type<F>(), i, a...));
          return results;
        },
        first, std::min(n, first + chunk), arguments...));
  }
  std::vector<R> all;
  detail::fetch_in_order(futures, [&](const Future<std::vector<R>>& done, size_t) {
    for (R& result : done.get()) all.push_back(std::move(result));
  });
  static_cast<void>(f);
  return all;
}

template <class F, class... A>
auto parallel_map(Pool& pool, int64_t n, F f, const A&... arguments) {
  return parallel_map_with({}, pool, n, f, arguments...);
}

// combine(combine(...), ...) over the results of f(index, arguments...) for all indexes in [0, n),
// n >= 1, by the fixed tree, which splits n leaves at the largest power of two below n. The result
// is the same for any number of workers and any chunk, even if combine rounds. Throws like
// parallel_for().
template <class F, class C, class... A>
auto parallel_reduce_with(const LoopOptions& options, Pool& pool, int64_t n, F f, C combine,
                          const A&... arguments) {
  using R = std::invoke_result_t<F, int64_t, detail::Sent<A>...>;
  if (n < 1) throw InvalidArgument("[pool] a reduction of " + std::to_string(n) + " passes");
  // Blocks whose size is a power of two are whole subtrees.
  const auto chunk = static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(detail::chunk_of(n, options.chunk, pool.size()))));
  std::vector<Future<R>> futures;
  for (int64_t first = 0; first < n; first += chunk) {
    futures.push_back(pool.submit_with(
        options.submit,
        [](int64_t from, int64_t to, const detail::Sent<A>&... a) {
          return detail::reduce_tree<R>(
              from, to - from,
              [&](int64_t i) { return detail::pass(detail::function_of_type<F>(), i, a...); },
              detail::function_of_type<C>());
        },
        first, std::min(n, first + chunk), arguments...));
  }
  std::vector<R> blocks;
  detail::fetch_in_order(futures,
                         [&](const Future<R>& done, size_t) { blocks.push_back(done.get()); });
  static_cast<void>(f);
  return detail::reduce_tree<R>(
      0, static_cast<int64_t>(blocks.size()),
      [&](int64_t i) { return std::move(blocks[static_cast<size_t>(i)]); }, combine);
}

template <class F, class C, class... A>
auto parallel_reduce(Pool& pool, int64_t n, F f, C combine, const A&... arguments) {
  return parallel_reduce_with({}, pool, n, f, combine, arguments...);
}

}  // namespace lockstep
