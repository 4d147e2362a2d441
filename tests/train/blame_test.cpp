// Workers that end while they compute a shard: whether the shard is to blame.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/parallel/process/oom_kills.h"
#include "tests/data/support.h"
#include "tests/train/recovery.h"

namespace lockstep {
namespace {

using testing::expect_undisturbed;
using testing::Failure;
using testing::Follower;
using testing::long_options;
using testing::losses;
using testing::run_with_failure;

// Three deaths, the last one with the shard alone. With several threads in each worker, other
// shards are under way in the first two.
TEST(Recovery, AShardThatAlwaysEndsItsWorkerStopsTheRun) {
  for (const char* how : {"fault", "abort", "exit"}) {
    for (const int64_t threads : {1, 2}) {
      Follower follower;
      TrainingOptions options = long_options(3);
      options.threads = threads;
      try {
        run_with_failure(options, follower, {"backward", how, 0, 9, 4});
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
    const TrainingResult result = run_with_failure(long_options(workers), follower, failure);
    expect_undisturbed(result, follower, 60);
    EXPECT_EQ(std::filesystem::file_size(failure.file),
              static_cast<uintmax_t>(testing::kKillsOfAShard));
    EXPECT_EQ(losses(follower).size(), static_cast<size_t>(testing::kKillsOfAShard));
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
    run_with_failure(long_options(2), follower, failure);
    ADD_FAILURE() << "it went on";
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("shard 5 of iteration 9 has ended 3 workers"), std::string::npos) << text;
    EXPECT_NE(text.find("its control group had no memory left"), std::string::npos) << text;
  }
  OomKills::set_file("");
  EXPECT_EQ(losses(follower).size(), 2u);
}

}  // namespace
}  // namespace lockstep
