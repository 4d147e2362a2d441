#include "lockstep/parallel/pool/data_queue.h"

#include "lockstep/base/error.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/pool/message_inbox.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/parallel/pool/task_context.h"

namespace lockstep::detail {

void send_to_client(uint64_t queue, const Bytes& message) {
  TaskContext* const context = TaskContext::current();
  if (context == nullptr) throw InvalidArgument("[queue] only tasks of a pool can send");
  context->send(queue, message);
}

std::optional<Bytes> receive_from_client(uint64_t queue, double seconds) {
  TaskContext* const context = TaskContext::current();
  if (context == nullptr) throw InvalidArgument("[queue] only tasks of a pool can receive");
  return context->receive(queue, TimeLimit(seconds));
}

struct QueueInbox::State {
  State(std::shared_ptr<PoolCore> core, size_t most)
      : pool(std::move(core)),
        inbox(std::make_shared<MessageInbox>(pool, most)),
        number(pool->add_inbox(inbox)) {}
  ~State() {
    pool->remove_inbox(number);
    inbox->close();
    pool->room();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::shared_ptr<PoolCore> pool;
  const std::shared_ptr<MessageInbox> inbox;
  const uint64_t number;
};

QueueInbox::QueueInbox(Pool& pool, size_t most)
    : state_(std::make_unique<State>(pool.core(), most)) {}

QueueInbox::~QueueInbox() = default;

uint64_t QueueInbox::number() const { return state_->number; }

void QueueInbox::after_each(std::function<void(const Bytes&)> callback) {
  state_->inbox->after_each(std::move(callback));
}

std::optional<Bytes> QueueInbox::poll(double seconds) {
  return state_->inbox->poll(TimeLimit(seconds));
}

size_t QueueInbox::waiting() const { return state_->inbox->waiting(); }

bool QueueInbox::finish(double seconds) { return state_->inbox->finish(TimeLimit(seconds)); }

uint64_t next_queue(PoolCore& pool) { return pool.next_number(); }

bool send_to_worker(PoolCore& pool, int worker, uint64_t queue, const Bytes& message,
                    double seconds) {
  return pool.send_to(worker, queue, message, TimeLimit(seconds));
}

}  // namespace lockstep::detail
