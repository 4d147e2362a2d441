// Training progress as text: a table and a bar on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/train/records/observer.h"

namespace lockstep {

struct ProgressOptions {
  bool terminal = false;           // a bar that is redrawn; else only lines
  bool color = false;              // only on terminals
  int64_t verbose_frequency = 50;  // iterations between rows
  std::function<int()> width = [] {
    return 80;
  };                              // columns of the terminal, called for each drawing
  std::function<double()> clock;  // seconds, steady; empty: the machine's clock
};

// Loss and accuracy of the training in rows are means over the epoch until then; the bar has those
// of the newest iteration.
//
// Writes a row for the first and the last iteration, for every verbose_frequency-th iteration and
// for every validation. On a terminal also draws a bar below the rows, at most ten times a second,
// with epoch, iteration, loss, the best validation, images per second and time left, and a line for
// each worker process. The columns of the rows are aligned. All text goes to `write`, which is
// called from the training thread.
class Progress : public TrainingObserver {
 public:
  Progress(std::function<void(std::string_view)> write, ProgressOptions options);

  void preparing(int64_t done, int64_t total) override;
  void start(const TrainingStart& start) override;
  void iteration(const IterationRecord& record) override;
  void validation(const ValidationRecord& record) override;
  void worker(const WorkerChange& change) override;
  void workers(const std::vector<WorkerSummary>& all, int64_t iteration) override;
  void out_of_patience(int64_t iteration) override;
  void population_pass(int64_t pass, int64_t passes) override;
  void population(const PopulationRecord& record) override;
  void notice(const std::string& text) override;
  void end() override { finish(); }
  // Writes the pending row and removes the bar, as the end of a training does. Call it after an
  // error.
  void finish();

 private:
  void row();
  void line(const std::string& text);
  void draw(bool now);
  void clear();
  std::string bar() const;
  std::string worker_lines() const;
  std::string best_text() const;
  std::string left_text() const;
  std::string speed_text() const;
  std::string bold(const std::string& text) const;
  void emit();

  std::function<void(std::string_view)> write_;
  ProgressOptions options_;
  std::shared_ptr<const TrainingStart> start_;
  bool started_ = false;
  int64_t workers_ = 0;                                     // workers that compute now
  std::map<uint32_t, WorkerSummary> states_;                // by number
  double best_ = std::numeric_limits<double>::quiet_NaN();  // validation: accuracy, else loss
  std::optional<IterationRecord> last_;                     // the newest iteration
  // Sums over the observations of its epoch, as far as this process has computed it.
  double epoch_loss_ = 0, epoch_correct_ = 0, epoch_observations_ = 0;
  std::optional<ValidationRecord> validated_;  // of `last_`, not yet written in a row
  bool row_due_ = false;                       // `last_` is not yet written in a row
  int table_rank_ = -1;       // highest rank of the table's columns; -1: no table yet
  int64_t done_ = 0;          // iterations in this process
  double first_elapsed_ = 0;  // at the first of these iterations
  double rate_observations_ = 0, rate_steps_ = 0, rate_seconds_ = 0;  // over the last few seconds
  double drawn_at_ = -1;
  double prepared_at_ = -1;
  bool bar_shown_ = false;
  std::string bar_text_;
  int lines_shown_ = 0;  // above the bar
  std::string out_;      // collected, so that each change is a single write
};

// Prints training progress on a stream. No other part of the library prints.
//
// Writes the output of Progress to a stream: rows, and a bar below them on a terminal.
//
//   ProgressPrinter progress(stdout);
//   train(network, data, options, {.observers = {&progress}});
//
// For one training at a time. The stream must outlive it. Write errors are ignored.
class ProgressPrinter : public Progress {
 public:
  // `verbose_frequency`: iterations between rows, at least 1.
  explicit ProgressPrinter(std::FILE* stream, int64_t verbose_frequency = 50);
  // Writes the pending row and removes the bar, also after an error.
  ~ProgressPrinter() override;
};

// "0:01:23" (hours, minutes, seconds), truncated to whole seconds.
std::string format_duration(double seconds);
// "12,345".
std::string format_count(int64_t number);

}  // namespace lockstep
