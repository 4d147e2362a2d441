// Workers that die, hang and stop during a training: the others continue, and the bits stay.
#include "tests/train/recovery.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/parallel/process/oom_kills.h"
#include "lockstep/parallel/process/worker_context.h"
#include "lockstep/train/state/state_digest.h"
#include "tests/data/support.h"
#include "tests/parallel/network.h"

namespace lockstep {
namespace {

using testing::expect_undisturbed;
using testing::Failure;
using testing::Follower;
using testing::long_options;
using testing::losses;
using testing::undisturbed;

constexpr int kKillsOfAShard = 10;

int killed_so_far(const std::string& file) {
  std::error_code none;
  const auto size = std::filesystem::file_size(file, none);
  return none ? 0 : static_cast<int>(size);
}

// As the system would count it.
void count_oom_kill(const std::string& file) {
  std::ifstream before(file);
  std::string name, text;
  for (int64_t n = 0; before >> name >> n;) {
    text += name + " " + std::to_string(name == "oom_kill" ? n + 1 : n) + "\n";
  }
  std::ofstream(file + ".new") << text;
  std::filesystem::rename(file + ".new", file);
}

void fail_here(const char* place, int64_t iteration, int64_t shard) {
  const Failure& failure = testing::failure();
  if (failure.place != place) return;
  const char* const host = getenv("LOCKSTEP_TEST_HOST");
  if (!failure.host.empty() && failure.host != (host ? host : "")) return;
  if (failure.worker != 0 && worker_context().worker() != failure.worker) return;
  if (failure.iteration >= 0 && iteration != 0 && iteration != failure.iteration) return;
  if (failure.shard >= 0 && shard != failure.shard) return;
  if (failure.how == "kill") kill(getpid(), SIGKILL);
  // The first process that comes here.
  if (failure.how == "kill once" && std::filesystem::create_directory(failure.file)) {
    kill(getpid(), SIGKILL);
  }
  if (failure.how == "fault") raise(SIGSEGV);
  if (failure.how == "abort") std::abort();
  if (failure.how == "exit") _exit(3);
  if (failure.how == "be killed" && killed_so_far(failure.file) < kKillsOfAShard) {
    std::ofstream(failure.file, std::ios::app) << 'x';
    kill(getpid(), SIGKILL);
  }
  if (failure.how == "no memory") {
    count_oom_kill(failure.file);
    kill(getpid(), SIGKILL);
  }
  if (failure.how == "stop") kill(getpid(), SIGSTOP);
  if (failure.how == "throw") throw DataError("[test] thrown on purpose", "do not");
  if (failure.how == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(60));
  if (failure.how == "hang") std::this_thread::sleep_for(std::chrono::seconds(120));
}

TrainingProblem failing_problem(Failure f) {
  testing::failure() = std::move(f);
  set_fail_point_hook(fail_here);
  return testing::law_problem();
}

TrainingResult run(const TrainingOptions& options, Follower& follower, const Failure& f = {},
                   TrainingControl control = {}) {
  const auto call = make_call<&failing_problem>(f);
  TrainingProblem problem = testing::law_problem();
  control.observers.push_back(&follower);
  return train(call, problem.network, problem.data, options, control);
}

TEST(Recovery, AKilledWorkerIsReplacedAndTheOthersGoOn) {
  Follower follower;
  std::map<uint32_t, pid_t> before;
  pid_t victim = 0;
  follower.on_iteration = [&](const IterationRecord& r) {
    if (r.iteration != 20) return;
    before = follower.present;
    ASSERT_EQ(before.size(), 3u);
    victim = before.rbegin()->second;
    kill(victim, SIGKILL);
  };
  const TrainingResult result = run(long_options(3), follower);
  expect_undisturbed(result, follower, 60);
  const auto lost = losses(follower);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].pid, victim);
  EXPECT_EQ(lost[0].how, "was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(lost[0].members, 2);
  std::printf("the others went on after %.1f ms\n", lost[0].seconds * 1000);
  EXPECT_LT(lost[0].seconds, 0.5);
  EXPECT_EQ(follower.present.size(), 3u) << "no replacement came";
  int64_t survivors = 0;
  for (const auto& [number, pid] : before) {
    if (pid == victim) continue;
    EXPECT_EQ(follower.present[number], pid);
    ++survivors;
  }
  EXPECT_EQ(survivors, 2);
}

// Number of kills: few by default, more by the environment.
int kills() {
  const char* const text = getenv("LOCKSTEP_TEST_KILLS");
  return text ? std::atoi(text) : 12;
}

TEST(Recovery, KillsAtRandomMoments) {
  const int wanted = kills();
  const int64_t epochs = 30 + 30 * static_cast<int64_t>(wanted);
  std::mt19937 random(7);
  Follower follower;
  int killed = 0;
  int64_t next = 5;
  follower.on_iteration = [&](const IterationRecord& r) {
    if (killed == wanted || r.iteration < next || follower.present.size() < 2) return;
    next = r.iteration + 4 + static_cast<int64_t>(random() % 60);
    auto victim = follower.present.begin();
    std::advance(victim, static_cast<std::ptrdiff_t>(random() % follower.present.size()));
    // Not always between iterations.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    kill(victim->second, SIGKILL);
    follower.present.erase(victim);
    ++killed;
  };
  const TrainingResult result = run(long_options(4, epochs), follower);
  expect_undisturbed(result, follower, epochs);
  EXPECT_EQ(killed, wanted);
  std::vector<double> seconds;
  for (const auto& loss : losses(follower)) seconds.push_back(loss.seconds);
  ASSERT_EQ(seconds.size(), static_cast<size_t>(killed));
  std::sort(seconds.begin(), seconds.end());
  std::printf(
      "%d workers killed in %lld iterations; the others went on after %.1f ms (median), "
      "%.1f ms (longest); digest %s\n",
      killed, static_cast<long long>(result.last_iteration), seconds[seconds.size() / 2] * 1000,
      seconds.back() * 1000, result.digest.to_string().c_str());
}

TEST(Recovery, AllMayDieAtOnce) {
  Follower follower;
  follower.on_iteration = [&](const IterationRecord& r) {
    if (r.iteration != 30 && r.iteration != 31) return;
    for (const auto& [number, pid] : follower.present) kill(pid, SIGKILL);
  };
  expect_undisturbed(run(long_options(3), follower), follower, 60);
  EXPECT_EQ(losses(follower).size(), 6u);
}

TEST(Recovery, AStoppedWorkerIsEndedAndReplaced) {
  Follower follower;
  follower.on_iteration = [&](const IterationRecord& r) {
    if (r.iteration == 20) kill(follower.first_present(), SIGSTOP);
  };
  expect_undisturbed(run(long_options(3), follower), follower, 60);
  const auto lost = losses(follower);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].how, "was stopped and was ended");
}

// Without validations and checkpoints, iterations are granted one by one. Some grants are on their
// way when a worker dies; slow iterations are granted with each record.
TrainingProblem unvalidated_problem(Failure f) {
  TrainingProblem problem = failing_problem(std::move(f));
  problem.data.validation = nullptr;
  return problem;
}

TEST(Recovery, GrantsOfAnEndedGroupAreIgnored) {
  for (const int64_t slow : {0, 1}) {
    const auto call = make_call<&unvalidated_problem>(
        slow == 1 ? Failure{"update", "slow", 0, -1, -1} : Failure{});
    Follower follower;
    int killed = 0;
    const int64_t epochs = slow == 1 ? 10 : 100;
    follower.on_iteration = [&](const IterationRecord& r) {
      if (r.iteration % 8 != 5 || follower.present.size() < 3 || killed == 6) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(killed));
      kill(follower.first_present(), SIGKILL);
      follower.present.erase(follower.present.begin());
      ++killed;
    };
    TrainingControl control;
    control.observers.push_back(&follower);
    TrainingProblem problem = testing::law_problem();
    problem.data.validation = nullptr;
    const TrainingResult result =
        train(call, problem.network, problem.data, long_options(3, epochs), control);
    EXPECT_EQ(result.digest, undisturbed(epochs).digest) << slow;
    EXPECT_GT(killed, 2);
  }
}

// The worker that must publish its values may be lost already.
TEST(Recovery, ThePublishingWorkerMayBeLost) {
  struct Killer : Follower {
    void saving(int64_t iteration) override {
      if (iteration != 40) return;
      kill(first_present(), SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  } follower;
  const testing::TemporaryFolder folder;
  TrainingControl control;
  control.checkpoint_folder = folder.path + "/checkpoints";
  expect_undisturbed(run(long_options(3), follower, {}, control), follower, 60);
  EXPECT_EQ(losses(follower).size(), 1u);
}

TEST(Recovery, ALossThatIsNoNumberEndsTheTraining) {
  Follower follower;
  TrainingOptions options = long_options(2);
  options.solver.initial_learning_rate = 1e30;
  const auto call = make_call<&failing_problem>(Failure{});
  TrainingProblem problem = testing::law_problem();
  TrainingControl control;
  control.observers.push_back(&follower);
  try {
    train(call, problem.network, problem.data, options, control);
    FAIL() << "it went on";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("is not a finite number"), std::string::npos) << e.what();
  }
  TrainingProblem alone = testing::law_problem();
  options.workers.count = 0;
  EXPECT_THROW(train(alone.network, alone.data, options), Error);
  EXPECT_EQ(network_digest(problem.network), network_digest(alone.network))
      << "the last good values are not those of one process";
}

// If all workers end at the same place outside of shards, the training ends, too.
TEST(Recovery, WorkersThatAlwaysEndEndTheTraining) {
  Follower follower;
  EXPECT_THROW(run(long_options(1), follower, {"update", "fault", 0, 7, -1}), Error);
  EXPECT_LE(losses(follower).size(), 10u);
}

// The open files of this process as the system names them: "socket:[1073]".
std::set<std::string> open_files() {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;  // meanwhile
    files.insert(std::filesystem::read_symlink(entry.path(), closed).string());
  }
  return files;
}

// Connects to the control channel of this process, sends a ZeroMQ greeting without encryption, and
// keeps the connection. Other processes' channels belong to tests that run at the same time.
void knock(std::vector<Descriptor>& visits) {
  const std::set<std::string> own = open_files();
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    const size_t at = line.find("@lockstep-");
    if (at == std::string::npos) continue;
    std::istringstream columns(line);
    std::string inode;
    for (int column = 0; column < 7; ++column) columns >> inode;
    if (!own.contains("socket:[" + inode + "]")) continue;
    const std::string name = line.substr(at + 1);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    // Does not wait for a process that is stopped.
    Descriptor s(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (connect(s.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) continue;
    std::string greeting("\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01NULL", 16);
    greeting.resize(64, '\0');
    [[maybe_unused]] const ssize_t n =
        send(s.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL);
    visits.push_back(std::move(s));
  }
}

TEST(Recovery, StrangersAreRefusedAndReportedOnce) {
  struct Listener : Follower {
    void notice(const std::string& text) override { notices.push_back(text); }
    std::vector<std::string> notices;
  } follower;
  std::vector<Descriptor> visits;
  follower.on_iteration = [&](const IterationRecord& r) {
    if (r.iteration >= 20 && r.iteration < 30) knock(visits);
    // The check for intruders runs ten times a second.
    if (r.iteration == 30) std::this_thread::sleep_for(std::chrono::milliseconds(400));
  };
  expect_undisturbed(run(long_options(2), follower), follower, 60);
  EXPECT_TRUE(losses(follower).empty());
  ASSERT_EQ(follower.notices.size(), 1u);
  EXPECT_NE(follower.notices[0].find("a connection without a key"), std::string::npos);
}

struct Place {
  const char* place;
  const char* how;
  bool hosts = false;  // on several hosts
};

void PrintTo(const Place& p, std::ostream* to) {
  *to << p.how << " at " << p.place << (p.hosts ? " on another host" : "");
}

class FailPoints : public ::testing::TestWithParam<Place> {};

TEST_P(FailPoints, LeaveTheBitsAlone) {
  const Place p = GetParam();
  if (p.hosts && testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  Follower follower;
  TrainingOptions options = long_options(3);
  options.workers.limit = 1.5;
  if (p.hosts) testing::place_on_hosts(options, {"localhost:1", "127.0.0.2:1", "127.0.0.3:2"});
  // A failure without an iteration happens the first time.
  const std::string place = p.place;
  const int64_t iteration = place == "join" ? 1 : 37;
  TrainingControl control;
  bool asked = false;
  if (place == "publish") {
    // A worker that joins causes another publish.
    follower.on_iteration = [&](const IterationRecord& r) {
      if (r.iteration != 36 || asked) return;
      asked = true;
      kill(follower.present.at(3), SIGKILL);
    };
  }
  // Its number on its host and in the training.
  const uint32_t number = place == "publish" ? 1 : 2;
  const uint32_t worker = p.hosts && place != "publish" ? 4 : number;
  const TrainingResult result =
      run(options, follower, {p.place, p.how, number, place == "publish" ? -1 : iteration, -1},
          control);
  expect_undisturbed(result, follower, 60);
  const auto lost = losses(follower);
  ASSERT_FALSE(lost.empty()) << "nothing failed";
  for (const auto& loss : lost) {
    std::printf("worker %u %s after iteration %lld; back after %.0f ms\n", loss.worker,
                loss.how.c_str(), static_cast<long long>(loss.iteration), loss.seconds * 1000);
  }
  const bool first = std::any_of(lost.begin(), lost.end(),
                                 [&](const auto& loss) { return loss.worker == worker; });
  EXPECT_TRUE(first) << "the place was never come to";
  if (std::string(p.how) == "hang" && place == "exchange") {
    const char* const wanted = p.hosts ? "hung (worker 4 has not arrived at all_gather number "
                                       : "hung (worker 2 has not arrived at barrier number ";
    EXPECT_NE(lost[0].how.find(wanted), std::string::npos) << lost[0].how;
  }
}

std::vector<Place> places() {
  std::vector<Place> all;
  for (const char* place :
       {"backward", "exchange", "gather", "update", "validation", "join", "publish"}) {
    for (const char* how : {"kill", "stop", "hang"}) all.push_back({place, how});
    for (const char* how : {"kill", "hang"}) all.push_back({place, how, true});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, FailPoints, ::testing::ValuesIn(places()));

// Members that share memory divide the pieces of the gradients of such a network.
TrainingProblem dense_problem() {
  Network network({image_input({.height = 28, .width = 28, .channels = 1}), flatten(),
                   fully_connected({.units = 300}), relu(), fully_connected({.units = 150}), relu(),
                   fully_connected({.units = 10}), softmax()});
  network.initialize(11);
  return {std::move(network), testing::law_data()};
}

TrainingProblem failing_dense_problem(Failure f) {
  testing::failure() = std::move(f);
  set_fail_point_hook(fail_here);
  return dense_problem();
}

// A member that is lost after the exchange of operands leaves an iteration that the others finish:
// they have begun to update. Members that are lost before leave one that is computed again.
TEST(Recovery, MembersThatDividePieces) {
  TrainingProblem undisturbed = dense_problem();
  TrainingOptions options = testing::law_options(2);
  options.solver.initial_learning_rate = 0.002;
  const TrainingResult one = train(undisturbed.network, undisturbed.data, options);
  options.threads = 1;
  options.workers.count = 3;
  options.workers.limit = 1.5;
  const testing::TemporaryFolder folder;
  // Which members compute a piece of an iteration depends on who is faster.
  for (const Failure& failure :
       {Failure{"backward", "kill", 2, 7}, Failure{"exchange", "kill", 2, 7},
        Failure{"update", "kill", 2, 7},
        Failure{"piece", "kill once", 0, 7, -1, "", folder.path + "/once"},
        Failure{"gather", "kill", 2, -1}, Failure{"gather", "hang", 2, -1}}) {
    SCOPED_TRACE(failure.place + ", " + failure.how);
    Follower follower;
    const auto call = make_call<&failing_dense_problem>(failure);
    TrainingProblem problem = dense_problem();
    TrainingControl control;
    control.observers.push_back(&follower);
    const TrainingResult result = train(call, problem.network, problem.data, options, control);
    EXPECT_EQ(result.digest, one.digest);
    EXPECT_EQ(result.iterations.back().chain, one.iterations.back().chain);
    ASSERT_EQ(losses(follower).size(), 1u);
    if (failure.worker > 0) {
      EXPECT_EQ(losses(follower)[0].worker, failure.worker);
    }
  }
}

// No other process on that host can report that it does not arrive.
TEST(Recovery, AWorkerThatHangsAloneOnItsHostIsEndedAlone) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  Follower follower;
  TrainingOptions options = long_options(0);
  testing::place_on_hosts(options, {"localhost:2", "127.0.0.2:1"});
  options.workers.limit = 1.5;
  const TrainingResult result =
      run(options, follower, {"exchange", "hang", 1, 37, -1, "127.0.0.2"});
  expect_undisturbed(result, follower, 60);
  const auto lost = losses(follower);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].worker, 3u);
  EXPECT_EQ(lost[0].host, "127.0.0.2");
  EXPECT_EQ(lost[0].how, "hung (worker 3 has not arrived where other hosts wait) and was ended");
}

// Three deaths, the last one with the shard alone. With several threads in each worker, other
// shards are under way in the first two.
TEST(Recovery, AShardThatAlwaysEndsItsWorkerStopsTheRun) {
  for (const char* how : {"fault", "abort", "exit"}) {
    for (const int64_t threads : {1, 2}) {
      Follower follower;
      TrainingOptions options = long_options(3);
      options.threads = threads;
      try {
        run(options, follower, {"backward", how, 0, 9, 4});
        FAIL() << "it went on";
      } catch (const Error& e) {
        const std::string text = e.what();
        EXPECT_NE(text.find("shard 5 of iteration 9 has ended 3 workers, the last time computed "
                            "alone; the last one "),
                  std::string::npos)
            << text;
        EXPECT_NE(text.find("its observations are: 3/294.png, 1/620.png, "), std::string::npos)
            << text;
      }
      // The third death ends the training before it is reported.
      EXPECT_EQ(losses(follower).size(), 2u) << how << ", " << threads << " threads";
    }
  }
}

// A SIGKILL comes from outside, even repeatedly in the middle of the same shard.
TEST(Recovery, KillsFromOutsideWithinAnIterationBlameNoShard) {
  for (const int64_t workers : {1, 3}) {
    const testing::TemporaryFolder folder;
    Follower follower;
    Failure failure{"backward", "be killed", 0, 9, 4};
    failure.file = folder.path + "/kills";
    const TrainingResult result = run(long_options(workers), follower, failure);
    expect_undisturbed(result, follower, 60);
    EXPECT_EQ(std::filesystem::file_size(failure.file), static_cast<uintmax_t>(kKillsOfAShard));
    EXPECT_EQ(losses(follower).size(), static_cast<size_t>(kKillsOfAShard));
  }
}

// The same SIGKILL is the shard's fault if the control group reports that memory was exhausted.
TEST(Recovery, AShardThatNeedsTooMuchMemoryStopsTheRun) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.path + "/memory.oom_control";
  std::ofstream(file) << "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n";
  OomKills::set_file(file);
  Follower follower;
  Failure failure{"backward", "no memory", 0, 9, 4};
  failure.file = file;
  try {
    run(long_options(2), follower, failure);
    ADD_FAILURE() << "it went on";
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("shard 5 of iteration 9 has ended 3 workers"), std::string::npos) << text;
    EXPECT_NE(text.find("its control group had no memory left"), std::string::npos) << text;
  }
  OomKills::set_file("");
  EXPECT_EQ(losses(follower).size(), 2u);
}

TEST(Recovery, ErrorsOfWorkersAreRethrown) {
  Follower follower;
  try {
    run(long_options(2), follower, {"update", "throw", 2, 9, -1});
    FAIL() << "it went on";
  } catch (const DataError& e) {
    EXPECT_EQ(std::string(e.what()), "worker 2: [test] thrown on purpose");
    EXPECT_EQ(e.hint(), "do not");
  }
}

}  // namespace
}  // namespace lockstep
