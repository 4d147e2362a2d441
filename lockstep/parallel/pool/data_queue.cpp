#include "lockstep/parallel/pool/data_queue.h"

namespace lockstep::detail {

bool MessageInbox::take(Bytes& message) {
  const std::lock_guard lock(mutex_);
  if (messages_.size() >= most_) return false;
  messages_.push_back(std::move(message));
  came_.notify_one();
  if (callback_) pool_->post([self = shared_from_this()] { self->call_back(); });
  return true;
}

void MessageInbox::after_each(std::function<void(const Bytes&)> callback) {
  const std::lock_guard lock(mutex_);
  const bool first = !callback_;
  callback_ = std::move(callback);
  for (size_t i = 0; first && i < messages_.size(); ++i) {
    pool_->post([self = shared_from_this()] { self->call_back(); });
  }
}

void MessageInbox::call_back() {
  Bytes message;
  std::function<void(const Bytes&)> callback;
  {
    const std::lock_guard lock(mutex_);
    if (messages_.empty()) return;
    message = std::move(messages_.front());
    messages_.pop_front();
    callback = callback_;
  }
  pool_->room();
  try {
    callback(message);
  } catch (...) {
  }
}

std::optional<Bytes> MessageInbox::poll(const TimeLimit& limit) {
  std::unique_lock lock(mutex_);
  while (messages_.empty()) {
    if (limit.reached()) return std::nullopt;
    came_.wait_for(lock, std::chrono::duration<double>(std::min(limit.left(), 3600.0)));
  }
  Bytes message = std::move(messages_.front());
  messages_.pop_front();
  lock.unlock();
  pool_->room();
  return message;
}

size_t MessageInbox::waiting() const {
  const std::lock_guard lock(mutex_);
  return messages_.size();
}

}  // namespace lockstep::detail
