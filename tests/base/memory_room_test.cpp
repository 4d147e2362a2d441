// Memory limits: the remaining room, and the names of the limits.
#include "lockstep/base/os/memory_room.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Returns the text that `body` returns in a child process, which has its own limits.
std::string in_a_process(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = body();
    [[maybe_unused]] const ssize_t n = write(ends[1], text.data(), text.size());
    _exit(0);
  }
  close(ends[1]);
  std::string text(4096, ' ');
  const ssize_t n = ::read(ends[0], text.data(), text.size());
  close(ends[0]);
  waitpid(child, nullptr, 0);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "nothing";
}

void limit(__rlimit_resource_t what, size_t mib) {
  const rlimit value{mib << 20, mib << 20};
  setrlimit(what, &value);
}

TEST(MemoryRoom, WithoutALimitThereIsRoom) {
  EXPECT_NO_THROW(check_memory_limit(size_t{1} << 30));
  EXPECT_EQ(out_of_memory_text(), "there is not enough memory");
  EXPECT_EQ(out_of_memory_hint(), "");
}

TEST(MemoryRoom, TheLimitIsNamed) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  const std::string text = in_a_process([] {
    limit(RLIMIT_AS, 2000);
    check_memory_limit(size_t{16} << 20);
    return thrown_by([] { check_memory_limit(size_t{3000} << 20); });
  });
  EXPECT_EQ(text.find("[memory] this process needs 3000 MiB more: its address space is limited to "
                      "2000 MiB (ulimit -v), of which "),
            0u)
      << text;
  EXPECT_NE(text.find(" | raise the limit (ulimit -v), or use fewer threads"), std::string::npos);
}

TEST(MemoryRoom, AnOptionIsNamedInPlaceOfItsLimit) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  const std::string text = in_a_process([] {
    limit_own_data(uint64_t{500} << 20, "worker_memory_mib", 1 << 20);
    return thrown_by([] { check_memory_limit(size_t{600} << 20); });
  });
  EXPECT_NE(text.find("its own data is limited to 500 MiB (worker_memory_mib), of which "),
            std::string::npos)
      << text;
  EXPECT_NE(thrown_by([] {
              limit_own_data(1 << 20, "worker_memory_mib", 1 << 20);
            }).find("[memory] worker_memory_mib = 1 is too small: a process needs "),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
