// A child that does not reach its program is killed within the limits, so the thread that starts
// it continues. The child waits in a file action, where a FIFO that no process writes is opened.
#include "lockstep/parallel/process/spawn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace lockstep {
namespace {

// A FIFO in a folder of its own.
class Fifo {
 public:
  Fifo() {
    std::string pattern = (std::filesystem::temp_directory_path() / "spawn.XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    if (mkfifo(path().c_str(), 0600) != 0) throw std::runtime_error("mkfifo");
  }
  ~Fifo() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ / "fifo"; }

 private:
  std::filesystem::path folder_;
};

// Starts /bin/true, which opens the file first. Returns the status of waitpid().
int spawn_and_wait(const std::string& file, const SpawnLimits& limits) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 10, file.c_str(), O_RDONLY, 0);
  char name[] = "true";
  char* arguments[] = {name, nullptr};
  pid_t child = -1;
  int error = 0;
  {
    SpawnGuard guard(limits);
    error = posix_spawn(&child, "/bin/true", &actions, nullptr, arguments, environ);
  }
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(error, 0);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

// Stops the only child of `thread` as soon as there is one.
void stop_child_of(pid_t thread) {
  const TimeLimit limit(20);
  while (!limit.reached()) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/children");
    if (pid_t child = 0; file >> child) {
      kill(child, SIGSTOP);
      return;
    }
    usleep(1000);
  }
  ADD_FAILURE() << "no child was started";
}

TEST(SpawnGuard, AChildThatStartsIsLeftAlone) {
  const int status = spawn_and_wait("/dev/null", {});
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(SpawnGuard, AChildThatHangsBeforeItsProgramIsKilled) {
  const Fifo fifo;
  const int status = spawn_and_wait(fifo.path(), {.start = 0.2});
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST(SpawnGuard, AChildThatIsStoppedBeforeItsProgramIsKilled) {
  const Fifo fifo;
  std::thread stopper(stop_child_of, gettid());
  // Far before the limit for its start.
  const TimeLimit early(100);
  const int status = spawn_and_wait(fifo.path(), {.stopped = 0.2, .start = 200});
  stopper.join();
  EXPECT_FALSE(early.reached());
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

// A stopped process that the thread started before is not the guard's.
TEST(SpawnGuard, EarlierChildrenAreLeftAlone) {
  char name[] = "sleep", seconds[] = "100";
  char* arguments[] = {name, seconds, nullptr};
  pid_t earlier = -1;
  ASSERT_EQ(posix_spawn(&earlier, "/bin/sleep", nullptr, nullptr, arguments, environ), 0);
  kill(earlier, SIGSTOP);
  const Fifo fifo;
  EXPECT_TRUE(WIFSIGNALED(spawn_and_wait(fifo.path(), {.stopped = 0.1, .start = 0.5})));
  EXPECT_TRUE(is_stopped(earlier));
  kill(earlier, SIGKILL);
  int status = 0;
  EXPECT_EQ(waitpid(earlier, &status, 0), earlier);
}

}  // namespace
}  // namespace lockstep
