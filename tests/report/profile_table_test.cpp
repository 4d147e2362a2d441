#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/report/charts.h"

namespace lockstep {
namespace {

using Phase = ProfileAccount::Phase;

// Ten iterations of 10 ms by two threads.
Profile some_profile() {
  Profile p;
  p.threads = 2;
  p.iterations = 10;
  p.wall = 0.1;
  p.preparation = 0.005;
  const auto add = [&](Phase phase, const char* name, int64_t calls, double seconds, double floor) {
    ProfileAccount a;
    a.phase = phase;
    a.name = name;
    a.calls = calls;
    a.seconds = seconds;
    a.floor = floor;
    p.accounts.push_back(a);
  };
  add(Phase::forward, "conv", 80, 0.08, 0.06);
  add(Phase::forward, "relu", 80, 0.0001, 0.0001);
  add(Phase::forward, "pool", 80, 0.0001, 0.0001);
  add(Phase::backward, "conv: gradient", 80, 0.1, 0.09);
  add(Phase::iteration, "solver", 20, 0.0078, std::nan(""));
  add(Phase::iteration, "gradient threshold", 0, 0, std::nan(""));
  add(Phase::iteration, "waiting for other threads", 40, 0.012, std::nan(""));
  p.spans = {{0, 0, 0, 0.001}, {1, 0, 0.0001, 0.001}, {0, 4, 0.001, 0.0005}};
  return p;
}

TEST(ProfileTable, LinesUpAndAddsUp) {
  EXPECT_EQ(
      profile_table(some_profile(), 80),
      "phase     what                            ms    share    floor  ratio\n"
      "forward   conv                         4.000    40.0%    3.000   0.75\n"
      "forward   2 smaller                    0.010     0.1%    0.010   1.00\n"
      "forward   sum                          4.010    40.1%    3.010   0.75\n"
      "\n"
      "backward  conv                         5.000    50.0%    4.500   0.90\n"
      "\n"
      "step      solver                       0.390     3.9%\n"
      "step      waiting for other threads    0.600     6.0%\n"
      "step      sum                          0.990     9.9%\n"
      "\n"
      "          total                       10.000   100.0%\n"
      "\n"
      "10 iterations of 10.000 ms by 2 threads. With the passes alone: 7.510 ms, 0.75 of it.\n"
      "Other threads prepared each mini-batch in 0.500 ms of a processor.\n");
  Profile without = some_profile();
  without.preparation = 0;
  EXPECT_EQ(profile_table(without, 80).find("prepared"), std::string::npos);
}

TEST(ProfileTable, LongNamesAreCutToTheWidth) {
  Profile p = some_profile();
  p.accounts[0].name = std::string(200, 'n');
  for (int width : {20, 64, 80, 120}) {
    const std::string text = profile_table(p, width);
    EXPECT_NE(
        text.find("forward   " + std::string(static_cast<size_t>(std::max(width, 64)) - 44, 'n') +
                  "    4.000"),
        std::string::npos)
        << text;
  }
}

TEST(ProfileTable, WithoutIterationsIsATable) {
  EXPECT_NE(profile_table(Profile{.threads = 1}, 80).find("0 iterations"), std::string::npos);
}

TEST(ProfileJson, HasEveryAccount) {
  const auto json = nlohmann::json::parse(profile_json(some_profile()));
  EXPECT_EQ(json["accounts"].size(), 7);
  EXPECT_EQ(json["accounts"][3]["name"], "conv: gradient");
  EXPECT_EQ(json["accounts"][3]["floor"], 0.09);
  EXPECT_TRUE(json["accounts"][4]["floor"].is_null());
  EXPECT_NEAR(json["booked"].get<double>(), 0.2, 1e-12);
  EXPECT_NEAR(json["efficiency"].get<double>(), 0.751, 1e-9);
}

TEST(ChromeTrace, IsCompleteEvents) {
  const auto json = nlohmann::json::parse(chrome_trace(some_profile()));
  const auto& events = json["traceEvents"];
  ASSERT_EQ(events.size(), 2 + 3);
  EXPECT_EQ(events[0]["args"]["name"], "compute thread 0");
  EXPECT_EQ(events[3], nlohmann::json::parse(R"({"ph":"X","name":"conv","cat":"forward","pid":1,)"
                                             R"("tid":1,"ts":100.0,"dur":1000.0})"));
  EXPECT_EQ(events[4]["name"], "solver");
  const auto none = nlohmann::json::parse(chrome_trace(Profile{.threads = 2}));
  EXPECT_EQ(none["traceEvents"].size(), 2);
}

}  // namespace
}  // namespace lockstep
