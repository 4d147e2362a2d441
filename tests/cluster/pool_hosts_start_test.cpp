// Hosts of a pool that are lost, late or not there while they start.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/cluster/host_pools.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing_hosts::host_of;
using testing_hosts::HostPool;
using testing_hosts::TaskPtr;
using testing_hosts::where;

// A launch command that does something else at its first starts, and then runs what it is given.
// Counts its starts.
class Launcher {
 public:
  Launcher(const std::string& first, int times) {
    std::ofstream(script()) << "host=$1; shift\n"
                            << "echo >> " << list() << "\n"
                            << "if [ $(wc -l < " << list() << ") -le " << times << " ]; then\n"
                            << first << "\nfi\n"
                            << "exec env HOST=$host \"$@\"\n";
  }

  std::string command() const { return "sh " + script() + " {host}"; }
  int starts() const {
    std::ifstream file(list());
    int lines = 0;
    for (std::string line; std::getline(file, line);) ++lines;
    return lines;
  }

 private:
  std::string script() const { return folder_.path + "/script"; }
  std::string list() const { return folder_.path + "/starts"; }

  const testing::TemporaryFolder folder_;
};

// As at any other time: see PoolHosts.AHostWhoseAgentIsKilledIsLostAtOnce.
TEST(PoolHostsStart, AHostThatIsLostWhileItStartsIsReplaced) {
  for (const char* const first : {"kill -KILL $$", "kill -TERM $$", "kill -STOP $$", "exit 255"}) {
    const Launcher launcher(first, 2);
    HostPool pool({{"", 1}, {"two", 2}}, launcher.command());
    EXPECT_EQ(host_of(pool, pool.submit_to<&where>(1)), "two") << first;
    EXPECT_EQ(host_of(pool, pool.submit_to<&where>(2)), "two") << first;
    EXPECT_EQ(launcher.starts(), 3) << first;
  }
}

// From before it has joined until after its workers are ready.
TEST(PoolHostsStart, AHostMayBeLostAtAnyTimeOfItsStart) {
  for (const char* const seconds : {"0.02", "0.05", "0.1", "0.15", "0.2", "0.3"}) {
    const Launcher launcher("exec timeout -s KILL " + std::string(seconds) + " \"$@\"", 1);
    HostPool pool({{"", 1}, {"two", 1}}, launcher.command());
    const TaskPtr task = pool.submit_to<&where>(1);
    pool.wait(task);
    // Where it was quick, the task was done before, or lost while it ran.
    if (task->state == TaskState::finished) continue;
    EXPECT_NE(task->error.message.find("while it ran task"), std::string::npos)
        << seconds << ": " << task->error.message;
  }
}

TEST(PoolHostsStart, AHostThatNeverStartsIsGivenUp) {
  for (const auto& [launch, starts] : {std::pair("exit 1", 8), std::pair("exit 127", 1)}) {
    const Launcher launcher(launch, 1000);
    HostPool pool({{"", 1}, {"two", 1}}, launcher.command());
    const TaskPtr task = pool.submit_to<&where>(1);
    pool.wait(task);
    EXPECT_EQ(task->state, TaskState::failed);
    EXPECT_NE(task->error.message.find("[pool] workers end before they are ready: could not be "
                                       "started (host two is lost: its process exited"),
              std::string::npos)
        << task->error.message;
    EXPECT_GE(launcher.starts(), starts);
    EXPECT_LE(launcher.starts(), starts + 1) << "the next one may be on its way";
  }
}

// The shell's variable `host` has the host's name.
TEST(PoolHostsStart, TasksWaitForTheHostsThatStillStart) {
  const Launcher launcher("[ $host = one ] || exit 127; sleep 1", 1000);
  HostPool pool({{"one", 1}, {"two", 1}}, launcher.command());
  const TaskPtr any = pool.submit_to<&where>(-1), there = pool.submit_to<&where>(1);
  pool.wait(there);
  EXPECT_EQ(there->state, TaskState::failed);
  EXPECT_EQ(host_of(pool, any), "one");
}

TEST(PoolHostsStart, TasksFailOnceAllHostsAreGivenUp) {
  const Launcher launcher("[ $host = one ] && exit 127; exit 1", 1000);
  HostPool pool({{"one", 1}, {"two", 1}}, launcher.command());
  const TaskPtr task = pool.submit_to<&where>(-1);
  pool.wait(task);
  EXPECT_EQ(task->state, TaskState::failed);
  EXPECT_GE(launcher.starts(), 9) << "8 of a host that may yet start, 1 of the other one";
}

// While this exists, keys of hosts lie in the folder `path`.
struct KeyFolder {
  explicit KeyFolder(const std::string& path) { setenv("LOCKSTEP_KEY_FOLDER", path.c_str(), 1); }
  ~KeyFolder() { unsetenv("LOCKSTEP_KEY_FOLDER"); }
};

TEST(PoolHostsStart, WhatKeepsAHostFromStartingMayPass) {
  const testing::TemporaryFolder folder;
  const KeyFolder key_folder(folder.path + "/later");
  for (const bool passes : {false, true}) {
    HostPool pool({{"one", 1}});
    const TaskPtr task = pool.submit_to<&where>(0);
    if (passes) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      std::filesystem::create_directory(folder.path + "/later");
      EXPECT_EQ(host_of(pool, task), "one");
      continue;
    }
    pool.wait(task);
    EXPECT_EQ(task->state, TaskState::failed);
    EXPECT_NE(task->error.message.find("/later/lockstep-key-"), std::string::npos)
        << task->error.message;
  }
}

TEST(PoolHostsStart, ALaunchCommandThatIsNotThereIsReportedAtOnce) {
  HostPool pool({{"one", 1}}, "no-such-launcher");
  const TimeLimit least(1);  // repeated attempts take three seconds
  const TaskPtr task = pool.submit_to<&where>(0);
  pool.wait(task);
  EXPECT_EQ(task->state, TaskState::failed);
  EXPECT_FALSE(least.reached());
  EXPECT_NE(task->error.message.find("no-such-launcher cannot be started: No such file"),
            std::string::npos)
      << task->error.message;
}

}  // namespace
}  // namespace lockstep
