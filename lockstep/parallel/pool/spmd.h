// A block of code that all workers of a pool run at once, each knowing its index, and that can talk
// to each other (single program, multiple data).
//
// What such a block computes depends on the number of workers wherever the work is divided by it:
// a sum over workers of sums over their parts rounds otherwise for another number. For a given
// number it is always the same. sharded_value_and_gradient() (train/custom_loop.h) divides a
// mini-batch into shards instead, which gives the same bits for any number of workers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/parallel/comm/group.h"
#include "lockstep/parallel/comm/tree.h"
#include "lockstep/parallel/pool/loops.h"
#include "lockstep/parallel/pool/pool.h"

namespace lockstep {

struct SpmdOptions {
  // Seconds that a worker may wait for others in one call; then Timeout, which names them. The
  // block begins when all workers are free, for which there is no limit.
  double limit = 600;
};

namespace detail {

struct SpmdTicket {
  SharedPlace group, mail;
  int size = 1;
  double limit = 600;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(group, mail, size, limit);
  }
};

}  // namespace detail

// What a worker has in a block. Collectives are called by all workers, in the same order. One
// thread at a time. All wait; all throw Timeout at the limit, WorkerLost where the block has ended
// because of another worker.
class Spmd {
 public:
  explicit Spmd(const detail::SpmdTicket& ticket);
  ~Spmd();

  int index() const;  // from 0
  int size() const;

  // The workers as a group, for what works over groups, such as ShardGroup.
  Group& group();
  // Waits for all.
  void barrier();
  // What each says, by index.
  template <class T>
  std::vector<T> gather(const T& value) {
    std::vector<T> all;
    for (const Bytes& bytes : gather_bytes(encode(value))) all.push_back(decode<T>(bytes));
    return all;
  }
  // All vectors, one behind the other by index.
  template <class T>
  std::vector<T> cat(const std::vector<T>& values) {
    std::vector<T> all;
    for (std::vector<T>& part : gather(values)) {
      all.insert(all.end(), std::make_move_iterator(part.begin()),
                 std::make_move_iterator(part.end()));
    }
    return all;
  }
  // What the worker `root` says.
  template <class T>
  T broadcast(const T& value, int root = 0) {
    return decode<T>(broadcast_bytes(index() == root ? encode(value) : Bytes(), root));
  }
  // combine(combine(...), ...) over the values by index, by the fixed tree (comm/tree.h).
  template <class T, class Combine>
  T reduce(const T& value, Combine combine) {
    std::vector<T> all = gather(value);
    return detail::reduce_tree<T>(
        0, size(), [&](int64_t i) { return std::move(all[static_cast<size_t>(i)]); }, combine);
  }
  // The sum of numbers, or of vectors of them, element by element.
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

  // From one to another. Messages of one sender with one tag arrive in order. send() waits where
  // the receiver has a quarter of a megabyte waiting and takes none.
  template <class T>
  void send(int to, const T& value, int tag = 0) {
    send_bytes(to, tag, encode(value));
  }
  template <class T>
  T receive(int from, int tag = 0) {
    return decode<T>(receive_bytes(from, tag));
  }
  // Sends to one and receives from one, without waiting for each other.
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
  SpmdMemory(std::shared_ptr<PoolCore> pool, int size, double limit);
  ~SpmdMemory();
  const SpmdTicket& ticket() const { return ticket_; }
  // Ends the block for all; the first one that calls it is the reason. Thread-safe.
  void end(int index);
  int reason() const { return reason_; }

 private:
  const std::shared_ptr<PoolCore> pool_;
  SpmdTicket ticket_;
  SharedRegion group_, mail_;
  std::atomic<int> reason_{-1};
};

}  // namespace detail

// Runs f(block, arguments...) on every worker of the pool at once; begins when all are free.
// Returns what they return, by index (nothing for void). If one throws, or is lost, the block ends
// for all: waiting ones at once, others as by Future::cancel(); the error is that of the first.
// Throws InvalidArgument for a limit that is not above 0. Thread-safe.
template <class F, class... A>
auto spmd_with(const SpmdOptions& options, Pool& pool, F, const A&... arguments) {
  using R = std::invoke_result_t<F, Spmd&, detail::Sent<A>...>;
  const int size = pool.size();
  const auto memory = std::make_shared<detail::SpmdMemory>(pool.core(), size, options.limit);
  const auto call = make_call(
      [](const detail::SpmdTicket& ticket, const detail::Sent<A>&... a) {
        Spmd block(ticket);
        return F{}(block, a...);
      },
      memory->ticket(), arguments...);
  std::vector<Future<R>> futures;
  {
    const std::lock_guard one_block(pool.core()->blocks);
    try {
      for (int i = 0; i < size; ++i) {
        futures.push_back(pool.start(call, {}, i, [memory, i] { memory->end(i); }));
      }
    } catch (...) {
      // The pool has fewer workers by now: those who have begun do not wait for the others.
      memory->end(static_cast<int>(futures.size()));
      cancel_all(futures);
      throw;
    }
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
