// A pool of threads of this process.
#include <algorithm>
#include <atomic>

#include "lockstep/base/error.h"
#include "lockstep/base/os/shared_memory.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/parallel/messages/byte_ring.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/parallel/pool/task_context.h"

namespace lockstep::detail {
namespace {

constexpr size_t kMostWaiting = 1000;  // that wait for one queue of a worker

class ThreadSlots final : public PoolCore {
 public:
  explicit ThreadSlots(int workers) {
    try {
      resize(workers);
    } catch (...) {
      stop();
      throw;
    }
  }
  ~ThreadSlots() override { stop(); }

  int size() override {
    const MutexLock lock(mutex);
    return wanted_;
  }

  void resize(int workers) override {
    {
      const MutexLock lock(mutex);
      for (size_t i = 0; i < retired_.size();) {
        if (retired_[i]->ended) {
          retired_[i]->thread.join();
          retired_.erase(retired_.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          ++i;
        }
      }
      for (int i = static_cast<int>(slots_.size()); i < workers; ++i) {
        auto slot = std::make_unique<Slot>();
        slot->thread = quiet_thread([this, i, of = slot.get()] { run(i, *of); });
        slots_.push_back(std::move(slot));
      }
      wanted_ = workers;
      while (static_cast<int>(slots_.size()) > workers) {
        slots_.back()->retired = true;
        retired_.push_back(std::move(slots_.back()));
        slots_.pop_back();
      }
    }
    work_.notify_all();
  }

  bool send_to(int index, uint64_t queue, std::span<const std::byte> message,
               const TimeLimit& limit) override {
    for (;;) {
      {
        const MutexLock lock(mutex);
        if (index < 0 || index >= static_cast<int>(slots_.size())) return false;
        auto& messages = slots_[static_cast<size_t>(index)]->messages[queue];
        if (messages.size() < kMostWaiting) {
          messages.emplace_back(message.begin(), message.end());
          break;
        }
      }
      if (limit.reached()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    room_.ring();
    return true;
  }
  SharedMemory& memory() override { return memory_; }
  void room() override { room_.ring(); }

  std::vector<WorkerStatus> slots() override {
    const MutexLock lock(mutex);
    std::vector<WorkerStatus> all;
    for (const auto& slot : slots_) {
      all.push_back({0, true, slot->running ? slot->running->number : 0});
    }
    return all;
  }

 private:
  // Guarded by the pool's mutex, except `cancel`. A slot does not know its pool: the
  // functions that use slots are annotated, not its members.
  struct Slot {
    std::thread thread;
    bool retired = false, ended = false;
    TaskPtr running;
    std::atomic<bool> cancel{false};
    std::map<uint64_t, std::deque<Bytes>> messages;
  };

  class Context final : public TaskContext {
   public:
    Context(ThreadSlots& pool, Slot& slot, const Task& of)
        : pool_(pool), slot_(slot), limit_(of.options.limit), limited_(of.options.limit > 0) {
      seed = of.options.seed;
      task = of.number;
    }
    const SharedMemory& memory() const override { return pool_.memory_; }
    std::string file(const std::string& name) const override {
      const MutexLock lock(pool_.mutex);
      const auto found = pool_.files().find(name);
      return found == pool_.files().end() ? "" : found->second;
    }
    bool cancelled() const override { return slot_.cancel || late(); }
    bool late() const { return limited_ && limit_.reached(); }
    std::optional<Bytes> receive(uint64_t queue, const TimeLimit& limit) override {
      for (;;) {
        const uint32_t seen = pool_.room_.rings();
        {
          const MutexLock lock(pool_.mutex);
          auto& messages = slot_.messages[queue];
          if (!messages.empty()) {
            Bytes message = std::move(messages.front());
            messages.pop_front();
            return message;
          }
        }
        if (limit.reached() || cancelled()) return std::nullopt;
        pool_.room_.wait(seen, TimeLimit(std::min(limit.left(), 0.1)));
      }
    }
    void send(uint64_t queue, std::span<const std::byte> message) override {
      Bytes copy(message.begin(), message.end());
      for (const TimeLimit limit(send_patience);;) {
        const uint32_t seen = pool_.room_.rings();
        if (pool_.deliver(queue, copy)) return;
        check_cancelled();
        if (limit.reached()) throw Timeout(client_takes_nothing);
        pool_.room_.wait(seen, TimeLimit(0.1));
      }
    }

   private:
    ThreadSlots& pool_;
    Slot& slot_;
    const TimeLimit limit_;
    const bool limited_;
  };

  void run(int index, Slot& slot) LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    for (;;) {
      TaskPtr task;
      while (!(task = take_next(index, slot.retired)) && !slot.retired && !stopping()) {
        work_.wait(mutex);  // no limit: an idle thread, which stop_slots() wakes
      }
      if (!task) {
        slot.ended = true;
        return;
      }
      task->state = TaskState::running;
      task->worker = index;
      ++task->attempts;
      slot.running = task;
      slot.cancel = false;
      Context context(*this, slot, *task);
      context.worker = index;
      context.workers = wanted_;
      Bytes result;
      TaskError error;
      {
        const MutexUnlock unlocked(mutex);
        try {
          const TaskContext::Scope scope(context);
          result = find_packed(task->function)(task->arguments);
        } catch (...) {
          error = TaskError::current();
        }
      }
      slot.running = nullptr;
      if (context.late() && error.kind == "Cancelled") {
        task->cancelling = true;
        task->why = past_limit(*task);
      }
      if (error.kind.empty()) {
        finish(task, std::move(result));
      } else {
        fail(task, std::move(error));
      }
    }
  }

  int wanted() const override LOCKSTEP_REQUIRES(mutex) { return wanted_; }
  void file_came(const std::string&) override LOCKSTEP_REQUIRES(mutex) {}
  void work_came() override LOCKSTEP_REQUIRES(mutex) { work_.notify_all(); }

  void stop_running(const TaskPtr& task) override LOCKSTEP_REQUIRES(mutex) {
    for (const auto* slots : {&slots_, &retired_}) {
      for (const auto& slot : *slots) {
        if (slot->running == task) slot->cancel = true;
      }
    }
    room_.ring();
  }

  std::string running_diary(const TaskPtr&) override LOCKSTEP_REQUIRES(mutex) { return {}; }

  void stop_slots() override LOCKSTEP_REQUIRES(mutex) {
    for (auto& slot : slots_) retired_.push_back(std::move(slot));
    slots_.clear();
    std::vector<std::unique_ptr<Slot>> ending = std::exchange(retired_, {});
    for (const auto& slot : ending) {
      slot->cancel = true;
      if (slot->running) slot->running->cancelling = true;
    }
    work_.notify_all();
    room_.ring();
    const MutexUnlock unlocked(mutex);
    for (const auto& slot : ending) slot->thread.join();
  }

  int wanted_ LOCKSTEP_GUARDED_BY(mutex) = 0;
  std::vector<std::unique_ptr<Slot>> slots_ LOCKSTEP_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<Slot>> retired_ LOCKSTEP_GUARDED_BY(mutex);
  ConditionVariable work_;
  Bell room_{};
  SharedMemory memory_{"lockstep-pool"};
};

}  // namespace

std::shared_ptr<PoolCore> make_thread_pool(int workers) {
  return std::make_shared<ThreadSlots>(workers);
}

}  // namespace lockstep::detail
