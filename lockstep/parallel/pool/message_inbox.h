// Messages from tasks that wait for the user of a queue.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/parallel/pool/pool_core.h"

namespace lockstep::detail {

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

}  // namespace lockstep::detail
