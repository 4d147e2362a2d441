#include "lockstep/parallel/pool/message_inbox.h"

namespace lockstep::detail {

bool MessageInbox::take(Bytes& message, bool last) {
  {
    const MutexLock lock(mutex_);
    if (messages_.size() >= most_ && !last) return false;
    messages_.push_back(std::move(message));
    came_.notify_one();
    if (!callback_) return true;
  }
  pool_->post([self = shared_from_this()] { self->call_back(); });
  return true;
}

void MessageInbox::after_each(std::function<void(const Bytes&)> callback) {
  size_t before = 0;
  {
    const MutexLock lock(mutex_);
    if (!callback_) before = messages_.size();
    callback_ = std::move(callback);
  }
  for (; before > 0; --before) pool_->post([self = shared_from_this()] { self->call_back(); });
}

void MessageInbox::call_back() {
  Bytes message;
  std::function<void(const Bytes&)> callback;
  {
    const MutexLock lock(mutex_);
    if (messages_.empty() || !callback_) return;
    message = std::move(messages_.front());
    messages_.pop_front();
    callback = callback_;
    calling_ = std::this_thread::get_id();
  }
  pool_->room();
  try {
    callback(message);
  } catch (...) {
  }
  const MutexLock lock(mutex_);
  calling_.reset();
  called_.notify_all();
}

bool MessageInbox::finish(const TimeLimit& limit) {
  const MutexLock lock(mutex_);
  while (!messages_.empty() || calling_) {
    if (limit.reached()) return false;
    called_.wait_until(mutex_, limit);
  }
  return true;
}

void MessageInbox::close() {
  const MutexLock lock(mutex_);
  callback_ = nullptr;
  messages_.clear();
  // No limit: the user's callback must not run after the queue is destroyed.
  while (calling_ && *calling_ != std::this_thread::get_id()) called_.wait(mutex_);
}

std::optional<Bytes> MessageInbox::poll(const TimeLimit& limit) {
  Bytes message;
  {
    const MutexLock lock(mutex_);
    while (messages_.empty()) {
      if (limit.reached()) return std::nullopt;
      came_.wait_until(mutex_, limit);
    }
    message = std::move(messages_.front());
    messages_.pop_front();
  }
  pool_->room();
  return message;
}

size_t MessageInbox::waiting() const {
  const MutexLock lock(mutex_);
  return messages_.size();
}

}  // namespace lockstep::detail
