#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/report/progress.h"
#include "lockstep/report/terminal.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/records/training_start.h"

namespace lockstep {
namespace {

void trained_two_iterations(ProgressPrinter& progress) {
  TrainingStart start;
  start.options.max_epochs = 1;
  start.observations = 256;
  start.iterations_per_epoch = start.iterations = 2;
  start.first_iteration = 1;
  progress.start(start);
  for (int64_t i = 1; i <= 2; ++i) {
    IterationRecord record;
    record.iteration = i;
    record.epoch = 1;
    record.loss = 0.5;
    record.observations_count = 128;
    progress.iteration(record);
  }
}

TEST(ProgressPrinter, WritesLinesToAFileAllOfThem) {
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  {
    ProgressPrinter progress(file);
    trained_two_iterations(progress);
  }
  std::rewind(file);
  char buffer[4096];
  const std::string text(buffer, std::fread(buffer, 1, sizeof buffer, file));
  std::fclose(file);
  EXPECT_NE(text.find("256 training images"), std::string::npos) << text;
  EXPECT_NE(text.find("iteration 1/2"), std::string::npos) << text;
  EXPECT_NE(text.find("iteration 2/2"), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
}

TEST(ProgressPrinter, HasWrittenEverythingWhenTheTrainingEnds) {
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  ProgressPrinter progress(file);
  trained_two_iterations(progress);
  progress.end();
  std::fputs("what follows\n", file);
  std::rewind(file);
  char buffer[4096];
  const std::string text(buffer, std::fread(buffer, 1, sizeof buffer, file));
  std::fclose(file);
  EXPECT_LT(text.find("iteration 2/2"), text.find("what follows")) << text;
}

TEST(ProgressPrinter, DrawsABarOnATerminal) {
  int master = -1, terminal = -1;
  winsize size{};
  size.ws_col = 72;
  ASSERT_EQ(openpty(&master, &terminal, nullptr, nullptr, &size), 0);
  std::FILE* const stream = fdopen(terminal, "w");
  ASSERT_NE(stream, nullptr);
  const char* const term = std::getenv("TERM");
  const std::string before = term == nullptr ? "" : term;
  ::setenv("TERM", "xterm", 1);
  EXPECT_TRUE(is_terminal(stream));
  EXPECT_EQ(columns_of(stream, 80), 72);
  {
    ProgressPrinter progress(stream);
    trained_two_iterations(progress);
  }
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(is_terminal(stream));
  ::setenv("TERM", before.c_str(), 1);
  std::fclose(stream);
  // Output arrives in chunks. At the end the other side is closed, which is an error here.
  std::string text;
  char buffer[8192];
  for (ssize_t count; (count = read(master, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(count));
  }
  EXPECT_NE(text.find("Iteration"), std::string::npos) << text;
  EXPECT_NE(text.find("\r\x1b[K"), std::string::npos) << text;
  close(master);
}

TEST(ProgressPrinter, RefusesWhatCannotBe) {
  EXPECT_THROW(ProgressPrinter(nullptr), InvalidArgument);
  EXPECT_THROW(ProgressPrinter(stderr, 0), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
