// Out-of-memory kills of the control group, by both versions of its files.
#include "lockstep/parallel/process/oom_kills.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/data/support.h"

namespace lockstep {
namespace {

TEST(OomKills, CountWhatIsNew) {
  const testing::TemporaryFolder folder;
  const std::string v1 = folder.path + "/memory.oom_control", v2 = folder.path + "/memory.events";
  const auto write = [&](const std::string& file, int count) {
    const std::string number = std::to_string(count) + "\n";
    std::ofstream(file) << (file == v1 ? "oom_kill_disable 0\nunder_oom 0\noom_kill " + number
                                       : "low 0\nhigh 3\nmax 9\noom 8\noom_kill " + number +
                                             "oom_group_kill 5\n");
  };
  for (const std::string& file : {v1, v2}) {
    write(file, 4);
    OomKills kills(file);
    EXPECT_FALSE(kills.take()) << "kills before the beginning do not count";
    write(file, 6);
    EXPECT_TRUE(kills.take());
    EXPECT_TRUE(kills.take());
    EXPECT_FALSE(kills.take());
    write(file, 0);  // the file of another control group
    EXPECT_FALSE(kills.take());
    write(file, 1);
    EXPECT_TRUE(kills.take());
  }
}

TEST(OomKills, WithoutAFileThereAreNone) {
  const testing::TemporaryFolder folder;
  OomKills kills(folder.path + "/missing");
  EXPECT_FALSE(kills.take());
  for (const char* const text : {"", "oom_kill", "oom_kill many\n", "oom_killer 3\n"}) {
    const std::string file = folder.path + "/odd";
    std::ofstream(file) << text;
    OomKills odd(file);
    EXPECT_FALSE(odd.take()) << text;
  }
}

}  // namespace
}  // namespace lockstep
