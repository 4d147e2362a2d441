// Values on their way between a client and the tasks of its pool while these run.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/parallel/pool/pool.h"

namespace lockstep {

// What a task sends by: an argument of the task. Thread-safe.
template <class T>
class QueueSender {
 public:
  explicit QueueSender(uint64_t queue = 0) : queue_(queue) {}

  // When it returns, the value will be delivered, whatever becomes of this worker. Values of one
  // sender arrive in order. Waits while the queue is full (see DataQueue). Throws InvalidArgument
  // outside of tasks, Timeout where the client takes nothing for ten minutes.
  void send(const T& value) const {
    TaskContext* const context = TaskContext::current();
    if (context == nullptr) throw InvalidArgument("[queue] only tasks of a pool send by this");
    context->send(queue_, encode(value));
  }

  template <class Archive>
  void serialize(Archive& archive) {
    archive(queue_);
  }

 private:
  uint64_t queue_;
};

namespace detail {

class MessageInbox final : public Inbox, public std::enable_shared_from_this<MessageInbox> {
 public:
  // Throws InvalidArgument where `most` is 0.
  MessageInbox(std::shared_ptr<PoolCore> pool, size_t most) : pool_(std::move(pool)), most_(most) {
    if (most < 1) throw InvalidArgument("[queue] most must be at least 1 value");
  }

  bool take(Bytes& message, bool last) override;
  // Calls it for each message that is there and comes, in the pool's thread of callbacks.
  void after_each(std::function<void(const Bytes&)> callback);
  std::optional<Bytes> poll(const TimeLimit& limit);
  size_t waiting() const;
  // Until nothing waits and no call runs; false at the limit.
  bool finish(const TimeLimit& limit);
  // No call runs afterwards, and none comes: except where a call closes it.
  void close();

 private:
  void call_back();

  const std::shared_ptr<PoolCore> pool_;
  const size_t most_;
  mutable std::mutex mutex_;
  std::condition_variable came_, called_;
  std::deque<Bytes> messages_;
  std::function<void(const Bytes&)> callback_;
  std::optional<std::thread::id> calling_;
};

// An inbox that closes when its queue goes.
class OwnInbox {
 public:
  OwnInbox(std::shared_ptr<PoolCore> pool, size_t most)
      : pool_(std::move(pool)),
        inbox_(std::make_shared<MessageInbox>(pool_, most)),
        number_(pool_->add_inbox(inbox_)) {}
  ~OwnInbox() {
    pool_->remove_inbox(number_);
    inbox_->close();
    pool_->room();
  }
  OwnInbox(const OwnInbox&) = delete;
  OwnInbox& operator=(const OwnInbox&) = delete;
  MessageInbox* operator->() const { return inbox_.get(); }
  uint64_t number() const { return number_; }

 private:
  const std::shared_ptr<PoolCore> pool_;
  const std::shared_ptr<MessageInbox> inbox_;
  const uint64_t number_;
};

}  // namespace detail

// From tasks to their client, which is called for each value. At most `most` values wait here for
// their turn, and a megabyte of them with each worker process; who sends more waits. Thread-safe.
// The destructor waits for a call that runs, and drops what waits.
template <class T>
class DataQueue {
 public:
  explicit DataQueue(Pool& pool, size_t most = 10000)
      : inbox_(pool.core(), most), sender_(inbox_.number()) {}

  const QueueSender<T>& sender() const { return sender_; }
  // Calls f(value) for each, one after the other, in the pool's thread of callbacks. Values that
  // came before wait for it. What f throws is dropped. What f uses must live as long as the queue:
  // declare it before.
  void after_each(std::function<void(const T&)> f) {
    inbox_->after_each([f = std::move(f)](const Bytes& message) { f(decode<T>(message)); });
  }
  // Waits until f was called for all values that have come: those of a task have when its future
  // has ended. False at the limit. Not from callbacks.
  bool finish(double seconds = 600) { return inbox_->finish(TimeLimit(seconds)); }

 private:
  detail::OwnInbox inbox_;
  QueueSender<T> sender_;
};

// The same for a client that asks. Thread-safe.
template <class T>
class PollableDataQueue {
 public:
  explicit PollableDataQueue(Pool& pool, size_t most = 10000)
      : inbox_(pool.core(), most), sender_(inbox_.number()) {}

  const QueueSender<T>& sender() const { return sender_; }
  // The next value; none at the limit.
  std::optional<T> poll(double seconds = 0) {
    const auto message = inbox_->poll(TimeLimit(seconds));
    if (!message) return std::nullopt;
    return decode<T>(*message);
  }
  // Values that wait here.
  size_t size() const { return inbox_->waiting(); }

 private:
  detail::OwnInbox inbox_;
  QueueSender<T> sender_;
};

// What a task receives by: an argument of the task. Thread-safe.
template <class T>
class QueueReceiver {
 public:
  explicit QueueReceiver(uint64_t queue = 0) : queue_(queue) {}

  // The next value for this worker; none at the limit, or when the task is cancelled. Throws
  // InvalidArgument outside of tasks.
  std::optional<T> poll(double seconds = 0) const {
    TaskContext* const context = TaskContext::current();
    if (context == nullptr) throw InvalidArgument("[queue] only tasks of a pool receive by this");
    const auto message = context->receive(queue_, TimeLimit(seconds));
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

// From a client to the tasks of one worker. What a task leaves is for the next one there. Values
// for a worker that is lost are lost with it. Thread-safe.
template <class T>
class WorkerQueue {
 public:
  explicit WorkerQueue(Pool& pool) : pool_(pool.core()), queue_(pool_->next_number()) {}

  QueueReceiver<T> receiver() const { return QueueReceiver<T>(queue_); }
  // Waits while the worker's tasks take none: a quarter of a megabyte of all queues may wait there,
  // in a thread a thousand values of each. False at the limit, and where the worker is lost.
  bool send(int worker, const T& value, double seconds = 60) {
    return pool_->send_to(worker, queue_, encode(value), TimeLimit(seconds));
  }

 private:
  std::shared_ptr<detail::PoolCore> pool_;
  uint64_t queue_;
};

}  // namespace lockstep
