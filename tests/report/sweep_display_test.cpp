#include "lockstep/report/sweep_display.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

class SweepDisplayTest : public ::testing::Test {
 protected:
  void run(SweepDisplay& display) {
    JobSweepStart start;
    start.metric = "validation.accuracy";
    start.budget = 9;
    start.epochs = 21;
    start.workers = 2;
    start.options.goal = "maximize";
    display.start(start);
    display.decision(
        0, {.what = "rung 1 of 2", .starts = {{1, {}}, {2, {}}}, .goals = {{1, 1}, {2, 1}}});
    display.begun({1, 0, 1}, 0);
    time += 2;
    display.progress({.trial = 1,
                      .iteration = 5,
                      .iterations = 90,
                      .goal = 10,
                      .loss = 0.5,
                      .images_per_second = 1234,
                      .threads = 2});
    time += 2;
    display.progress({.trial = 1,
                      .iteration = 8,
                      .iterations = 90,
                      .goal = 10,
                      .loss = 0.25,
                      .images_per_second = 1234,
                      .threads = 2});
    before_end = text;
    display.result({.run = {1, 0, 1}, .value = 0.954, .epoch = 1});
    display.fault({2, 0, 1}, "was killed by signal 9 (SIGKILL)");
    display.result({.run = {2, 0, 1}, .state = TrialState::diverged, .reason = "too\x1b[2J fast"});
    display.decision(1, {.what = "rung 2 of 2", .goals = {{1, 9}}, .pruned = {2}});
    display.finish();
  }
  std::string text, before_end;
  double time = 100;
};

constexpr const char* lines = R"(successive-halving, maximize validation.accuracy, 2 workers
rung 1 of 2: trials 1, 2 begin, to epoch 1
trial 1 has reached epoch 1: validation.accuracy 95.40 %
trial 2 is started again: was killed by signal 9 (SIGKILL)
trial 2: too\x1b[2J fast
rung 2 of 2: trial 1 goes on, to epoch 9; trial 2 ends
)";

TEST_F(SweepDisplayTest, PipedOutputHasALineForEachEvent) {
  SweepDisplay display([&](std::string_view part) { text += part; }, {});
  run(display);
  EXPECT_EQ(text, lines);
}

TEST_F(SweepDisplayTest, ATableOfTheWorkersIsRedrawnOnTerminals) {
  SweepDisplay display(
      [&](std::string_view part) { text += part; },
      {.terminal = true, .width = [] { return 120; }, .clock = [&] { return time; }});
  run(display);
  const std::string table = before_end.substr(before_end.rfind("\x1b[J") + 3);
  EXPECT_EQ(table,
            "worker 0   trial 1   [##########..]     8/10    loss 0.25            -   1,234 "
            "images/s, 2 threads\n"
            "worker 1   idle\n"
            "[#...................] 1 of 21 epochs, left: 0:02:14, 1,234 images/s, 0 of 2 trials "
            "ended early\n");
  // The table is removed at the end.
  EXPECT_TRUE(text.ends_with("\x1b[3A\x1b[J"));
}

}  // namespace
}  // namespace lockstep
