#include "lockstep/report/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/train/options/options.h"
#include "lockstep/train/records/training_start.h"

namespace lockstep {
namespace {

// A progress display with a fake clock and a fake terminal; `text` is all output.
class Fake {
 public:
  explicit Fake(bool terminal, int width = 80, bool color = false, int64_t frequency = 50)
      : progress([this](std::string_view chunk) { text += chunk, ++writes; },
                 {.terminal = terminal,
                  .color = color,
                  .verbose_frequency = frequency,
                  .width = [this] { return columns; },
                  .clock = [this] { return now; }}),
        columns(width) {}

  void start(int64_t iterations_per_epoch, int64_t epochs, int64_t first = 1, int threads = 2) {
    TrainingStart s;
    s.options.max_epochs = epochs;
    s.observations = 45000;
    s.validation_observations = 5000;
    s.iterations_per_epoch = iterations_per_epoch;
    s.iterations = iterations_per_epoch * epochs;
    s.first_iteration = first;
    s.shards = 8;
    s.threads = threads;
    s.shard_advice = "; shard_size = 5 would use 12 threads";
    s.options.validation.metrics = metrics;
    per_epoch = iterations_per_epoch;
    progress.start(s);
  }
  void iterate(int64_t iteration, double loss = 1.25, double accuracy = 0.5) {
    IterationRecord r;
    r.iteration = iteration;
    r.epoch = (iteration - 1) / per_epoch + 1;
    r.loss = loss;
    r.accuracy = accuracy;
    r.learning_rate = 0.05;
    r.observations_count = 128;
    r.elapsed = now;
    r.seconds = 0.01;
    progress.iteration(r);
  }
  void validate(int64_t iteration) {
    ValidationRecord v;
    v.iteration = iteration;
    v.loss = 0.75;
    v.accuracy = 0.8125;
    for (const std::string& name : metrics) v.metrics.push_back({name, 0.625});
    progress.validation(v);
  }
  // The output since the last call.
  std::string take() { return std::exchange(text, {}); }

  Progress progress;
  int columns;
  double now = 0;
  std::string text;
  int writes = 0;
  int64_t per_epoch = 1;
  std::vector<std::string> metrics;
};

TEST(Progress, RowsShowTheMeansOfTheEpoch) {
  Fake f(false);
  f.start(100, 2);
  f.take();
  for (int64_t i = 1; i <= 51; ++i) f.iterate(i, i == 1 ? 51 : 1, i <= 25 ? 1 : 0);
  const std::string rows = f.take();
  EXPECT_NE(rows.find("iteration 1/200  elapsed 0:00:00  accuracy 100.00%  loss 51.0000"),
            std::string::npos)
      << rows;
  EXPECT_NE(rows.find("iteration 50/200  elapsed 0:00:00  accuracy 50.00%  loss 2.0000"),
            std::string::npos)
      << rows;
  for (int64_t i = 101; i <= 151; ++i) f.iterate(i, 3, 0.25);
  EXPECT_NE(f.take().find("iteration 150/200  elapsed 0:00:00  accuracy 25.00%  loss 3.0000"),
            std::string::npos);
}

TEST(Progress, CountsRowsOfATable) {
  Fake f(false);
  TrainingStart s;
  s.observations = 12;
  s.examples = "rows";
  s.iterations = s.iterations_per_epoch = 2;
  f.progress.start(s);
  EXPECT_NE(f.take().find("12 training rows; 2 iterations"), std::string::npos);
  f.iterate(1);
  f.iterate(2);
  f.progress.end();
  EXPECT_NE(f.take().find(" rows/s"), std::string::npos);
}

TEST(Progress, PlainOutputIsLines) {
  Fake f(false);
  f.progress.preparing(0, 50000);
  f.progress.preparing(50000, 50000);
  f.start(100, 2);
  for (int64_t i = 1; i <= 200; ++i) {
    f.now = static_cast<double>(i) / 2;
    f.iterate(i);
    if (i % 100 == 0) f.validate(i);
    if (i == 120) f.progress.notice("something odd");
  }
  f.progress.finish();
  const std::string same = "  accuracy 50.00%  loss 1.2500  rate 0.05";
  const std::string validated = "  validation accuracy 81.25%  validation loss 0.7500  best 81.25%";
  const std::string speed = "  12,800 images/s";
  EXPECT_EQ(f.text,
            "45,000 training images, 5,000 for validation; 200 iterations in 2 epochs; 2 threads\n"
            "epoch 1/2  iteration 1/200  elapsed 0:00:00" +
                same +
                "\n"
                "epoch 1/2  iteration 50/200  elapsed 0:00:25" +
                same + speed + "  0:01:15 left" +
                "\n"
                "epoch 1/2  iteration 100/200  elapsed 0:00:50" +
                same + speed + "  0:00:50 left" + validated +
                "\n"
                "note: something odd\n"
                "epoch 2/2  iteration 150/200  elapsed 0:01:15" +
                same + speed + "  0:00:25 left" +
                "\n"
                "epoch 2/2  iteration 200/200  elapsed 0:01:40" +
                same + speed + validated + "\n");
}

TEST(Progress, PlainOutputReportsLongPreparation) {
  Fake f(false);
  for (int i = 0; i <= 30; ++i) {
    f.now = i;
    f.progress.preparing(i * 1000, 100000);
  }
  EXPECT_EQ(f.text,
            "Reading images: 10,000 of 100,000\n"
            "Reading images: 20,000 of 100,000\n"
            "Reading images: 30,000 of 100,000\n");
}

TEST(Progress, TerminalShowsATableThatLinesUpAndABar) {
  const std::string clear = "\r\x1b[K";
  Fake f(true, 100, false, 2);
  f.progress.preparing(10, 50000);
  EXPECT_EQ(f.take(), clear + "Reading images: 10 of 50,000");
  f.start(3, 2);
  EXPECT_EQ(
      f.take(),
      clear +
          "45,000 training images, 5,000 for validation; 6 iterations in 2 epochs; 2 threads\n");
  f.now = 1;
  f.iterate(1, 2.5, 0.125);
  EXPECT_EQ(f.take(),
            clear + "[=====>                        ]  16%  epoch 1/2  loss 2.5000  iteration 1/6");
  f.now = 2;
  f.iterate(2);
  EXPECT_EQ(
      f.take(),
      clear +
          "Epoch Iteration  Elapsed   Training   Training Validation Validation Learning\n"
          "                 h:mm:ss   accuracy       loss   accuracy       loss     rate\n"
          "    1         1  0:00:01     12.50%     2.5000                           0.05\n" +
          clear +
          "[=======>              ]  33%  epoch 1/2  0:00:04 left  12,800 images/s  loss 1.2500  "
          "iteration 2/6");
  f.now = 3;
  f.iterate(3);
  f.validate(3);
  const std::string text = f.take();
  EXPECT_NE(
      text.find("    1         2  0:00:02     31.25%     1.8750                           0.05\n"),
      std::string::npos)
      << text;
  EXPECT_NE(
      text.find("    1         3  0:00:03     37.50%     1.6667     81.25%     0.7500     0.05\n"),
      std::string::npos)
      << text;
  f.progress.finish();
  EXPECT_EQ(f.take(), clear);
  f.progress.finish();
  EXPECT_EQ(f.take(), "");
}

TEST(Progress, IsDrawnAtMostTenTimesASecond) {
  Fake f(true, 80, false, 1000000);
  f.start(100000, 1);
  f.iterate(1);
  f.now += 0.2;
  f.iterate(2);  // draws, and the first row is complete
  const int before = f.writes;
  f.take();
  for (int64_t i = 3; i < 1003; ++i) {
    f.now += 0.001;
    f.iterate(i);
  }
  EXPECT_LE(f.writes - before, 11);
  EXPECT_GE(f.writes - before, 9);
}

TEST(Progress, NoLineIsWiderThanTheTerminal) {
  for (int width : {1, 5, 20, 40, 60, 79, 80, 200}) {
    Fake f(true, width, false, 1);
    f.start(100000, 1);
    f.take();
    for (int64_t i = 1; i <= 20; ++i) {
      f.now += 1;
      f.iterate(i);
      if (i % 5 == 0) f.validate(i);
    }
    size_t longest = 0, length = 0;
    std::string text = f.take();
    const std::string clear = "\r\x1b[K";
    for (size_t at; (at = text.find(clear)) != std::string::npos;)
      text.replace(at, clear.size(), "\n");
    for (char c : text) {
      length = c == '\n' ? 0 : length + 1;
      longest = std::max(longest, length);
    }
    // The table keeps at least epoch, iteration and validation accuracy.
    EXPECT_LE(longest, static_cast<size_t>(std::max(width, 26))) << text;
  }
}

TEST(Progress, ColorIsOnTerminalsOnly) {
  for (const bool terminal : {false, true}) {
    for (const bool color : {false, true}) {
      Fake f(terminal, 80, color, 1);
      f.start(10, 1);
      for (int64_t i = 1; i <= 3; ++i) f.iterate(i);
      f.progress.finish();
      const bool colored = f.text.find("\x1b[1m") != std::string::npos ||
                           f.text.find("\x1b[32m") != std::string::npos;
      EXPECT_EQ(colored, terminal && color);
      if (!terminal) {
        EXPECT_EQ(f.text.find('\x1b'), std::string::npos);
        EXPECT_EQ(f.text.find('\r'), std::string::npos);
      }
    }
  }
}

TEST(Progress, ReportsIdleThreadsAndTheStartOfAResume) {
  Fake f(false);
  f.start(10, 1, 5, 12);
  EXPECT_NE(
      f.text.find(
          "note: only 8 of the 12 threads are useful: a mini-batch has 8 shards; shard_size = 5 "
          "would use 12 threads\n"),
      std::string::npos)
      << f.text;
  EXPECT_NE(f.text.find("continuing after iteration 4\n"), std::string::npos) << f.text;
}

TEST(Progress, NumbersAreReadable) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
  EXPECT_EQ(format_count(-123), "-123");
  EXPECT_EQ(format_duration(0), "0:00:00");
  EXPECT_EQ(format_duration(3725.9), "1:02:05");
  EXPECT_EQ(format_duration(-1), "-");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "-");
  EXPECT_EQ(format_duration(std::nan("")), "-");
}

TEST(Progress, MetricsOfValidations) {
  Fake plain(false);
  plain.metrics = {"top-5", "f1"};
  plain.start(1, 1);
  plain.iterate(1);
  plain.validate(1);
  EXPECT_NE(plain.text.find("  validation loss 0.7500  top-5 62.50%  f1 0.6250  best 81.25%\n"),
            std::string::npos)
      << plain.text;
  // Requested metrics come before the learning rate. Columns that do not fit are left out.
  const auto lines = [](int width) {
    Fake f(true, width);
    f.metrics = {"top-5", "a name that is longer than a column"};
    f.start(1, 1);
    f.take();
    f.iterate(1);
    f.validate(1);
    return f.text;
  };
  const std::string wide = lines(120);
  EXPECT_NE(wide.find("      loss      top-5 a name that is longe     rate"), std::string::npos)
      << wide;
  EXPECT_NE(wide.find("    0.7500     62.50%               0.6250     0.05"), std::string::npos)
      << wide;
  const std::string narrow = lines(80);
  EXPECT_NE(narrow.find("    0.7500     62.50%\n"), std::string::npos) << narrow;
}

// On a terminal each worker has a line above the bar.
TEST(Progress, WorkersHaveLines) {
  Fake f(true, 100);
  for (const uint32_t worker : {1u, 2u}) {
    f.progress.worker({.worker = worker, .joined = true, .members = 2});
  }
  f.start(100, 1);
  f.take();
  f.now = 1;
  f.iterate(1);
  f.now = 2;
  f.progress.workers(
      {{.worker = 1, .shards = 1234, .shard_seconds = 0.0015, .iteration_seconds = 0.0125},
       {.worker = 2, .host = "b"},
       {.worker = 9, .lost = true}},
      1);
  f.take();
  f.iterate(2);
  const std::string both = f.take();
  EXPECT_NE(both.find("worker 1: computes, 12.5 ms an iteration, 1.50 ms a shard, 1,234 shards\n"
                      "worker 2 on b: computes\n["),
            std::string::npos)
      << both;
  EXPECT_EQ(both.find("worker 9"), std::string::npos);
  // The next drawing removes both lines and the bar first.
  f.now = 3;
  f.progress.worker({.worker = 2, .left = true, .iteration = 2, .members = 1});
  const std::string one = f.take();
  EXPECT_EQ(one.find("\x1b[2A\r\x1b[J"), 0u) << one;
  EXPECT_NE(one.find("left after iteration 2: 1 worker now\n"), std::string::npos) << one;
  EXPECT_EQ(one.find("on b: computes"), std::string::npos) << one;
  // Many workers do not fill the screen.
  for (uint32_t worker = 3; worker < 40; ++worker) {
    f.progress.worker({.worker = worker, .joined = true, .members = 30});
  }
  f.take();
  f.now = 4;
  f.iterate(3);
  const std::string many = f.take();
  EXPECT_NE(many.find("and 31 more workers\n"), std::string::npos) << many;
  f.progress.finish();
  EXPECT_EQ(f.take(), "\x1b[8A\r\x1b[J");
}

TEST(Progress, TheBestValidationIsInTheBar) {
  Fake f(true, 120, false, 1);
  f.start(100, 1);
  f.now = 1;
  f.iterate(1);
  f.validate(1);
  f.now = 2;
  f.iterate(2);
  EXPECT_NE(f.text.find("  best 81.25%  loss"), std::string::npos) << f.text;
}

TEST(Progress, PopulationStatistics) {
  PopulationRecord record;
  record.layers = 3;
  record.seconds = 61;
  for (const bool terminal : {false, true}) {
    Fake f(terminal);
    f.start(1, 1);
    f.iterate(1);
    f.take();
    f.progress.population_pass(1, 3);
    EXPECT_EQ(f.take().find("Population statistics: pass 2 of 3") != std::string::npos, terminal);
    f.progress.population(record);
    EXPECT_NE(f.take().find("population statistics of 3 layers in 0:01:01\n"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
