// The dashboard's list of runs: what counts as a change.
#include "lockstep/report/dashboard/run_list.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/os/file_lock.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class RunListTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_ / "run");
    std::ofstream(folder_ / "run/job.json") << R"({"name": "a"})";
  }

  void write_log(const std::string& text, bool anew = false) const {
    std::ofstream(folder_ / "run/log.jsonl", anew ? std::ios::trunc : std::ios::app) << text;
  }
  // A new list looks at every run.
  nlohmann::ordered_json summary(RunList& list) const {
    list.refresh();
    return list.summaries().at(0);
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path;
};

// The page of a running run would refresh for ever.
TEST_F(RunListTest, ALogThatCannotBeReadChangesNothing) {
  fs::create_directory(folder_ / "run/log.jsonl");  // root could read a file without permissions
  const auto lock = FileLock::take((folder_ / "run/lock").string());
  RunList list({folder_.string()}, "");
  const auto first = summary(list);
  EXPECT_EQ(first["status"], "running");
  EXPECT_EQ(first["damage"], "log.jsonl cannot be read");
  const int64_t version = list.version();
  for (int i = 0; i < 3; ++i) list.refresh();
  EXPECT_EQ(list.version(), version);
  EXPECT_TRUE(list.summaries(version).empty());
  fs::remove(folder_ / "run/log.jsonl");
  write_log(R"({"iteration":2,"loss":1.5})"
            "\n");
  list.refresh();
  EXPECT_GT(list.version(), version);
  EXPECT_EQ(list.summaries().at(0)["loss"], 1.5);
  EXPECT_TRUE(list.summaries().at(0)["damage"].is_null());
}

TEST_F(RunListTest, ALogThatIsWrittenAnewIsReadAnew) {
  write_log(R"({"iteration":1,"epoch":1,"validation_loss":0.5,"validation_accuracy":0.25})"
            "\n"
            R"({"iteration":2,"loss":1.5})"
            "\n");
  RunList list({folder_.string()}, "");
  EXPECT_EQ(summary(list)["best_loss"], 0.5);
  EXPECT_EQ(summary(list)["iteration"], 2);
  write_log(R"({"iteration":1,"loss":2.5,"accuracy":0.125})"
            "\n"
            R"({"iteration":1,"epoch":1,"validation_loss":0.75,"validation_accuracy":0.125})"
            "\n",
            true);
  list.annotate(list.summaries().at(0)["id"], {}, "looked at");
  const auto now = list.summaries().at(0);
  EXPECT_EQ(now["iteration"], 1);
  EXPECT_EQ(now["best_loss"], 0.75);
  EXPECT_TRUE(now["damage"].is_null());
}

}  // namespace
}  // namespace lockstep
