// Runs a sweep: many trials on the workers of a pool, with decisions that do not depend on which
// worker computes what, or how fast.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/pool/data_queue.h"
#include "lockstep/parallel/pool/future.h"
#include "lockstep/parallel/pool/pool.h"
#include "lockstep/runs/sweeps/schedule.h"
#include "lockstep/runs/sweeps/sweep.h"

namespace lockstep {

// How far a run is. Sent from time to time.
struct TrialProgress {
  int64_t trial = 0, repeat = 0;
  int64_t iteration = 0, iterations = 0;  // of the complete trial
  int64_t goal = 0;                       // iteration at which this run ends
  int64_t saved = 0;                      // iteration of the newest checkpoint
  double loss = 0, images_per_second = 0;
  double metric = std::numeric_limits<double>::quiet_NaN();  // newest value, if there is one
  int64_t shards = 0;                                        // of a mini-batch
  // threads: threads (or lent workers) of the run; measured: iterations timed with that number.
  int64_t threads = 1, measured = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(trial, repeat, iteration, iterations, goal, saved, loss, images_per_second, metric,
            shards, threads, measured);
  }
};

// What a run does, on a worker.
struct TrialTask {
  int64_t trial = 0, repeat = 0, budget = 0;
  bool last = false;  // the budget is a complete trial's
  TrialParameters parameters = {};
  int64_t threads = 1, most_threads = 1;  // at the beginning, and later

  template <class Archive>
  void serialize(Archive& archive) {
    archive(trial, repeat, budget, last, parameters, threads, most_threads);
  }
};

// The reason of a stopped trial.
inline constexpr const char* stopped_by_request = "stopped by request";

// Messages to a run: a number of threads above 0, or one of these.
inline constexpr int64_t trial_must_stop = -1;       // permanently, by a request
inline constexpr int64_t trial_is_interrupted = -2;  // to be continued

// Receives events of a sweep, in the thread that runs it.
class SweepObserver {
 public:
  virtual ~SweepObserver() = default;
  virtual void decision(int64_t number, const SweepDecision& what) { (void)number, (void)what; }
  virtual void begun(const TrialRun& run, int worker) { (void)run, (void)worker; }
  virtual void progress(const TrialProgress& progress) { (void)progress; }
  virtual void result(const TrialResult& result) { (void)result; }
  // The machine has failed a run, which is started again.
  virtual void fault(const TrialRun& run, const std::string& reason) { (void)run, (void)reason; }
  virtual void notice(const std::string& text) { (void)text; }
  // Called several times a second.
  virtual void tick() {}
};

struct SweepSetup {
  std::string folder;  // has the record
  // Starts a run on a worker, which sends its progress and receives messages.
  std::function<Future<TrialReport>(const TrialTask&, const QueueSender<TrialProgress>&,
                                    const QueueReceiver<int64_t>&)>
      submit;
  // Whether runs take messages; else they are cancelled (see task_cancelled()).
  bool takes_messages = false;
  int64_t complete = 0;  // the budget of a complete trial
  int64_t threads = 1;   // of all runs together
  bool lend = true;      // threads of idle workers help the others
  // If runs are computed by lent workers: `threads` are workers, and this function gives each
  // active run its number of them. Called before a run is submitted, and several times a second.
  std::function<void(const std::vector<TrialRun>& runs, const std::vector<int64_t>& counts)>
      assign = {};
  // What runs wait for before they can begin, "Slurm: 1 of 2 hosts have joined (Resources)", or "".
  // Called several times a second.
  std::function<std::string()> waits_for = {};
  // Of a sweep that continues: its decisions by number. Whether they may be other ones now, and
  // what is called for a trial that gets other parameters, before it begins again.
  std::map<int64_t, SweepDecision> recorded = {};
  bool decides_anew = false;
  std::function<void(int64_t trial)> changed = {};
  std::vector<int64_t> stopped = {};  // trials that were stopped earlier, and do not run again
  std::vector<SweepObserver*> observers = {};
  std::function<bool()> interrupted = {};  // asked several times a second
};

enum class SweepEnd { finished, interrupted };

// Runs what is missing in the schedule, and records decisions, results and events in the folder.
// Blocks until the sweep ends. A run whose worker is lost is started again. Throws FileError if the
// record cannot be written; the error of a run that fails repeatedly for reasons that are not its
// own, after all others have been stopped: the sweep can then be continued.
SweepEnd run_schedule(SweepSchedule& schedule, Pool& pool, const SweepSetup& setup);

// Requests that trial `number` of the sweep in `folder` is stopped, by any process: now if the
// sweep runs, or when it continues. Throws FileError.
void request_trial_stop(const std::string& folder, int64_t number);

}  // namespace lockstep
