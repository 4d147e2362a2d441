// Trainings by workers on several hosts, the loss of hosts, and the reports of it.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/process/function.h"
#include "tests/data/support.h"
#include "tests/parallel/network.h"
#include "tests/train/recovery.h"

namespace lockstep {
namespace {

using testing::expect_undisturbed;
using testing::Follower;
using testing::losses;
using testing::place_on_hosts;

using Clock = std::chrono::steady_clock;

TrainingResult run(const TrainingOptions& options, Follower& follower,
                   TrainingControl control = {}) {
  const auto call = make_call<&testing::law_problem>();
  TrainingProblem problem = testing::law_problem();
  control.observers.push_back(&follower);
  return train(call, problem.network, problem.data, options, control);
}

TrainingOptions two_more(int64_t epochs = 60) {
  TrainingOptions options = testing::long_options(0, epochs);
  place_on_hosts(options, {"localhost:1", "127.0.0.2:2", "127.0.0.3:1"});
  return options;
}

pid_t parent_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream rest(line.substr(line.rfind(')') + 2));
  char state = 0;
  pid_t parent = 0;
  rest >> state >> parent;
  return parent;
}

TEST(Hosts, AWorkerThatIsKilledThereIsReplaced) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  Follower follower;
  std::map<uint32_t, pid_t> before;
  follower.on_iteration = [&](const IterationRecord& r) {
    if (r.iteration != 41) return;
    before = follower.present;
    ASSERT_EQ(before.size(), 4u);
    kill(before.at(3), SIGKILL);
  };
  expect_undisturbed(run(two_more(), follower), follower, 60);
  const auto lost = losses(follower);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].worker, 3u);
  EXPECT_EQ(lost[0].how, "was killed by signal 9 (SIGKILL)");
  EXPECT_LT(lost[0].seconds, 0.5);
  // The other workers are the same processes, and a new one has come.
  for (const uint32_t worker : {1u, 2u, 4u}) {
    EXPECT_EQ(follower.present.at(worker), before.at(worker));
  }
  EXPECT_EQ(follower.present.count(5), 1u);
}

// The course of a training after a signal to a host's agent at iteration 41, which ends two
// workers: seconds until the report, and until the next iteration.
struct HostLoss {
  double noticed = 0, next = 0;
};

HostLoss lose_a_host(int signal) {
  struct Timed : Follower {
    void worker(const WorkerChange& c) override {
      Follower::worker(c);
      if (!c.joined && !told) told = Clock::now();
    }
    std::optional<Clock::time_point> told;
  } follower;
  std::optional<Clock::time_point> done, went_on;
  follower.on_iteration = [&](const IterationRecord& r) {
    if (r.iteration == 41) {
      EXPECT_EQ(kill(parent_of(follower.present.at(2)), signal), 0);
      done = Clock::now();
    } else if (follower.told && !went_on) {
      went_on = Clock::now();
    }
  };
  expect_undisturbed(run(two_more(), follower), follower, 60);
  const auto lost = losses(follower);
  EXPECT_EQ(lost.size(), 2u);
  for (const auto& loss : lost) {
    EXPECT_NE(loss.how.find("host 127.0.0.2 is lost"), std::string::npos) << loss.how;
  }
  if (!follower.told || !went_on) return {1e9, 1e9};
  const HostLoss times{std::chrono::duration<double>(*follower.told - *done).count(),
                       std::chrono::duration<double>(*went_on - *done).count()};
  std::printf("told after %.0f ms, the next iteration after %.0f ms\n", times.noticed * 1000,
              times.next * 1000);
  return times;
}

TEST(Hosts, AHostThatIsKilledIsNoticedAtOnce) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  EXPECT_LT(lose_a_host(SIGKILL).next, 1);
}

// The required limits: noticed within 2 s, and computing again half a second and an iteration
// later.
TEST(Hosts, AHostThatFallsSilentIsNoticedWithinTwoSeconds) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  const HostLoss loss = lose_a_host(SIGSTOP);
  EXPECT_LT(loss.noticed, 2.5);
  EXPECT_LT(loss.next, 3);
}

TEST(Hosts, AllOfThemMayBeElsewhereAndDie) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  Follower follower;
  TrainingOptions options = testing::long_options(0);
  place_on_hosts(options, {"127.0.0.2:2", "127.0.0.3:1"});
  follower.on_iteration = [&](const IterationRecord& r) {
    if (r.iteration != 41) return;
    for (const auto& [worker, pid] : follower.present) kill(pid, SIGKILL);
  };
  expect_undisturbed(run(options, follower), follower, 60);
  EXPECT_GE(losses(follower).size(), 3u);
}

TEST(Hosts, StopsAndContinuesElsewhere) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  const testing::TemporaryFolder folder;
  TrainingControl control;
  control.checkpoint_folder = folder.path;
  Follower first, second;
  bool stop = false;
  first.on_iteration = [&](const IterationRecord& r) { stop = r.iteration == 77; };
  control.stop = [&] { return stop; };
  EXPECT_TRUE(run(two_more(), first, control).stopped);
  control.stop = {};
  control.resume = true;
  TrainingOptions options = testing::long_options(0);
  place_on_hosts(options, {"127.0.0.4:3"});
  second.last = 77;  // it fails when another host is reported before the next one
  EXPECT_EQ(run(options, second, control).digest, testing::undisturbed(60).digest);
  EXPECT_EQ(second.last, 240);
}

TEST(Hosts, UnreachableHostsAreReported) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  Follower follower;
  TrainingOptions options = two_more();
  options.workers.host_launch = "false";
  try {
    run(options, follower);
    FAIL() << "it trained";
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("host 127.0.0."), std::string::npos) << text;
    EXPECT_NE(text.find("exited with status 1"), std::string::npos) << text;
  }
}

TEST(Hosts, MayHaveAddressesOfIpv6) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  if (!testing::has_ipv6()) GTEST_SKIP() << "this machine has no IPv6";
  Follower follower;
  TrainingOptions options = testing::long_options(0);
  place_on_hosts(options, {"localhost:1", "[::1]:2"});
  options.workers.host_address = "::1";
  expect_undisturbed(run(options, follower), follower, 60);
}

// Files by which the processes of a network synchronize.
class Signs {
 public:
  void set(const std::string& name, const std::string& text = "x") const {
    // Appears at once with its contents.
    std::ofstream(folder_.path + "/" + name + ".new") << text;
    std::filesystem::rename(folder_.path + "/" + name + ".new", folder_.path + "/" + name);
  }
  std::string wait(const std::string& name) const {
    for (const TimeLimit limit(60); !limit.reached();) {
      std::ifstream file(folder_.path + "/" + name);
      if (std::string text; file >> text) return text;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    throw Timeout("[test] nobody says " + name);
  }

 private:
  testing::TemporaryFolder folder_;
};

// The processes of a network do not see failures, so these are checked here.
void expect_no_failure() {
  if (::testing::Test::HasFailure()) throw Error("[test] failed, see above");
}

TrainingOptions on_network_of_three(const Signs& signs, int64_t epochs) {
  TrainingOptions options = testing::long_options(4, epochs);
  options.workers.hosts = {"localhost:1", signs.wait("host1") + ":2", signs.wait("host2") + ":1"};
  options.workers.host_launch = "nsenter --target {host} --net";
  options.workers.host_address = testing::address_of(0);
  return options;
}

// The client reaches both hosts, but they do not reach each other.
TEST(Hosts, HostsThatDoNotReachEachOtherAreReported) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  if (!testing::why_no_network().empty()) GTEST_SKIP() << testing::why_no_network();
  const Signs signs;
  const int failed = testing::on_network(3, [&](int host) {
    if (host > 0) {
      testing::shun(3 - host);
      signs.set("host" + std::to_string(host), std::to_string(getpid()));
      signs.wait("done");
      return;
    }
    struct Listener : Follower {
      void notice(const std::string& text) override { notices.push_back(text); }
      std::vector<std::string> notices;
    } follower;
    try {
      run(on_network_of_three(signs, 1), follower);
      ADD_FAILURE() << "it trained";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("the workers did not form a group"), std::string::npos)
          << e.what();
    }
    EXPECT_EQ(follower.notices.size(), 1u);
    signs.set("done");
    expect_no_failure();
  });
  EXPECT_EQ(failed, 0);
}

// The client hears both hosts, but after a while the hosts do not hear each other. No worker hangs,
// so none is ended. When they hear each other again, the training continues.
TEST(Hosts, BetweenWhichBytesAreLostComeTogetherAgain) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  if (!testing::why_no_network().empty()) GTEST_SKIP() << testing::why_no_network();
  const Signs signs;
  const int failed = testing::on_network(3, [&](int host) {
    if (host > 0) {
      signs.set("host" + std::to_string(host), std::to_string(getpid()));
      if (host == 1) {
        signs.wait("shun");
        testing::shun(2);
        signs.set("shunned");
        signs.wait("unshun");
        testing::unshun(2);
      }
      signs.wait("done");
      return;
    }
    struct Listener : Follower {
      explicit Listener(const Signs& s) : signs(s) {}
      void notice(const std::string& text) override {
        notices.push_back(text);
        if (notices.size() == 1) signs.set("unshun");
      }
      const Signs& signs;
      std::vector<std::string> notices;
    } follower(signs);
    follower.on_iteration = [&](const IterationRecord& r) {
      if (r.iteration != 40) return;
      signs.set("shun");
      signs.wait("shunned");
    };
    TrainingOptions options = on_network_of_three(signs, 60);
    options.workers.limit = 4;
    expect_undisturbed(run(options, follower), follower, 60);
    EXPECT_EQ(losses(follower).size(), 0u);
    EXPECT_FALSE(follower.notices.empty());
    for (const std::string& text : follower.notices) {
      EXPECT_NE(text.find("the workers did not form a group"), std::string::npos) << text;
    }
    signs.set("done");
    expect_no_failure();
  });
  EXPECT_EQ(failed, 0);
}

// On hosts with separate networks: the client on the first, workers on all three. The third is
// disconnected for a while.
void train_on_network(const Signs& signs) {
  struct Timed : Follower {
    void worker(const WorkerChange& c) override {
      Follower::worker(c);
      (c.joined ? joined : told) = Clock::now();
    }
    void notice(const std::string& text) override { notices.push_back(text); }
    std::optional<Clock::time_point> told, joined;
    std::vector<std::string> notices;
  } follower;
  constexpr int64_t kEpochs = 150;
  const TrainingOptions options = on_network_of_three(signs, kEpochs);
  std::optional<Clock::time_point> pulled, went_on;
  bool plugged = false;
  follower.on_iteration = [&](const IterationRecord& r) {
    if (r.iteration == 40) {
      signs.set("pull");
      signs.wait("pulled");
      pulled = Clock::now();
    } else if (follower.told && !went_on) {
      went_on = Clock::now();
    } else if (went_on && !plugged && !follower.notices.empty()) {
      plugged = true;
      signs.set("plug");
    }
    // There is time for it to return.
    if (went_on && follower.present.size() < 4) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  };
  expect_undisturbed(run(options, follower), follower, kEpochs);
  if (!went_on || !plugged) throw Error("[test] nothing was lost");
  const std::chrono::duration<double> noticed = *follower.told - *pulled, next = *went_on - *pulled;
  std::printf("cable pulled: told after %.0f ms, the next iteration after %.0f ms\n",
              noticed.count() * 1000, next.count() * 1000);
  std::fflush(stdout);
  EXPECT_LT(noticed.count(), 2.5);
  EXPECT_LT(next.count(), 3);
  EXPECT_EQ(losses(follower).size(), 1u);
  EXPECT_EQ(follower.notices.size(), 1u);
  EXPECT_EQ(follower.present.size(), 4u) << "it has not come again";
  expect_no_failure();
}

TEST(Hosts, HostsWithAPulledCableAreLostAndReturn) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  if (!testing::why_no_network().empty()) GTEST_SKIP() << testing::why_no_network();
  const Signs signs;
  const int failed = testing::on_network(3, [&](int host) {
    if (host == 0) {
      train_on_network(signs);
      signs.set("done");
      return;
    }
    signs.set("host" + std::to_string(host), std::to_string(getpid()));
    if (host == 2) {
      signs.wait("pull");
      testing::pull_cable(2);
      signs.set("pulled");
      signs.wait("plug");
      testing::plug_cable(2);
    }
    signs.wait("done");
  });
  EXPECT_EQ(failed, 0);
}

}  // namespace
}  // namespace lockstep
