// Limits of the system, checked before workers start.
#include "lockstep/parallel/process/resources.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Runs the function in a child process. Returns whether it exited with 0.
bool holds_in_a_process(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0;
}

std::string refusal(const ResourceNeed& need) {
  try {
    check_resources(need);
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint();
  }
  return "";
}

bool contains(const std::string& text, const char* part) {
  if (text.find(part) != std::string::npos) return true;
  std::fprintf(stderr, "no `%s` in `%s`\n", part, text.c_str());
  return false;
}

TEST(Resources, SufficeHere) { EXPECT_EQ(refusal({.workers = 2, .threads = 1}), ""); }

TEST(Resources, DescriptorsAreNamed) {
  EXPECT_TRUE(holds_in_a_process([] {
    const rlimit few{30, 30};
    setrlimit(RLIMIT_NOFILE, &few);
    const std::string text = refusal({.workers = 2, .threads = 1});
    return contains(text, "[workers] 2 workers need ") &&
           contains(text, " open descriptors, the limit is 30 (ulimit -n)") &&
           contains(text, "raise it (ulimit -n ");
  }));
  // A thousand workers need more than twenty descriptors.
  EXPECT_TRUE(holds_in_a_process([] {
    const rlimit some{1000, 1000};
    setrlimit(RLIMIT_NOFILE, &some);
    return refusal({.workers = 20, .threads = 1}).empty() &&
           contains(refusal({.workers = 1000, .threads = 1}), "(ulimit -n)");
  }));
}

TEST(Resources, TheSoftLimitOnDescriptorsIsRaised) {
  EXPECT_TRUE(holds_in_a_process([] {
    const rlimit soft{20, 500};
    setrlimit(RLIMIT_NOFILE, &soft);
    raise_descriptor_limit();
    rlimit now{};
    getrlimit(RLIMIT_NOFILE, &now);
    return now.rlim_cur == 500 && refusal({.workers = 2, .threads = 1}).empty();
  }));
}

TEST(Resources, ProcessesAreNamed) {
  EXPECT_TRUE(holds_in_a_process([] {
    // The limit does not apply to root.
    if (getuid() == 0 && (setgid(65533) != 0 || setuid(65533) != 0)) return false;
    const rlimit few{5, 5};
    setrlimit(RLIMIT_NPROC, &few);
    const std::string text = refusal({.workers = 2, .threads = 3});
    return contains(text, "[workers] 2 workers need ") &&
           contains(text, " more processes and threads, the limit is 5 for this user (ulimit -u)");
  }));
}

TEST(Resources, MemoryIsNamed) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers take memory of their own";
#endif
  EXPECT_TRUE(holds_in_a_process([] {
    const rlimit little{size_t{100} << 20, size_t{100} << 20};
    setrlimit(RLIMIT_DATA, &little);
    return contains(refusal({.workers = 2, .threads = 1}),
                    "its own data is limited to 100 MiB (ulimit -d)");
  }));
}

}  // namespace
}  // namespace lockstep
