// The code that runs in a pool's worker process.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <iostream>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/parallel/messages/prefix.h"
#include "lockstep/parallel/pool/task_context.h"
#include "lockstep/parallel/process/slot_memory.h"

namespace lockstep::detail {
namespace {

constexpr off_t kMostDiary = 64 << 10;

class PoolWorker final : public TaskContext {
 public:
  explicit PoolWorker(const SlotTicket& ticket)
      : slot_(worker_context().memory().map(ticket.slot)),
        client_(worker_context().memory().map(ticket.bell)),
        head_(head_of(slot_)),
        orders_(orders_of(slot_)),
        reports_(reports_of(slot_)),
        spin_(ticket.spin) {
    worker = ticket.index;
    keep_diary();
  }

  [[noreturn]] void serve() {
    const Scope scope(*this, true);
    report(Report::ready, encode(ReadyNote{diary_}));
    for (;;) {
      const uint32_t seen = head_.bell.rings();
      std::optional<TaskOrder> order;
      {
        const MutexLock lock(orders_mutex_);
        while (tasks_.empty() && read_order()) {
        }
        if (!tasks_.empty()) {
          order = std::move(tasks_.front());
          tasks_.pop_front();
        }
      }
      if (order) {
        run(*order);
      } else {
        head_.bell.wait(seen, TimeLimit(3600), spin_);
      }
    }
  }

  std::optional<Bytes> receive(uint64_t queue, const TimeLimit& limit) override {
    for (;;) {
      const uint32_t seen = head_.bell.rings();
      {
        const MutexLock lock(orders_mutex_);
        while (read_order()) {
        }
        const auto found = messages_.find(queue);
        if (found != messages_.end()) {
          Bytes message = std::move(found->second.front());
          found->second.pop_front();
          if (found->second.empty()) messages_.erase(found);
          head_.messages_taken += sizeof queue + message.size();
          return message;
        }
      }
      if (limit.reached() || cancelled()) return std::nullopt;
      head_.bell.wait(seen, limit, spin_);
    }
  }

  std::string file(const std::string& name) const override {
    const MutexLock lock(orders_mutex_);
    const auto found = files_.find(name);
    return found == files_.end() ? "" : found->second;
  }

  const SharedMemory& memory() const override { return worker_context().memory(); }

  bool cancelled() const override { return head_.cancelled.load() == order_.load() + 1; }

  void send(uint64_t queue, std::span<const std::byte> message) override {
    report(Report::message, with_prefix(queue, message));
  }

 private:
  Bell& client() const { return *std::launder(reinterpret_cast<Bell*>(client_.get())); }

  // Processes the next order; false if there is none.
  bool read_order() LOCKSTEP_REQUIRES(orders_mutex_) {
    const auto message = orders_.next();
    if (orders_.took() && head_.orders_wait.load() != 0) client().ring();
    if (!message) return false;
    std::span<const std::byte> rest = *message;
    switch (take_prefix<Order>(rest)) {
      case Order::task:
        tasks_.push_back(decode<TaskOrder>(rest));
        break;
      case Order::file: {
        const auto [name, path] = decode<std::pair<std::string, std::string>>(rest);
        files_[name] = path;
        break;
      }
      case Order::message: {
        const auto queue = take_prefix<uint64_t>(rest);
        messages_[queue].emplace_back(rest.begin(), rest.end());
        break;
      }
    }
    return true;
  }

  void run(const TaskOrder& order) {
    uint64_t expected = order.order;
    if (!head_.next.compare_exchange_strong(expected, order.order + 1)) return;  // taken back
    order_ = order.order;
    workers = order.workers;
    seed = order.seed;
    task = order.task;
    EndNote note{.order = order.order, .result = {}, .error = {}, .diary = {}};
    try {
      note.result = find_packed(order.function)(order.arguments);
    } catch (...) {
      note.error = TaskError::current();
    }
    std::fflush(nullptr);
    std::cout.flush();
    note.diary = read_diary(diary_);
    if (!note.diary.empty() && ftruncate(diary_, 0) != 0) note.diary += "\n(the diary is damaged)";
    report(note.error.kind.empty() ? Report::finished : Report::failed, encode(note));
  }

  // Redirects output to memory that the client can read, too.
  void keep_diary() {
    diary_ = memfd_create("lockstep-diary", MFD_CLOEXEC);
    if (diary_ < 0) throw Error("[pool] cannot allocate memory for the diary");
    const int flags = fcntl(diary_, F_GETFL);
    fcntl(diary_, F_SETFL, flags | O_APPEND);
    std::fflush(nullptr);
    dup2(diary_, STDOUT_FILENO);
    dup2(diary_, STDERR_FILENO);
    setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // keeps the last lines when the process dies
  }

  // May be called by any thread of the task.
  void report(Report what, std::span<const std::byte> rest) LOCKSTEP_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    reports_.push(with_prefix(what, rest));
    for (const TimeLimit limit(send_patience);;) {
      const uint32_t seen = head_.bell.rings();
      if (reports_.flush()) break;
      if (limit.reached()) throw Timeout(client_takes_nothing);
      client().ring();
      head_.bell.wait(seen, TimeLimit(std::min(limit.left(), 1.0)));
    }
    client().ring();
  }

  const SharedRegion slot_, client_;
  SlotHeader& head_;
  mutable Mutex orders_mutex_;  // threads of a running task read orders, too
  MessageReader orders_ LOCKSTEP_GUARDED_BY(orders_mutex_);
  std::map<std::string, std::string> files_ LOCKSTEP_GUARDED_BY(orders_mutex_);
  std::deque<TaskOrder> tasks_ LOCKSTEP_GUARDED_BY(orders_mutex_);
  std::map<uint64_t, std::deque<Bytes>> messages_ LOCKSTEP_GUARDED_BY(orders_mutex_);
  Mutex mutex_;
  MessageWriter reports_ LOCKSTEP_GUARDED_BY(mutex_);
  const bool spin_;
  int diary_ = -1;
  std::atomic<uint64_t> order_{0};
};

}  // namespace

void serve_pool(SlotTicket ticket) { PoolWorker(ticket).serve(); }

std::string read_diary(int descriptor) {
  struct stat about {};
  if (fstat(descriptor, &about) != 0 || about.st_size == 0) return {};
  const off_t bytes = std::min(about.st_size, kMostDiary);
  std::string text(static_cast<size_t>(bytes), '\0');
  const ssize_t n = pread(descriptor, text.data(), text.size(), about.st_size - bytes);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

void forget_diary(int descriptor) {
  struct stat about {};
  // st_blocks counts units of 512 bytes, whatever the file system's block size.
  if (fstat(descriptor, &about) != 0 || about.st_blocks * 512 < 16 * kMostDiary) return;
  [[maybe_unused]] const int done = fallocate(
      descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, about.st_size - kMostDiary);
}

}  // namespace lockstep::detail
