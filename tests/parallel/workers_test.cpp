#include "lockstep/parallel/process/workers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/os/file_lock.h"
#include "lockstep/base/threads/cores.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/parallel/process/child_process.h"
#include "lockstep/parallel/process/spawn.h"
#include "tests/base/waiting.h"

namespace lockstep {
namespace {

using Kind = WorkerEvent::Kind;

using testing::kLimit;

int64_t sum(int64_t a, int64_t b) { return a + b; }

// Task functions of workers, which write to shared memory what tests read.
void fail(std::string text) { throw DataError("[task] " + text, "mend it"); }

std::atomic<uint64_t>& word_of(const SharedRegion& region) {
  return *reinterpret_cast<std::atomic<uint64_t>*>(region.get());
}

void write_number(SharedRange range, uint64_t value) {
  word_of(worker_context().memory().map(range)) = value;
}

constexpr int kForeign = 900;  // a descriptor of the client

struct Surroundings {
  int cores;
  bool inherited, blocked;
  char value[8];
};

void look_around(SharedRange range) {
  const SharedRegion region = worker_context().memory().map(range);
  auto& seen = *reinterpret_cast<Surroundings*>(region.get());
  seen.cores = available_cores();
  seen.inherited = fcntl(kForeign, F_GETFD) != -1;
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  seen.blocked = sigismember(&blocked, SIGTERM) == 1;
  const char* const value = getenv("LOCKSTEP_TEST_VALUE");
  std::snprintf(seen.value, sizeof seen.value, "%s", value ? value : "");
}

void take_memory(uint64_t bytes) {
  const std::vector<char> memory(bytes, 1);
  if (memory[bytes / 2] != 1) throw Error("impossible");
}

void sleep_long(SharedRange begun) {
  write_number(begun, 1);
  std::this_thread::sleep_for(std::chrono::seconds(60));
}

void end_suddenly() { _exit(3); }

// Waits for the next event, which must arrive.
WorkerEvent next(Workers& workers) {
  auto event = workers.wait(TimeLimit(kLimit));
  if (!event) throw Timeout("no event");
  return *event;
}

// The worker's task has returned, which ends its process.
void expect_returned(const WorkerEvent& event) {
  EXPECT_EQ(event.kind, Kind::lost) << event.error.message;
  EXPECT_EQ(event.end.how, "exited with status 0");
  EXPECT_FALSE(event.end.own_fault);
}

// A worker with the task sleep_long().
struct Sleeper {
  explicit Sleeper(Workers& workers, SharedMemory& memory) {
    const SharedRange begun = memory.reserve(sizeof(uint64_t));
    number = workers.start(make_call<&sleep_long>(begun));
    const SharedRegion region = memory.map(begun);
    for (const TimeLimit limit(kLimit); word_of(region) == 0;) {
      if (limit.reached() || workers.wait(TimeLimit(0.005)))
        throw Timeout("the task has not begun");
    }
    pid = workers.pid(number);
  }
  uint32_t number = 0;
  pid_t pid = 0;
};

double seconds_since(TimeLimit::Clock::time_point t) {
  return std::chrono::duration<double>(TimeLimit::Clock::now() - t).count();
}

bool alive(pid_t pid) { return kill(pid, 0) == 0; }

TEST(Call, RunsWhatItNames) {
  const auto call = make_call<&sum>(int64_t{2}, int64_t{3});
  EXPECT_EQ(call(), 5);
  EXPECT_EQ(decode<Call<int64_t>>(encode(call))(), 5);
}

TEST(Call, FunctionsOfOthersAreRefused) {
  EXPECT_THROW(Call<void>(FunctionId{100000, 1}, {})(), InvalidArgument);
  const auto call = make_call<&sum>(int64_t{2}, int64_t{3});
  Bytes bytes = encode(call);
  bytes[sizeof(uint32_t)] ^= std::byte{1};  // of the signature
  EXPECT_THROW(decode<Call<int64_t>>(bytes)(), InvalidArgument);
}

TEST(Serialize, BytesThatAreNotAValueAreRefused) {
  const std::vector<std::string> value{"one", "two"};
  Bytes bytes = encode(value);
  EXPECT_EQ(decode<std::vector<std::string>>(bytes), value);
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_THROW(decode<std::vector<std::string>>(std::span(bytes).first(n)), DataError) << n;
  }
  bytes.push_back({});
  EXPECT_THROW(decode<std::vector<std::string>>(bytes), DataError);
  // A count that exceeds the message must not allocate memory.
  EXPECT_THROW(decode<std::vector<double>>(encode(uint64_t{1} << 60)), DataError);
}

TEST(Workers, EachRunsItsTask) {
  SharedMemory memory("lockstep-test");
  const SharedRange ranges[] = {memory.reserve(8), memory.reserve(8)};
  Workers workers(memory);
  const uint32_t a = workers.start(make_call<&write_number>(ranges[0], uint64_t{5}));
  const uint32_t b = workers.start(make_call<&write_number>(ranges[1], uint64_t{6}));
  EXPECT_NE(a, b);
  const WorkerEvent events[] = {next(workers), next(workers)};
  for (const WorkerEvent& event : events) {
    expect_returned(event);
    EXPECT_TRUE(event.worker == a || event.worker == b);
    EXPECT_FALSE(workers.present(event.worker));
  }
  EXPECT_NE(events[0].worker, events[1].worker);
  EXPECT_EQ(word_of(memory.map(ranges[0])), 5u);
  EXPECT_EQ(word_of(memory.map(ranges[1])), 6u);
  EXPECT_FALSE(workers.wait(TimeLimit(0.1)));
}

TEST(Workers, ErrorsKeepTheirKindAndHint) {
  SharedMemory memory("lockstep-test");
  Workers workers(memory);
  const uint32_t number = workers.start(make_call<&fail>(std::string("bad")));
  const WorkerEvent event = next(workers);
  ASSERT_EQ(event.kind, Kind::failed);
  EXPECT_EQ(event.worker, number);
  EXPECT_FALSE(workers.wait(TimeLimit(0.1)));  // the end of its process is not a second event
  try {
    event.error.rethrow("worker " + std::to_string(number) + ": ");
  } catch (const DataError& e) {
    EXPECT_EQ(std::string(e.what()), "worker 1: [task] bad");
    EXPECT_EQ(e.hint(), "mend it");
    return;
  }
  FAIL() << "another kind";
}

TEST(Workers, ShareMemory) {
  SharedMemory memory("lockstep-test");
  const SharedRange first = memory.reserve(10), second = memory.reserve(100000);
  Workers workers(memory);
  workers.start(make_call<&write_number>(second, uint64_t{77}));
  expect_returned(next(workers));
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(memory.map(second).get()), 77u);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(memory.map(first).get()), 0u);
  EXPECT_THROW(memory.map({second.offset, second.bytes + 4096}), InvalidArgument);
  memory.free(second);
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(memory.map(second).get()), 0u);
}

TEST(Workers, HaveOnlyTheirCoresAndEnvironment) {
  SharedMemory memory("lockstep-test");
  const Descriptor foreign(dup2(0, kForeign));  // dup2 keeps it open for started programs
  ASSERT_EQ(foreign.get(), kForeign);
  sigset_t some, before;
  sigemptyset(&some);
  sigaddset(&some, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &some, &before);
  Workers workers(memory, {.environment = {{"LOCKSTEP_TEST_VALUE", "yes"}}});
  const SharedRange range = memory.reserve(sizeof(Surroundings));
  workers.start(make_call<&look_around>(range), {0});
  const WorkerEvent event = next(workers);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  expect_returned(event);
  const SharedRegion region = memory.map(range);
  const auto& seen = *reinterpret_cast<const Surroundings*>(region.get());
  EXPECT_EQ(seen.cores, 1);
  EXPECT_STREQ(seen.value, "yes");
  EXPECT_FALSE(seen.blocked);
  EXPECT_FALSE(seen.inherited);
}

TEST(Workers, MemoryIsLimited) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers take memory of their own";
#endif
  SharedMemory memory("lockstep-test");
  Workers workers(memory, {.memory_bytes = uint64_t{1} << 30});
  workers.start(make_call<&take_memory>(uint64_t{100} << 20));
  expect_returned(next(workers));
  workers.start(make_call<&take_memory>(uint64_t{2} << 30));
  const WorkerEvent event = next(workers);
  ASSERT_EQ(event.kind, Kind::failed);
  EXPECT_EQ(event.error.message.find("there is not enough memory: its own data is limited to 1024 "
                                     "MiB (worker_memory_mib), of which "),
            0u)
      << event.error.message;
}

TEST(Workers, TooLittleMemoryIsNamed) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers take memory of their own";
#endif
  SharedMemory memory("lockstep-test");
  for (const uint64_t mib : {1, 8, 32}) {
    Workers workers(memory, {.memory_bytes = mib << 20});
    workers.start(make_call<&take_memory>(uint64_t{1} << 10));
    const WorkerEvent event = next(workers);
    ASSERT_EQ(event.kind, Kind::failed) << mib;
    const std::string begin =
        "[memory] worker_memory_mib = " + std::to_string(mib) + " is too small: a process needs ";
    EXPECT_EQ(event.error.message.find(begin), 0u) << event.error.message;
    EXPECT_EQ(event.error.hint.find("worker_memory_mib must be at least "), 0u);
  }
}

TEST(Workers, DeathIsNoticedAtOnce) {
  SharedMemory memory("lockstep-test");
  Workers workers(memory);
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    const Sleeper sleeper(workers, memory);
    const auto before = TimeLimit::Clock::now();
    kill(sleeper.pid, SIGKILL);
    const WorkerEvent event = next(workers);
    seconds.push_back(seconds_since(before));
    EXPECT_EQ(event.kind, Kind::lost);
    EXPECT_EQ(event.end.how, "was killed by signal 9 (SIGKILL)");
    EXPECT_TRUE(event.end.outside && !event.end.own_fault);
    EXPECT_FALSE(workers.present(sleeper.number));
  }
  std::sort(seconds.begin(), seconds.end());
  std::printf("death noticed after %.1f ms (median of 5)\n", seconds[2] * 1000);
  EXPECT_LT(seconds[2], 0.1);
  workers.start(make_call<&end_suddenly>());
  const WorkerEnd exited = next(workers).end;
  EXPECT_EQ(exited.how, "exited with status 3");
  EXPECT_TRUE(exited.own_fault && !exited.outside);
}

TEST(Workers, AStoppedOneIsEnded) {
  SharedMemory memory("lockstep-test");
  Workers workers(memory);
  const Sleeper sleeper(workers, memory);
  kill(sleeper.pid, SIGSTOP);
  const auto before = TimeLimit::Clock::now();
  const WorkerEvent event = next(workers);
  EXPECT_EQ(event.kind, Kind::lost);
  EXPECT_EQ(event.end.how, "was stopped and was ended");
  EXPECT_TRUE(event.end.outside && !event.end.own_fault);
  EXPECT_LT(seconds_since(before), 3);
}

// Also stopped workers.
TEST(Workers, EndWithTheirClientHoweverThatEnds) {
  int numbers[2];
  ASSERT_EQ(pipe(numbers), 0);
  const pid_t client = fork();
  if (client == 0) {
    SharedMemory memory("lockstep-test");
    Workers workers(memory);
    pid_t pids[3];
    for (pid_t& pid : pids) pid = Sleeper(workers, memory).pid;
    kill(pids[0], SIGSTOP);
    if (write(numbers[1], pids, sizeof pids) != sizeof pids) _exit(1);
    pause();
    _exit(0);
  }
  pid_t pids[3];
  ASSERT_EQ(read(numbers[0], pids, sizeof pids), static_cast<ssize_t>(sizeof pids));
  for (const pid_t pid : pids) EXPECT_TRUE(alive(pid));
  kill(client, SIGKILL);
  waitpid(client, nullptr, 0);
  const TimeLimit limit(5);
  while (!limit.reached() && (alive(pids[0]) || alive(pids[1]) || alive(pids[2]))) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (const pid_t pid : pids) EXPECT_FALSE(alive(pid));
  close(numbers[0]);
  close(numbers[1]);
}

// Stops this process at this point, as a child that has not run its program yet.
const char* stop_at = "";
void stop_new_child(const char* point, int64_t, int64_t) {
  if (std::strcmp(point, stop_at) == 0) syscall(SYS_kill, syscall(SYS_getpid), SIGSTOP);
}

std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> found;
  std::error_code gone;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", gone)) {
    std::ifstream file(task.path() / "children");
    for (pid_t child = 0; file >> child;) found.push_back(child);
  }
  return found;
}

// Whether no thread of a process can do anything: each is stopped or waits for a child that begins.
bool is_frozen(pid_t process) {
  std::error_code gone;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", gone)) {
    std::ifstream file(task.path() / "stat");
    std::string line;
    std::getline(file, line);
    const size_t end = line.rfind(')');
    if (end == std::string::npos || end + 2 >= line.size()) return false;
    if (line[end + 2] != 'T' && line[end + 2] != 'D') return false;
  }
  return true;
}

// In a client that holds a lock and starts children: which of them are stopped, and when.
struct Stopped {
  const char* name;
  const char* point;
  std::vector<std::string> command;  // empty: a worker
};

class AStoppedChild : public ::testing::TestWithParam<Stopped> {};

// The client is killed. No child may remain, which nobody would continue or end any more, and so no
// lock.
TEST_P(AStoppedChild, EndsWithItsClient) {
  const Stopped& stopped = GetParam();
  std::string folder = (std::filesystem::temp_directory_path() / "stopped.XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/lock";
  // The child's end is told to this process then.
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const TimeLimit limit(kLimit);
  pid_t client = 0, child = 0;
  // A client ends a child that is stopped for a second. On a busy machine that may be sooner than
  // this process sees it; then another client has to serve.
  while (child == 0 && !limit.reached()) {
    client = fork();
    if (client == 0) {
      const auto lock = FileLock::take(path);
      stop_at = stopped.point;
      set_fail_point_hook(&stop_new_child);
      SharedMemory memory("lockstep-test");
      Workers workers(memory);
      std::optional<ChildProcess> command;
      if (stopped.command.empty()) {
        workers.start(make_call<&end_suddenly>());
      } else {
        command.emplace(ChildOptions{.command = stopped.command});
      }
      pause();
      _exit(lock ? 0 : 1);
    }
    for (const TimeLimit soon(5); child == 0 && !soon.reached();) {
      for (const pid_t one : children_of(client)) {
        if (is_stopped(one)) child = one;
      }
    }
    kill(client, SIGSTOP);
    for (const TimeLimit soon(5); !is_frozen(client) && !soon.reached();) {
      std::this_thread::yield();
    }
    if (child != 0 && is_frozen(client) && is_stopped(child)) break;
    child = 0;
    kill(client, SIGKILL);
    waitpid(client, nullptr, 0);
    // What this attempt leaves must not take the time of the next one.
    for (const pid_t left : children_of(getpid())) kill(left, SIGKILL);
    while (!limit.reached() && waitpid(-1, nullptr, WNOHANG) >= 0) std::this_thread::yield();
  }
  ASSERT_NE(child, 0) << "no child was stopped";
  EXPECT_TRUE(file_is_locked(path));
  kill(client, SIGKILL);
  waitpid(client, nullptr, 0);
  // From here on the end of the client alone counts.
  const TimeLimit end(kLimit);
  int status = 0;
  pid_t ended = 0;
  while (ended == 0 && !end.reached()) ended = waitpid(child, &status, WNOHANG);
  EXPECT_EQ(ended, child) << "it remains";
  // By its parent's signal, or because it found that its parent was gone.
  EXPECT_TRUE(status == SIGKILL || (WIFEXITED(status) && WEXITSTATUS(status) == 1)) << status;
  EXPECT_FALSE(file_is_locked(path));
  if (ended != child) kill(child, SIGKILL);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(
    Processes, AStoppedChild,
    ::testing::Values(Stopped{"AtItsBirth", "child at its birth", {}},
                      Stopped{"WithItsSignal", "child with its signal", {}},
                      Stopped{"BeforeItsProgram", "child before its program", {}},
                      Stopped{"InItsProgram", "", {"sh", "-c", "kill -STOP $$"}}),
    [](const auto& stopped) { return std::string(stopped.param.name); });

// What a child keeps of its client, from before its program on.
TEST(ChildProcesses, HaveOnlyTheirDescriptors) {
  const Descriptor secret(memfd_create("secret", 0));  // not closed when the program begins
  const Descriptor said(memfd_create("said", 0));
  ChildProcess child({.descriptors = {said.get()},
                      .command = {"sh", "-c", "ls -l /proc/$$/fd >&3"},
                      .input = STDIN_FILENO});
  ASSERT_TRUE(child.wait(TimeLimit(kLimit)));
  std::string text(10000, ' ');
  const ssize_t n = pread(said.get(), text.data(), text.size(), 0);
  ASSERT_GT(n, 0);
  EXPECT_NE(text.find("said"), std::string::npos);
  EXPECT_EQ(text.find("secret"), std::string::npos) << text;
}

TEST(Workers, EndWithTheObject) {
  SharedMemory memory("lockstep-test");
  pid_t pid = 0;
  {
    Workers workers(memory);
    pid = Sleeper(workers, memory).pid;
    EXPECT_TRUE(alive(pid));
  }
  EXPECT_FALSE(alive(pid));
}

TEST(Cores, ArePartitionedIfThereAreEnough) {
  const std::vector<int> all = own_cores();
  const auto n = static_cast<int>(all.size());
  EXPECT_EQ(cores_of_worker(0, n, 1), std::vector<int>{all[0]});
  EXPECT_EQ(cores_of_worker(n - 1, n, 1), std::vector<int>{all.back()});
  EXPECT_EQ(cores_of_worker(0, 1, n), all);
  EXPECT_TRUE(cores_of_worker(0, n + 1, 1).empty());
  EXPECT_TRUE(cores_of_worker(0, 1, n + 1).empty());
  // More workers than at first.
  EXPECT_EQ(cores_of_worker(n - 1, 1, 1), std::vector<int>{all.back()});
  EXPECT_TRUE(cores_of_worker(n, 1, 1).empty());
}

}  // namespace
}  // namespace lockstep
