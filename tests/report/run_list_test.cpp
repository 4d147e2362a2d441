// The dashboard's list of runs: what counts as a change.
#include "lockstep/report/dashboard/run_list.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

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

TEST_F(RunListTest, EveryMetricHasItsLastAndItsBestValue) {
  const auto validation = [](int i, const char* f1, const char* rmse) {
    return R"({"iteration":)" + std::to_string(i) +
           R"(,"epoch":1,"validation_loss":1,"validation_metrics":{"f1":)" + f1 + R"(,"rmse":)" +
           rmse + "}}\n";
  };
  write_log(validation(1, "0.5", "4") + validation(2, "0.75", "2") + validation(3, "0.25", "3") +
            validation(4, "null", "5"));
  RunList list({folder_.string()}, "");
  const auto now = summary(list);
  EXPECT_EQ(now["metrics"].dump(), R"({"f1":null,"rmse":5})");
  EXPECT_EQ(now["best"].dump(), R"({"f1":0.75,"rmse":2})");
}

// Widths of a layer, variables and what a user set; not what was resolved to the same.
TEST_F(RunListTest, WhatDiffersKnowsVariablesAndTheNetwork) {
  for (const int width : {4, 8}) {
    const fs::path run = folder_ / ("w" + std::to_string(width));
    fs::create_directory(run);
    std::ofstream(run / "job.json")
        << R"({"name":"w","network":{"layers":[{"name":"conv","type":"convolution2d","filters":)"
        << width << R"(,"kernel":[5,5]}]},"training":{"seed":)" << width
        << R"(,"momentum":0.9,"threads":)" << width << "}}";
    std::ofstream(run / "run.json") << R"({"lockstep.run":"1","variables":{"width":)" << width
                                    << R"(.0},"given":["training.seed","training.momentum"]})";
  }
  RunList list({folder_.string()}, "");
  list.refresh();
  std::vector<std::string> ids(2);
  std::string plain;
  for (const auto& run : list.summaries()) {
    const auto folder = run["folder"].get<std::string>();
    (folder.ends_with("w4") ? ids[0] : folder.ends_with("w8") ? ids[1] : plain) = run["id"];
  }
  const auto found = list.differences(ids);
  EXPECT_EQ(
      found["names"].dump(),
      R"(["variables.width","training.seed","training.threads","network.layers.conv.filters"])");
  EXPECT_EQ(found["set"].dump(), "[true,true,false,false]");
  EXPECT_EQ(found["values"][ids[0]].dump(), R"(["4","4","4","4"])");
  EXPECT_EQ(found["values"][ids[1]].dump(), R"(["8","8","8","8"])");
  EXPECT_EQ(found["left_out"], 0);
  EXPECT_TRUE(list.differences({ids[0], ids[0], "unknown"})["names"].empty());
  // A run without these options differs in all of them.
  EXPECT_EQ(list.differences({})["values"].size(), 3u);
  EXPECT_TRUE(list.differences({})["values"][plain][0].is_null());
}

TEST_F(RunListTest, WhatDiffersHasNamesOfOneRunAndTheFirstOfEqualNames) {
  const auto add = [&](const std::string& name, const std::string& layers) {
    fs::create_directory(folder_ / name);
    std::ofstream(folder_ / name / "job.json") << R"({"network":{"layers":[)" << layers << "]}}";
  };
  const std::string shared = R"({"name":"fc","units":5},)";
  add("x", shared + R"({"name":"a","units":1},{"name":"a","units":2})");
  add("y", shared + R"({"name":"a","units":1},{"name":"a","units":3},{"name":"b","units":4})");
  fs::create_directory(folder_ / "z");  // without a job
  std::ofstream(folder_ / "z/log.jsonl") << "";
  fs::remove_all(folder_ / "run");
  RunList list({folder_.string()}, "");
  list.refresh();
  const auto found = list.differences({});
  EXPECT_EQ(found["names"].dump(), R"(["network.layers.b.units"])");
  std::map<std::string, std::string> values;  // by the last letter of the folder
  for (const auto& run : list.summaries()) {
    values[run["folder"].get<std::string>().substr(run["folder"].get<std::string>().size() - 1)] =
        found["values"][run["id"].get<std::string>()].dump();
  }
  EXPECT_EQ(values["x"], "[null]");
  EXPECT_EQ(values["y"], R"(["4"])");
  EXPECT_EQ(values["z"], "[null]");
}

// As `lockstep runs list` does, not by the name in the job, which many runs share.
TEST_F(RunListTest, RunsAreNamedByTheirFolders) {
  fs::create_directories(folder_ / "search/trials/3");
  std::ofstream(folder_ / "search/trials/3/job.json") << R"({"name": "a"})";
  std::ofstream(folder_ / "search/trials/3/run.json") << R"({"lockstep.run":"1","trial":3})";
  fs::create_directory(folder_ / "digits-2");
  std::ofstream(folder_ / "digits-2/job.json") << R"({"name": "a"})";
  RunList list({folder_.string()}, "");
  list.refresh();
  std::set<std::string> names;
  for (const auto& run : list.summaries()) names.insert(run["name"].get<std::string>());
  EXPECT_EQ(names,
            (std::set<std::string>{"digits-2", "search/3", folder_.filename().string() + "/run"}));
}

}  // namespace
}  // namespace lockstep
