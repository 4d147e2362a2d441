#include "lockstep/storage/reading/fetch_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>

#include "tests/base/waiting.h"

namespace lockstep::storage {
namespace {

using Numbers = std::vector<int64_t>;

// Used by one fetching thread at a time.
struct Fetched {
  std::latch begun{1}, go_on{1};
  std::vector<Numbers> calls;
  std::atomic<size_t> count{0};

  void operator()(const Numbers& numbers) {
    if (calls.empty()) {
      begun.count_down();
      go_on.wait();
    }
    calls.push_back(numbers);
    count += numbers.size();
  }
};

TEST(FetchThreads, ServesRequestsInOrderAndHurriedOnesFirst) {
  Fetched fetched;
  FetchThreads threads(1, 2, [&](const Numbers& numbers) { fetched(numbers); });
  threads.ask(1);
  fetched.begun.wait();
  for (int64_t number = 2; number <= 5; ++number) threads.ask(number);
  threads.hurry(4);
  threads.hurry(1);  // is being fetched
  threads.hurry(9);  // was not requested
  fetched.go_on.count_down();
  EXPECT_TRUE(testing::await([&] { return fetched.count == 5; }));
  EXPECT_EQ(fetched.calls, (std::vector<Numbers>{{1}, {4, 2}, {3, 5}}));
}

TEST(FetchThreads, TheEndWaitsForWhatIsUnderWayAlone) {
  Fetched fetched;
  {
    FetchThreads threads(1, 1, [&](const Numbers& numbers) { fetched(numbers); });
    for (int64_t number = 1; number <= 1000; ++number) threads.ask(number);
    fetched.begun.wait();
    fetched.go_on.count_down();
  }
  EXPECT_GE(fetched.count, 1u);
  EXPECT_EQ(fetched.calls.front(), Numbers{1});
}

TEST(FetchThreads, WithoutRequestsThereIsNoThread) {
  FetchThreads threads(2, 1, [](const Numbers&) { FAIL(); });
}

}  // namespace
}  // namespace lockstep::storage
