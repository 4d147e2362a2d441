#include "lockstep/report/pages/run_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using nlohmann::ordered_json;

std::string iteration_line(int64_t iteration, double loss, int64_t epoch = 1, double rate = 0.1) {
  return ordered_json{{"iteration", iteration}, {"epoch", epoch},  {"in_epoch", 1},
                      {"loss", loss},           {"accuracy", 0.5}, {"learning_rate", rate},
                      {"elapsed", 1.5},         {"seconds", 0.25}, {"observations", 32}}
             .dump() +
         "\n";
}

TEST(RunLog, LinesMayComeInChunks) {
  const std::string text = iteration_line(1, 2.5) + iteration_line(2, 2.25, 2, 0.05) +
                           R"({"iteration":2,"epoch":2,"validation_loss":2.123456789,)"
                           R"("validation_accuracy":0.25})"
                           "\n"
                           R"({"event":"notice","text":"<b>"})"
                           "\n";
  RunLog whole, chunks;
  whole.add(text);
  for (const char c : text) chunks.add(std::string(1, c));
  const ordered_json columns = whole.columns();
  EXPECT_EQ(columns, chunks.columns());
  EXPECT_EQ(columns["x"], 1);
  EXPECT_EQ(columns["loss"], ordered_json({2.5, 2.25}));
  EXPECT_EQ(columns["rate"].dump(), "[[1,0.1],[2,0.05]]");
  EXPECT_EQ(columns["epochs"].dump(), "[[1,1.0],[2,2.0]]");
  EXPECT_EQ(columns["validations"][0]["validation_loss"], 2.1235);
  EXPECT_EQ(columns["events"][0]["text"], "<b>");
  EXPECT_EQ(columns["times"].dump(), "[[1,1.5],[2,1.5]]");
  EXPECT_EQ(columns["images"], 64);
  EXPECT_EQ(whole.last_iteration(), 2);
}

TEST(RunLog, TheNewestTimesOfWorkersAreNotEvents) {
  RunLog log;
  const std::string begin = R"({"event":"workers","iteration":)";
  log.add(begin + R"(1,"workers":[{"worker":1,"shards":8,"shard_ms":1.5,"iteration_ms":9}]})" +
          "\n");
  EXPECT_EQ(log.columns()["workers"][0]["shards"], 8);
  log.add(begin + R"(2,"workers":[{"worker":2,"shards":4,"shard_ms":2,"iteration_ms":8}]})" + "\n");
  const ordered_json columns = log.columns();
  ASSERT_EQ(columns["workers"].size(), 1u);
  EXPECT_EQ(columns["workers"][0]["worker"], 2);
  EXPECT_TRUE(columns["events"].empty());
}

TEST(RunLog, InvalidLinesAndValuesThatAreNotFinite) {
  RunLog log;
  log.add("{\"iteration\":1,\"loss\":null}\nno json\n[1]\n\n");
  log.add(iteration_line(2, 1).substr(0, 20));
  const ordered_json columns = log.columns();
  EXPECT_EQ(columns["loss"].dump(), "[null]");
  EXPECT_EQ(columns["iterations"], 1);
  EXPECT_TRUE(columns["accuracy"].empty());
}

TEST(RunLog, FollowsAFileThatGrowsAndOneThatIsWrittenAnew) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("lockstep_run_log_" + std::to_string(::getpid()) + ".jsonl");
  const auto write = [&](const std::string& text, std::ios::openmode mode) {
    std::ofstream(path, mode | std::ios::binary) << text;
  };
  RunLog log;
  log.follow(path.string(), 1000);  // there is none
  EXPECT_EQ(log.position(), 0);
  write(iteration_line(1, 2) + iteration_line(2, 1), std::ios::trunc);
  log.follow(path.string(), 50);
  EXPECT_EQ(log.added(), 0);
  log.follow(path.string(), 1000);
  EXPECT_EQ(log.last_iteration(), 2);
  log.clear();
  write(iteration_line(3, 1), std::ios::app);
  log.follow(path.string(), 1000);
  EXPECT_FALSE(log.restarted());
  EXPECT_EQ(log.columns()["x"], 3);
  EXPECT_TRUE(log.columns()["epochs"].empty());  // unchanged since the forgotten lines
  write(iteration_line(1, 5), std::ios::trunc);
  log.follow(path.string(), 1000);
  EXPECT_TRUE(log.restarted());
  EXPECT_EQ(log.columns()["loss"].dump(), "[5.0]");
  std::filesystem::remove(path);
}

TEST(RunLog, ManyIterationsKeepTheSmallestAndTheLargestLoss) {
  RunLog log;
  for (int64_t i = 1; i <= 5000; ++i) {
    log.add(iteration_line(i, i == 1234 ? 100.0 : i == 4321 ? -100.0 : std::sin(double(i))));
  }
  const ordered_json columns = log.columns(100);
  EXPECT_LE(columns["x"].size(), 100u);
  EXPECT_EQ(columns["x"].size(), columns["loss"].size());
  const auto has = [&](double value) {
    return std::find(columns["loss"].begin(), columns["loss"].end(), value) !=
           columns["loss"].end();
  };
  EXPECT_TRUE(has(100));
  EXPECT_TRUE(has(-100));
  EXPECT_TRUE(std::is_sorted(columns["x"].begin(), columns["x"].end()));
  EXPECT_EQ(log.columns(5000)["x"], 1);
}

}  // namespace
}  // namespace lockstep
