#include "lockstep/parallel/process/workers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/cores.h"
#include "lockstep/parallel/process/child_process.h"

namespace lockstep {
namespace {

using Kind = WorkerEvent::Kind;

constexpr double kLimit = 30;

int64_t sum(int64_t a, int64_t b) { return a + b; }

// Task functions of workers.
void echo(std::string text) {
  WorkerContext& worker = worker_context();
  worker.send(encode(text));
  while (const auto message = worker.receive(TimeLimit(kLimit))) {
    const auto received = decode<std::string>(*message);
    if (received == "end") return;
    worker.send(encode(text + " " + received));
  }
}

void fail(std::string text) { throw DataError("[task] " + text, "mend it"); }

void write_shared(SharedPlace place, uint64_t value) {
  const SharedRegion region = worker_context().memory().map(place);
  *reinterpret_cast<uint64_t*>(region.get()) = value;
}

constexpr int kForeign = 900;  // a descriptor of the client

void tell_about_itself() {
  const bool inherited = fcntl(kForeign, F_GETFD) != -1;
  const char* const value = getenv("LOCKSTEP_TEST_VALUE");
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  worker_context().send(encode(std::tuple<int, bool, std::string, bool>(
      available_cores(), inherited, value ? value : "", sigismember(&blocked, SIGTERM) == 1)));
}

void take_memory(uint64_t bytes) {
  const std::vector<char> memory(bytes, 1);
  if (memory[bytes / 2] != 1) throw Error("impossible");
}

void sleep_long() { std::this_thread::sleep_for(std::chrono::seconds(60)); }

void end_suddenly() { _exit(3); }

// Waits for the next event, which must arrive.
WorkerEvent next(Workers& workers) {
  auto event = workers.wait(TimeLimit(kLimit));
  if (!event) throw Timeout("no event");
  return *event;
}

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

TEST(Serialize, BytesThatAreNoValueAreRefused) {
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

TEST(Workers, TalkToTheirClient) {
  SharedMemory memory("lockstep-test");
  Workers workers(memory);
  const uint32_t a = workers.start(make_call<&echo>(std::string("a")));
  const uint32_t b = workers.start(make_call<&echo>(std::string("b")));
  EXPECT_NE(a, b);
  for (int i = 0; i < 2; ++i) {
    const WorkerEvent event = next(workers);
    ASSERT_EQ(event.kind, Kind::message);
    EXPECT_EQ(decode<std::string>(event.content), event.worker == a ? "a" : "b");
  }
  ASSERT_TRUE(workers.send(b, encode(std::string("hello"))));
  const WorkerEvent answer = next(workers);
  EXPECT_EQ(answer.worker, b);
  EXPECT_EQ(decode<std::string>(answer.content), "b hello");
  ASSERT_TRUE(workers.send(a, encode(std::string("end"))));
  const WorkerEvent end = next(workers);
  EXPECT_EQ(end.kind, Kind::finished);
  EXPECT_EQ(end.worker, a);
}

TEST(Workers, ErrorsKeepTheirKindAndHint) {
  SharedMemory memory("lockstep-test");
  Workers workers(memory);
  const uint32_t number = workers.start(make_call<&fail>(std::string("bad")));
  const WorkerEvent event = next(workers);
  ASSERT_EQ(event.kind, Kind::failed);
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
  const SharedPlace first = memory.reserve(10), second = memory.reserve(100000);
  Workers workers(memory);
  workers.start(make_call<&write_shared>(second, uint64_t{77}));
  EXPECT_EQ(next(workers).kind, Kind::finished);
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
  workers.start(make_call<&tell_about_itself>(), {0});
  const WorkerEvent event = next(workers);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const auto [cores, inherited, value, blocked] =
      decode<std::tuple<int, bool, std::string, bool>>(event.content);
  EXPECT_EQ(cores, 1);
  EXPECT_EQ(value, "yes");
  EXPECT_FALSE(blocked);
  EXPECT_FALSE(inherited);
}

TEST(Workers, MemoryIsLimited) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers take memory of their own";
#endif
  SharedMemory memory("lockstep-test");
  Workers workers(memory, {.memory_bytes = uint64_t{1} << 30});
  workers.start(make_call<&take_memory>(uint64_t{100} << 20));
  EXPECT_EQ(next(workers).kind, Kind::finished);
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
    const uint32_t number = workers.start(make_call<&echo>(std::string("x")));
    ASSERT_EQ(next(workers).kind, Kind::message);
    const auto before = TimeLimit::Clock::now();
    kill(workers.pid(number), SIGKILL);
    const WorkerEvent event = next(workers);
    seconds.push_back(seconds_since(before));
    EXPECT_EQ(event.kind, Kind::lost);
    EXPECT_EQ(event.end.how, "was killed by signal 9 (SIGKILL)");
    EXPECT_TRUE(event.end.outside && !event.end.own_fault);
    EXPECT_FALSE(workers.present(number));
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
  const uint32_t number = workers.start(make_call<&echo>(std::string("x")));
  ASSERT_EQ(next(workers).kind, Kind::message);
  kill(workers.pid(number), SIGSTOP);
  const auto before = TimeLimit::Clock::now();
  const WorkerEvent event = next(workers);
  EXPECT_EQ(event.kind, Kind::lost);
  EXPECT_EQ(event.end.how, "was stopped and was ended");
  EXPECT_TRUE(event.end.outside && !event.end.own_fault);
  EXPECT_LT(seconds_since(before), 3);
}

// Also stopped workers and workers that are computing.
TEST(Workers, EndWithTheirClientHoweverThatEnds) {
  int numbers[2];
  ASSERT_EQ(pipe(numbers), 0);
  const pid_t client = fork();
  if (client == 0) {
    SharedMemory memory("lockstep-test");
    Workers workers(memory);
    const uint32_t ids[] = {workers.start(make_call<&echo>(std::string("x"))),
                            workers.start(make_call<&echo>(std::string("x"))),
                            workers.start(make_call<&sleep_long>())};
    next(workers);
    next(workers);
    pid_t pids[3];
    for (int i = 0; i < 3; ++i) pids[i] = workers.pid(ids[i]);
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

TEST(Workers, EndWithTheObject) {
  SharedMemory memory("lockstep-test");
  pid_t pid = 0;
  {
    Workers workers(memory);
    const uint32_t number = workers.start(make_call<&sleep_long>());
    pid = workers.pid(number);
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
