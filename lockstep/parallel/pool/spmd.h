// Blocks of code that all workers of a pool run at once (single program, multiple data). Each
// worker knows its index and can communicate with the others, on the nodes of a cluster as well.
//
// The result of a block depends on the number of workers if the work is divided by that
// number: a sum over workers of sums over their parts rounds differently for another number. For a
// given number the result is always the same. sharded_value_and_gradient() (train/custom_loop.h)
// divides a mini-batch into shards instead, which gives the same bits for any number of workers.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/bytes.h"
#include "lockstep/base/error.h"
#include "lockstep/parallel/pool/loops.h"
#include "lockstep/parallel/pool/pool.h"

namespace lockstep {

struct SpmdOptions {
  // Seconds that a worker may wait for others in one call; then it throws Timeout with their names.
  // The block begins when all workers are free, for which there is no limit.
  double limit = 600;
};

class Group;  // workers that exchange bytes

namespace detail {

// Where the block's memory lies, and its limit.
struct SpmdTicket {
  Bytes content;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(content);
  }
};

}  // namespace detail

// A worker's interface to the block. All workers must call the collectives in the same order. One
// thread at a time. Calls that wait throw Timeout at the limit, and WorkerLost if the block has
// ended because of another worker.
class Spmd {
 public:
  explicit Spmd(const detail::SpmdTicket& ticket);
  ~Spmd();

  int index() const;  // from 0
  int size() const;

  // The workers as a group, for code that works on groups, such as ShardGroup.
  Group& group();
  // Waits for all workers.
  void barrier();
  // The values of all workers, by index.
  template <class T>
  std::vector<T> gather(const T& value) {
    std::vector<T> all;
    for (const Bytes& bytes : gather_bytes(encode(value))) all.push_back(decode<T>(bytes));
    return all;
  }
  // The vectors of all workers, concatenated in order of index.
  template <class T>
  std::vector<T> cat(const std::vector<T>& values) {
    std::vector<T> all;
    for (std::vector<T>& part : gather(values)) {
      all.insert(all.end(), std::make_move_iterator(part.begin()),
                 std::make_move_iterator(part.end()));
    }
    return all;
  }
  // The value of the worker `root`.
  template <class T>
  T broadcast(const T& value, int root = 0) {
    return decode<T>(broadcast_bytes(index() == root ? encode(value) : Bytes(), root));
  }
  // combine(combine(...), ...) over the values by index, by the fixed tree as parallel_reduce().
  template <class T, class Combine>
  T reduce(const T& value, Combine combine) {
    std::vector<T> all = gather(value);
    return detail::reduce_tree<T>(
        0, size(), [&](int64_t i) { return std::move(all[static_cast<size_t>(i)]); }, combine);
  }
  // The sum of numbers, or of vectors of numbers, element by element.
  template <class T>
  T plus(const T& value) {
    return reduce(value, [](T a, const T& b) {
      if constexpr (std::is_arithmetic_v<T>) {
        return static_cast<T>(a + b);
      } else {
        if (a.size() != b.size()) {
          throw InvalidArgument("[spmd] plus: vectors of " + std::to_string(a.size()) + " and " +
                                std::to_string(b.size()) + " elements");
        }
        for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
        return a;
      }
    });
  }

  // Point-to-point messages. Messages of one sender with one tag arrive in order. On one machine
  // send() waits while a quarter of a megabyte is waiting for the receiver. Between hosts messages
  // go through the client, which keeps them until the receiver has room.
  template <class T>
  void send(int to, const T& value, int tag = 0) {
    send_bytes(to, tag, encode(value));
  }
  template <class T>
  T receive(int from, int tag = 0) {
    return decode<T>(receive_bytes(from, tag));
  }
  // Sends to one worker and receives from another. Workers that send to each other do not block
  // each other.
  template <class T>
  T send_receive(int to, const T& value, int from, int tag = 0) {
    send(to, value, tag);
    return receive<T>(from, tag);
  }
  // Whether receive() would return at once.
  bool probe(int from, int tag = 0);

 private:
  std::vector<Bytes> gather_bytes(const Bytes& mine);
  Bytes broadcast_bytes(Bytes mine, int root);
  void send_bytes(int to, int tag, const Bytes& content);
  Bytes receive_bytes(int from, int tag);

  struct State;
  std::unique_ptr<State> state_;
};

namespace detail {

// The memory of a block, on the client's side.
class SpmdMemory {
 public:
  SpmdMemory(Pool& pool, int size, double limit);
  ~SpmdMemory();
  const SpmdTicket& ticket() const;
  // Calls start(index) for each worker. Tasks of two blocks reach all workers in the same order.
  // Ends the block and rethrows if a call throws.
  void start_all(const std::function<void(int)>& start);
  // Ends the block for all workers. The first caller's index becomes the reason. Thread-safe.
  void end(int index);
  // -1: the block has not been ended.
  int reason() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace detail

// Runs f(block, arguments...) on every worker of the pool at once; begins when all are free. `f`
// has no state (Pool::submit()).
// Returns the workers' results by index (nothing for void). If a worker throws or is lost, the
// block ends for all: workers that wait in a call end at once, others are cancelled as by
// Future::cancel(). The error of the first one is rethrown. Throws InvalidArgument for a limit that
// is not above 0. Thread-safe.
template <class F, class... A>
auto spmd_with(const SpmdOptions& options, Pool& pool, F, const A&... arguments) {
  using R = std::invoke_result_t<F, Spmd&, detail::Sent<A>...>;
  const int size = pool.size();
  const auto memory = std::make_shared<detail::SpmdMemory>(pool, size, options.limit);
  const auto call = make_call(
      [](const detail::SpmdTicket& ticket, const detail::Sent<A>&... a) {
        Spmd block(ticket);
        return detail::function_of_type<F>()(block, a...);
      },
      memory->ticket(), arguments...);
  std::vector<Future<R>> futures;
  try {
    memory->start_all([&](int i) {
      futures.push_back(pool.start(call, {}, i, [memory, i] { memory->end(i); }));
    });
  } catch (...) {
    cancel_all(futures);
    throw;
  }
  FetchNext<R> next(futures);
  while (const auto i = next.next()) {
    if (memory->reason() >= 0) cancel_all(futures);
  }
  if (memory->reason() >= 0) futures[static_cast<size_t>(memory->reason())].get();
  return fetch_all(futures);
}

template <class F, class... A>
auto spmd(Pool& pool, F f, const A&... arguments) {
  return spmd_with({}, pool, f, arguments...);
}

}  // namespace lockstep
