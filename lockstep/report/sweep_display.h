// The progress of a sweep as text: a line for each decision and result, and below them, on a
// terminal, a live table of the workers with a summary.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/runs/sweeps/job_sweep.h"

namespace lockstep {

struct SweepDisplayOptions {
  bool terminal = false;                           // a table that is redrawn; else only lines
  std::function<int()> width = [] { return 80; };  // columns of the terminal
  std::function<double()> clock = {};              // seconds, steady; empty: the machine's clock
};

// All text goes to `write`, which is called from the thread that runs the sweep.
class SweepDisplay : public SweepObserver {
 public:
  SweepDisplay(std::function<void(std::string_view)> write, SweepDisplayOptions options);

  void start(const JobSweepStart& start);
  void decision(int64_t number, const SweepDecision& what) override;
  void begun(const TrialRun& run, int worker) override;
  void progress(const TrialProgress& progress) override;
  void result(const TrialResult& result) override;
  void fault(const TrialRun& run, const std::string& reason) override;
  void notice(const std::string& text) override;
  void tick() override;
  // Removes the table. Call it after the sweep has ended, also by an error.
  void finish();

 private:
  struct Active {
    TrialRun run;
    TrialProgress last;
  };

  double now() const;
  void line(const std::string& text);
  void erase_table();
  void draw(bool at_once);
  std::string table() const;
  std::string value_text(double value) const;
  double done_epochs() const;

  std::function<void(std::string_view)> write_;
  SweepDisplayOptions options_;
  JobSweepStart start_;
  std::map<int, Active> workers_;                          // by worker
  std::map<std::pair<int64_t, int64_t>, double> epochs_;   // by trial and repeat
  std::map<int64_t, std::pair<int64_t, double>> results_;  // budget and value by trial
  int64_t begun_trials_ = 0, pruned_ = 0;
  double begun_at_ = -1, epochs_before_ = 0;
  double drawn_at_ = -1;
  int shown_ = 0;  // lines of the table on the screen
};

}  // namespace lockstep
