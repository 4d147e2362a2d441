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
#include "lockstep/base/os/descriptor.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/state/state_digest.h"
#include "tests/data/support.h"
#include "tests/parallel/network.h"

namespace lockstep {
namespace {

using testing::expect_undisturbed;
using testing::failing_problem;
using testing::Failure;
using testing::Follower;
using testing::long_options;
using testing::losses;
using testing::run_with_failure;
using testing::undisturbed;

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
  // The replacement takes longer than the others, also on busy cores.
  const TrainingResult result =
      run_with_failure(long_options(3), follower, {"problem", "slow", 4, -1, -1});
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
  const TrainingResult result = run_with_failure(long_options(4, epochs), follower);
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
  expect_undisturbed(run_with_failure(long_options(3), follower), follower, 60);
  EXPECT_EQ(losses(follower).size(), 6u);
}

TEST(Recovery, AStoppedWorkerIsEndedAndReplaced) {
  Follower follower;
  follower.on_iteration = [&](const IterationRecord& r) {
    if (r.iteration == 20) kill(follower.first_present(), SIGSTOP);
  };
  expect_undisturbed(run_with_failure(long_options(3), follower), follower, 60);
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
      // There is time for replacements to join, however slow the machine is.
      if (killed < 3 && follower.present.size() < 3) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
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
  expect_undisturbed(run_with_failure(long_options(3), follower, {}, control), follower, 60);
  EXPECT_EQ(losses(follower).size(), 1u);
}

TEST(Recovery, ALossThatIsNotANumberEndsTheTraining) {
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
  EXPECT_THROW(run_with_failure(long_options(1), follower, {"update", "fault", 0, 7, -1}), Error);
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
  expect_undisturbed(run_with_failure(long_options(2), follower), follower, 60);
  EXPECT_TRUE(losses(follower).empty());
  ASSERT_EQ(follower.notices.size(), 1u);
  EXPECT_NE(follower.notices[0].find("a connection without a key"), std::string::npos);
}

// No other process on that host can report that it does not arrive.
TEST(Recovery, AWorkerThatHangsAloneOnItsHostIsEndedAlone) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  Follower follower;
  TrainingOptions options = long_options(0);
  testing::place_on_hosts(options, {"localhost:2", "127.0.0.2:1"});
  options.workers.limit = 1.5;
  const TrainingResult result =
      run_with_failure(options, follower, {"exchange", "hang", 1, 37, -1, "127.0.0.2"});
  expect_undisturbed(result, follower, 60);
  const auto lost = losses(follower);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].worker, 3u);
  EXPECT_EQ(lost[0].host, "127.0.0.2");
  EXPECT_EQ(lost[0].how, "hung (worker 3 has not arrived where other hosts wait) and was ended");
}

TEST(Recovery, ErrorsOfWorkersAreRethrown) {
  Follower follower;
  try {
    run_with_failure(long_options(2), follower, {"update", "throw", 2, 9, -1});
    FAIL() << "it went on";
  } catch (const DataError& e) {
    EXPECT_EQ(std::string(e.what()), "worker 2: [test] thrown on purpose");
    EXPECT_EQ(e.hint(), "do not");
  }
}

}  // namespace
}  // namespace lockstep
