#include "lockstep/base/threads/helping_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(HelpingThreads, RunEveryPartOnce) {
  for (const int helpers : {1, 2, 7}) {
    HelpingThreads threads(helpers);
    for (int round = 0; round < 2000; ++round) {
      const int n = round % 40;
      std::vector<int> calls(static_cast<size_t>(n), 0);  // not atomic: share() orders everything
      threads.share(n, [&](int part) { ++calls[static_cast<size_t>(part)]; });
      for (const int count : calls) ASSERT_EQ(count, 1);
    }
  }
}

TEST(HelpingThreads, HelpTheirCallerAlsoAfterSleep) {
  HelpingThreads threads(1);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // they sleep
    std::atomic<bool> begun = false, helped = false;
    const auto wait_for = [](const std::atomic<bool>& event) {
      for (int i = 0; i < 10'000 && !event; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    };
    const auto caller = std::this_thread::get_id();
    threads.share(2, [&](int part) {
      if (std::this_thread::get_id() != caller) {
        wait_for(begun);
        EXPECT_EQ(part, 1);
        helped = true;
        return;
      }
      begun = true;
      EXPECT_EQ(part, 0);
      wait_for(helped);
    });
    EXPECT_TRUE(helped);
  }
}

TEST(HelpingThreads, RethrowOneExceptionAfterAllParts) {
  HelpingThreads threads(2);
  std::atomic<int> calls = 0;
  EXPECT_THROW(threads.share(50,
                             [&](int part) {
                               ++calls;
                               if (part % 7 == 3) throw std::runtime_error(std::to_string(part));
                             }),
               std::runtime_error);
  EXPECT_EQ(calls, 50);
  threads.share(3, [&](int) { ++calls; });
  EXPECT_EQ(calls, 53);
}

TEST(HelpingThreads, RefuseOtherNumbers) {
  EXPECT_THROW(HelpingThreads(0), InvalidArgument);
  EXPECT_THROW(HelpingThreads(1024), InvalidArgument);
  HelpingThreads threads(1);
  EXPECT_THROW(threads.share(-1, [](int) {}), InvalidArgument);
  EXPECT_THROW(threads.share(HelpingThreads::kMostParts + 1, [](int) {}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
