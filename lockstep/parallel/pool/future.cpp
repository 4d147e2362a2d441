#include "lockstep/parallel/pool/future.h"

#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/pool/pool_core.h"

namespace lockstep {

AnyFuture::AnyFuture(std::shared_ptr<detail::PoolCore> pool, detail::TaskPtr task)
    : pool_(std::move(pool)), task_(std::move(task)) {}

const std::shared_ptr<detail::PoolCore>& AnyFuture::pool() const {
  if (!task_) throw InvalidArgument("[future] the future has no task");
  return pool_;
}

TaskState AnyFuture::state() const {
  const MutexLock lock(pool()->mutex);
  return task_->state;
}

bool AnyFuture::over() const { return has_ended(task_->state); }

uint64_t AnyFuture::number() const {
  pool();
  return task_->number;
}

int AnyFuture::worker() const {
  const MutexLock lock(pool()->mutex);
  return task_->worker;
}

bool AnyFuture::wait_for(double seconds) const {
  return pool()->wait(TimeLimit(seconds), [this] { return over(); });
}

void AnyFuture::wait() const {
  while (!wait_for(3600)) {
  }
}

Bytes AnyFuture::result() const {
  wait();
  const MutexLock lock(pool_->mutex);
  if (task_->state != TaskState::finished) task_->error.rethrow("");
  return task_->result;
}

std::string AnyFuture::error() const {
  const MutexLock lock(pool()->mutex);
  return task_->error.message;
}

std::string AnyFuture::diary() const { return pool()->diary(task_); }

void AnyFuture::cancel() const { pool()->cancel(task_); }

void AnyFuture::after(std::function<void()> call) const { pool()->then(task_, std::move(call)); }

bool detail::wait_until(PoolCore& pool, double seconds, const std::function<bool()>& holds) {
  return pool.wait(TimeLimit(seconds), holds);
}

}  // namespace lockstep
