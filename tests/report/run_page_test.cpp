#include "lockstep/report/pages/run_page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/report/pages/page_files.h"
#include "lockstep/report/pages/run_options.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

TEST(RunPage, NoTextOfARunEndsTheScriptElement) {
  const ordered_json data{{"name", "</script><script>alert(1)</script><!--"},
                          {"log", ordered_json::object()},
                          {"bytes", "\xff"}};
  const std::string text = json_for_page(data);
  EXPECT_EQ(text.find('<'), std::string::npos);
  EXPECT_EQ(ordered_json::parse(text)["name"], data["name"]);
  const std::string page = report_page(data);
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
}

// Which file a log is concerns pages that go on reading it. A copied folder has the same report.
TEST(RunPage, SaysNothingOfTheLogsFile) {
  const nlohmann::ordered_json data{{"name", "x"}, {"log", {{"mark", "0123abcd"}}}};
  EXPECT_EQ(report_page(data).find("0123abcd"), std::string::npos);
}

TEST(RunPage, ReferencesNothing) {
  const std::string page = report_page({{"name", "x"}});
  for (const char* reference : {"<link", "<script src", "<img", "@import", "url("}) {
    EXPECT_EQ(page.find(reference), std::string::npos) << reference;
  }
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

TEST(RunPage, IsBelowFiveMiBWithAnyPicturesAndClasses) {
  ordered_json data{{"name", "x"}, {"notes", ordered_json::array()}};
  for (int i = 0; i < 100; ++i) {
    data["predictions"]["test"]["worst"].push_back(
        {{"name", "a"}, {"image", std::string(80'000, 'A')}});
  }
  const std::string without_pictures = report_page(data);
  EXPECT_LT(without_pictures.size(), most_report_bytes);
  EXPECT_NE(without_pictures.find("The pictures are left out"), std::string::npos);
  data["confusion"]["test"]["counts"] = std::vector<int64_t>(3'000'000, 0);
  const std::string smaller = report_page(data);
  EXPECT_LT(smaller.size(), most_report_bytes);
  EXPECT_NE(smaller.find("The confusion matrix is left out"), std::string::npos);
}

TEST(RunOptions, OnlyWhatTheUserSetIsMarked) {
  const ordered_json job = {{"data", {{"train", "x"}}},
                            {"training", {{"seed", 0}, {"max_epochs", 7}, {"threads", 3}}}};
  const auto marked = [&](const RunFacts& facts) {
    std::string names;
    for (const auto& table : option_tables(job, facts)) {
      for (const auto& field : table["fields"]) {
        if (field["set"]) names += field["name"].get<std::string>() + " ";
      }
    }
    return names;
  };
  EXPECT_EQ(marked({}), "train max_epochs threads ");  // of an earlier version: what differs
  RunFacts facts;
  facts.given = {"training.seed", "training.max_epochs"};
  facts.variables = {{"width", "8.0"}, {"solver", "\"adam\""}};
  EXPECT_EQ(marked(facts), "width solver train max_epochs seed ");
  EXPECT_EQ(option_tables(job, facts)[0]["fields"][0]["value"], "8");
}

TEST(RunOptions, LayersSayWhatIsNotTheirDefault) {
  EXPECT_EQ(layer_options({{"name", "c"},
                           {"type", "convolution2d"},
                           {"filters", 8},
                           {"kernel", {5, 3}},
                           {"stride", {2, 2}},
                           {"padding", 0},
                           {"bias", true},
                           {"inputs", {"input"}}}),
            "filters 8, kernel [5,3], stride 2");
  EXPECT_EQ(layer_options({{"name", "r"}, {"type", "relu"}}), "");
  EXPECT_EQ(layer_options({{"type", "mine"}, {"depth", 2}}), "depth 2");
}

TEST(RunPage, RefusesAFolderWithoutARun) {
  EXPECT_THROW(run_data("/nonexistent"), InvalidArgument);
  EXPECT_THROW(page_file("../../etc/passwd"), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
