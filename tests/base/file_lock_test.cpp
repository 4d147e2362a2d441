#include "lockstep/base/os/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"

namespace lockstep {
namespace {

class Locks : public ::testing::Test {
 protected:
  Locks() {
    std::string pattern = (std::filesystem::temp_directory_path() / "locks.XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~Locks() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ / name; }

  // Whether it holds in another process, a child without exec().
  static bool elsewhere(const std::function<bool()>& holds) {
    const pid_t child = fork();
    if (child == 0) _exit(holds() ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  std::filesystem::path folder_;
};

TEST_F(Locks, OneHolderAtATime) {
  EXPECT_FALSE(file_is_locked(path("a")));
  EXPECT_FALSE(std::filesystem::exists(path("a")));
  auto lock = FileLock::take(path("a"));
  ASSERT_TRUE(lock);
  EXPECT_TRUE(file_is_locked(path("a")));
  EXPECT_FALSE(FileLock::take(path("a"))) << "not even in the same process";
  EXPECT_TRUE(FileLock::take(path("b"))) << "another file";
  EXPECT_TRUE(elsewhere([&] { return file_is_locked(path("a")) && !FileLock::take(path("a")); }));
  auto moved = std::move(lock);
  EXPECT_TRUE(file_is_locked(path("a")));
  moved.reset();
  EXPECT_FALSE(file_is_locked(path("a")));
  EXPECT_TRUE(elsewhere([&] { return FileLock::take(path("a")).has_value(); }));
  EXPECT_TRUE(FileLock::take(path("a"))) << "its process has ended";
  EXPECT_THROW(FileLock::take(path("none/a")), FileError);
}

TEST_F(Locks, ThreadsTakeThemAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 50; ++k) {
        const auto mine = FileLock::take(path(std::to_string(i)));
        EXPECT_TRUE(mine);
        EXPECT_TRUE(file_is_locked(path(std::to_string(i))));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(file_is_locked(path(std::to_string(i))));
}

// A FIFO without a writer is opened as late as a file on a network file system that hangs.
TEST_F(Locks, OneThatHangsDoesNotBlockOthers) {
  auto before = FileLock::take(path("before"));
  ASSERT_EQ(mkfifo(path("hangs").c_str(), 0600), 0);
  std::thread hanging([&] { EXPECT_FALSE(file_is_locked(path("hangs"))); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::promise<void> done;
  std::thread others([&] {
    before.reset();
    EXPECT_FALSE(file_is_locked(path("before")));
    EXPECT_TRUE(FileLock::take(path("after")));
    done.set_value();
  });
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  // The reader then goes on. Opened for both, because opening for writing alone waits for a reader.
  const Descriptor writer(open(path("hangs").c_str(), O_RDWR | O_CLOEXEC));
  hanging.join();
  others.join();
}

// Otherwise two processes could hold the lock of one path.
TEST_F(Locks, WhoWaitsForARemovedFileLocksANewOne) {
  auto first = FileLock::take(path("a"));
  std::optional<FileLock> second;
  std::thread waiting([&] { second = FileLock::take(path("a")); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::filesystem::remove(path("a"));
  first.reset();
  waiting.join();
  ASSERT_TRUE(second);
  EXPECT_TRUE(file_is_locked(path("a")));
}

// A child that lives on, such as one that is stopped before it runs its program, does not keep the
// lock of a process that was killed.
TEST_F(Locks, ChildrenDoNotHoldThem) {
  int pipe_of_child[2];
  ASSERT_EQ(pipe(pipe_of_child), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    const auto lock = FileLock::take(path("a"));
    const pid_t child = fork();
    if (child == 0) {
      pause();
      _exit(0);
    }
    if (write(pipe_of_child[1], &child, sizeof child) != sizeof child) _exit(1);
    pause();
    _exit(lock ? 0 : 1);
  }
  pid_t child = 0;
  ASSERT_EQ(::read(pipe_of_child[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  EXPECT_TRUE(file_is_locked(path("a")));
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  EXPECT_EQ(kill(child, 0), 0) << "the child lives";
  EXPECT_FALSE(file_is_locked(path("a")));
  EXPECT_TRUE(FileLock::take(path("a")));
  kill(child, SIGKILL);
  for (const int end : pipe_of_child) close(end);
}

}  // namespace
}  // namespace lockstep
