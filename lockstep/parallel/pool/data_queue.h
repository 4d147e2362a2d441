// Queues for values between a client and the running tasks of its pool.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/parallel/pool/pool.h"

namespace lockstep {

// The sending end, passed to a task as an argument. Thread-safe.
template <class T>
class QueueSender {
 public:
  explicit QueueSender(uint64_t queue = 0) : queue_(queue) {}

  // Once it returns, the value will be delivered even if this worker dies. Values of one sender
  // arrive in order. Waits while the queue is full (see DataQueue). Throws InvalidArgument outside
  // of tasks, and Timeout if the client takes nothing for ten minutes.
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
  // Throws InvalidArgument if `most` is 0.
  MessageInbox(std::shared_ptr<PoolCore> pool, size_t most) : pool_(std::move(pool)), most_(most) {
    if (most < 1) throw InvalidArgument("[queue] most must be at least 1 value");
  }

  bool take(Bytes& message, bool last) override;
  // Calls it for each waiting and each future message, in the pool's callback thread.
  void after_each(std::function<void(const Bytes&)> callback);
  std::optional<Bytes> poll(const TimeLimit& limit);
  size_t waiting() const;
  // Waits until no message is waiting and no call is running; false at the limit.
  bool finish(const TimeLimit& limit);
  // No call runs afterwards and none follows. Exception: when a call itself closes the inbox, that
  // call still runs.
  void close();

 private:
  void call_back();

  const std::shared_ptr<PoolCore> pool_;
  const size_t most_;
  mutable Mutex mutex_;
  ConditionVariable came_, called_;
  std::deque<Bytes> messages_ LOCKSTEP_GUARDED_BY(mutex_);
  std::function<void(const Bytes&)> callback_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<std::thread::id> calling_ LOCKSTEP_GUARDED_BY(mutex_);
};

// An inbox that is closed when its queue is destroyed.
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

// A queue from tasks to their client, with a callback for each value. At most `most` values wait
// here, and a megabyte of values in each worker process. Senders wait while the queue is full.
// Thread-safe. The destructor waits for a running call and drops the waiting values.
template <class T>
class DataQueue {
 public:
  explicit DataQueue(Pool& pool, size_t most = 10000)
      : inbox_(pool.core(), most), sender_(inbox_.number()) {}

  const QueueSender<T>& sender() const { return sender_; }
  // Calls f(value) for each value, one after the other, in the pool's callback thread. Values that
  // arrived earlier wait for it. Exceptions of f are dropped. Objects that f uses must outlive the
  // queue: declare them before it.
  void after_each(std::function<void(const T&)> f) {
    inbox_->after_each([f = std::move(f)](const Bytes& message) { f(decode<T>(message)); });
  }
  // Waits until f was called for all values that have arrived. All values of a task have arrived
  // once its future has ended. False at the limit. Must not be called from callbacks.
  bool finish(double seconds = 600) { return inbox_->finish(TimeLimit(seconds)); }

 private:
  detail::OwnInbox inbox_;
  QueueSender<T> sender_;
};

// The same queue for a client that polls. Thread-safe.
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
  // Number of waiting values.
  size_t size() const { return inbox_->waiting(); }

 private:
  detail::OwnInbox inbox_;
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

// A queue from a client to the tasks of one worker. Values that one task leaves are received by the
// next one on that worker. Values for a lost worker are lost with it. Thread-safe.
template <class T>
class WorkerQueue {
 public:
  explicit WorkerQueue(Pool& pool) : pool_(pool.core()), queue_(pool_->next_number()) {}

  QueueReceiver<T> receiver() const { return QueueReceiver<T>(queue_); }
  // Waits while the worker's tasks take no values. A worker process holds up to a quarter of a
  // megabyte of values of all queues, a worker thread up to a thousand values of each queue. False
  // at the limit, and if the worker is lost.
  bool send(int worker, const T& value, double seconds = 60) {
    return pool_->send_to(worker, queue_, encode(value), TimeLimit(seconds));
  }

 private:
  std::shared_ptr<detail::PoolCore> pool_;
  uint64_t queue_;
};

}  // namespace lockstep
