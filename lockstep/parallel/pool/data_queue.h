// Queues for values between a client and the running tasks of its pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "lockstep/base/bytes.h"
#include "lockstep/parallel/messages/serialize.h"
#include "lockstep/parallel/pool/pool.h"

namespace lockstep {

namespace detail {

// In a task: send to a queue of the client, and receive the next value for this worker. Throw
// InvalidArgument outside of tasks.
void send_to_client(uint64_t queue, const Bytes& message);
std::optional<Bytes> receive_from_client(uint64_t queue, double seconds);

// Messages for one queue, which is closed at the end of its life.
class QueueInbox {
 public:
  // Throws InvalidArgument if `most` is 0.
  QueueInbox(Pool& pool, size_t most);
  ~QueueInbox();
  uint64_t number() const;
  void after_each(std::function<void(const Bytes&)> callback);
  std::optional<Bytes> poll(double seconds);
  size_t waiting() const;
  bool finish(double seconds);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A number for a queue to the pool's tasks, and the sending of a message to one worker's.
uint64_t next_queue(PoolCore& pool);
bool send_to_worker(PoolCore& pool, int worker, uint64_t queue, const Bytes& message,
                    double seconds);

}  // namespace detail

// The sending end, passed to a task as an argument. Thread-safe.
template <class T>
class QueueSender {
 public:
  explicit QueueSender(uint64_t queue = 0) : queue_(queue) {}

  // Once it returns, the value will be delivered even if this worker dies. Values of one sender
  // arrive in order. Waits while the queue is full (see DataQueue). Throws InvalidArgument outside
  // of tasks, and Timeout if the client takes nothing for ten minutes.
  void send(const T& value) const { detail::send_to_client(queue_, encode(value)); }

  template <class Archive>
  void serialize(Archive& archive) {
    archive(queue_);
  }

 private:
  uint64_t queue_;
};

// A queue from tasks to their client, with a callback for each value. At most `most` values wait
// here, and a megabyte of values in each worker process. Senders wait while the queue is full.
// Thread-safe. The destructor waits for a running call and drops the waiting values.
template <class T>
class DataQueue {
 public:
  explicit DataQueue(Pool& pool, size_t most = 10000)
      : inbox_(pool, most), sender_(inbox_.number()) {}

  const QueueSender<T>& sender() const { return sender_; }
  // Calls f(value) for each value, one after the other, in the pool's callback thread. Values that
  // arrived earlier wait for it. Exceptions of f are dropped. Objects that f uses must outlive the
  // queue: declare them before it.
  void after_each(std::function<void(const T&)> f) {
    inbox_.after_each([f = std::move(f)](const Bytes& message) { f(decode<T>(message)); });
  }
  // Waits until f was called for all values that have arrived. All values of a task have arrived
  // once its future has ended. False at the limit. Must not be called from callbacks.
  bool finish(double seconds = 600) { return inbox_.finish(seconds); }

 private:
  detail::QueueInbox inbox_;
  QueueSender<T> sender_;
};

// The same queue for a client that polls. Thread-safe.
template <class T>
class PollableDataQueue {
 public:
  explicit PollableDataQueue(Pool& pool, size_t most = 10000)
      : inbox_(pool, most), sender_(inbox_.number()) {}

  const QueueSender<T>& sender() const { return sender_; }
  // The next value; none at the limit.
  std::optional<T> poll(double seconds = 0) {
    const auto message = inbox_.poll(seconds);
    if (!message) return std::nullopt;
    return decode<T>(*message);
  }
  // Number of waiting values.
  size_t size() const { return inbox_.waiting(); }

 private:
  detail::QueueInbox inbox_;
  QueueSender<T> sender_;
};

// The receiving end, passed to a task as an argument. Thread-safe.
template <class T>
class QueueReceiver {
 public:
  explicit QueueReceiver(uint64_t queue = 0) : queue_(queue) {}

  // The next value for this worker; none at the limit, or when the task is cancelled. Throws
  // InvalidArgument outside of tasks.
  std::optional<T> poll(double seconds = 0) const {
    const auto message = detail::receive_from_client(queue_, seconds);
    if (!message) return std::nullopt;
    return decode<T>(*message);
  }

  template <class Archive>
  void serialize(Archive& archive) {
    archive(queue_);
  }

 private:
  uint64_t queue_;
};

// A queue from a client to the tasks of one worker. Values that one task leaves are received by the
// next one on that worker. Values for a lost worker are lost with it. Thread-safe.
template <class T>
class WorkerQueue {
 public:
  explicit WorkerQueue(Pool& pool) : pool_(pool.core()), queue_(detail::next_queue(*pool_)) {}

  QueueReceiver<T> receiver() const { return QueueReceiver<T>(queue_); }
  // Waits while the worker's tasks take no values. A worker process holds up to a quarter of a
  // megabyte of values of all queues, a worker thread up to a thousand values of each queue. False
  // at the limit, and if the worker is lost.
  bool send(int worker, const T& value, double seconds = 60) {
    return detail::send_to_worker(*pool_, worker, queue_, encode(value), seconds);
  }

 private:
  std::shared_ptr<detail::PoolCore> pool_;
  uint64_t queue_;
};

}  // namespace lockstep
