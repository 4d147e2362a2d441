#include "lockstep/runs/sweeps/driver.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/runs/run_orders.h"
#include "lockstep/runs/sweeps/record.h"
#include "lockstep/runs/sweeps/thread_shares.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

constexpr const char* requests_name = "requests";
constexpr const char* stop_prefix = "stop-";
constexpr double poll_seconds = 0.05;
constexpr double requests_seconds = 0.3;
// Attempts of a run without progress that throws.
constexpr int most_errors = 2;

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

class Driver {
 public:
  Driver(SweepSchedule& schedule, Pool& pool, const SweepSetup& setup)
      : schedule_(schedule),
        pool_(pool),
        setup_(setup),
        record_(local_files(), join_path(setup.folder, sweep_record_name)),
        progress_(pool),
        shares_(setup.threads),
        stopped_(setup.stopped) {}

  SweepEnd run() {
    for (;;) {
      decide();
      if (schedule_.finished()) return SweepEnd::finished;
      if (setup_.interrupted && setup_.interrupted()) {
        end_runs();
        event({{"event", "interrupted"}});
        return SweepEnd::interrupted;
      }
      take_requests();
      begin_runs();
      lend_threads();
      wait();
      collect();
      report_wait();
      notify([](SweepObserver& o) { o.tick(); });
    }
  }

 private:
  struct Active {
    TrialRun run = {};
    Future<TrialReport> future = {};
    std::unique_ptr<WorkerQueue<int64_t>> orders = {};
    int worker = -1;         // once known
    int64_t told = 0;        // threads that the run knows of
    bool stopping = false;   // by a request
    bool cancelled = false;  // for silence
    Clock::time_point heard = Clock::now();
  };
  struct Trouble {
    int losses = 0, errors = 0;
    int64_t saved = -1;  // the newest checkpoint at the last one
  };

  template <class Event>
  void notify(Event event) {
    for (SweepObserver* observer : setup_.observers) event(*observer);
  }

  void event(ordered_json line) {
    line["time"] = sweep_time();
    record_.append(line);
  }

  void decide() {
    while (const auto due = schedule_.due()) {
      SweepDecision what = schedule_.decide(*due);
      if (!is_recorded(*due, what)) record_.append(to_json(*due, what));
      notify([&](SweepObserver& o) { o.decision(*due, what); });
      schedule_.take(*due, std::move(what));
    }
  }

  bool is_recorded(int64_t decision, const SweepDecision& what) {
    const auto before = setup_.recorded.find(decision);
    if (before != setup_.recorded.end() &&
        to_json(decision, before->second) == to_json(decision, what)) {
      return true;
    }
    if (before != setup_.recorded.end() && !setup_.decides_anew) {
      throw DataError("[sweep] decision " + std::to_string(decision) +
                          " in the record does not follow from the results there",
                      "the record is damaged, or was written by another version of Lockstep");
    }
    for (const auto& start : what.starts) {
      const TrialParameters* const old = recorded_parameters(start.trial);
      if (old == nullptr || *old == start.parameters) continue;
      schedule_.drop(start.trial);
      if (setup_.changed) setup_.changed(start.trial);
    }
    return false;
  }

  const TrialParameters* recorded_parameters(int64_t trial) const {
    for (const auto& [unused, what] : setup_.recorded) {
      for (const auto& start : what.starts) {
        if (start.trial == trial) return &start.parameters;
      }
    }
    return nullptr;
  }

  void finish(TrialResult result) {
    record_.append(to_json(result));
    notify([&](SweepObserver& o) { o.result(result); });
    schedule_.add(std::move(result));
  }

  bool is_active(const TrialRun& run) const {
    return std::any_of(active_.begin(), active_.end(),
                       [&](const Active& a) { return a.run == run; });
  }

  // Runs of one trial and repeat share a folder, so only one of them is active.
  bool is_busy(const TrialRun& run) const {
    return std::any_of(active_.begin(), active_.end(), [&](const Active& a) {
      return a.run.trial == run.trial && a.run.repeat == run.repeat;
    });
  }

  void begin_runs() {
    for (const TrialRun& run : std::vector<TrialRun>(schedule_.open())) {
      if (static_cast<int>(active_.size()) >= pool_.size()) return;
      if (is_busy(run)) continue;
      Active a{.run = run};
      a.orders = std::make_unique<WorkerQueue<int64_t>>(pool_);
      a.told = fair_threads();
      if (setup_.assign) assign_fairly(run);
      a.future = setup_.submit({.trial = run.trial,
                                .repeat = run.repeat,
                                .budget = run.budget,
                                .last = run.budget >= setup_.complete,
                                .parameters = schedule_.parameters(run.trial),
                                .threads = a.told,
                                .most_threads = setup_.lend ? setup_.threads : a.told},
                               progress_.sender(), a.orders->receiver());
      active_.push_back(std::move(a));
    }
  }

  // Workers for the active runs and the next one, before it begins.
  void assign_fairly(const TrialRun& next) {
    std::vector<TrialRun> runs;
    for (const Active& a : active_) runs.push_back(a.run);
    runs.push_back(next);
    setup_.assign(runs, std::vector<int64_t>(runs.size(), fair_threads()));
  }

  // The share of a run while all workers are busy.
  int64_t fair_threads() const { return std::max<int64_t>(1, setup_.threads / pool_.size()); }

  // Gives the threads of idle workers to the runs, and takes them back. Runs notice between two
  // iterations.
  void lend_threads() {
    if ((!setup_.lend && !setup_.assign) || !setup_.takes_messages) return;
    std::vector<TrialRun> runs;
    for (const Active& a : active_) runs.push_back(a.run);
    const std::vector<int64_t> shares =
        setup_.lend ? shares_.divide(runs) : std::vector<int64_t>(runs.size(), fair_threads());
    if (setup_.assign) return setup_.assign(runs, shares);
    for (size_t i = 0; i < active_.size(); ++i) {
      Active& a = active_[i];
      if (a.told < 0 || shares[i] == a.told || !placed(a)) continue;
      if (a.orders->send(a.worker, shares[i], 0)) a.told = shares[i];
    }
  }

  // Whether the worker of a run is known.
  bool placed(Active& a) {
    if (a.future.state() != TaskState::running) return false;
    const int worker = a.future.worker();
    if (a.worker < 0 && worker >= 0) {
      a.worker = worker;
      const TrialRun run = a.run;
      event({{"event", "begun"},
             {"trial", run.trial},
             {"repeat", run.repeat},
             {"budget", run.budget},
             {"worker", worker}});
      notify([&](SweepObserver& o) { o.begun(run, worker); });
    }
    return a.worker >= 0;
  }

  void wait() {
    detail::wait_until(*pool_.core(), poll_seconds, [&] {
      return std::any_of(active_.begin(), active_.end(),
                         [](const Active& a) { return a.future.over(); });
    });
    while (const auto said = progress_.poll()) {
      for (Active& a : active_) {
        if (a.run.trial != said->trial || a.run.repeat != said->repeat) continue;
        a.heard = Clock::now();
        saved_[a.run] = std::max(saved_[a.run], said->saved);
        shares_.note(a.run, said->shards, said->threads, said->measured, said->images_per_second);
      }
      notify([&](SweepObserver& o) { o.progress(*said); });
    }
    for (Active& a : active_) {
      placed(a);
      if (!setup_.takes_messages || a.cancelled || seconds_since(a.heard) < longest_silence) {
        continue;
      }
      a.cancelled = true;
      a.future.cancel();
    }
  }

  // Reports what runs wait for when it changes.
  void report_wait() {
    if (!setup_.waits_for) return;
    std::string awaited = setup_.waits_for();
    if (!awaited.empty() && awaited != awaited_) {
      notify([&](SweepObserver& o) { o.notice("waits for " + awaited); });
    }
    awaited_ = std::move(awaited);
  }

  // Takes runs that have ended. Their order does not matter: decisions wait for all.
  void collect() {
    const auto first = std::stable_partition(active_.begin(), active_.end(),
                                             [](const Active& a) { return !a.future.done(); });
    std::vector<Active> ended(std::make_move_iterator(first),
                              std::make_move_iterator(active_.end()));
    active_.erase(first, active_.end());
    for (Active& a : ended) settle(a);
  }

  void settle(Active& a) {
    try {
      const TrialReport r = a.future.get();
      if (a.stopping && r.interrupted) {
        TrialResult result = stopped(a.run);
        result.iteration = r.iteration;
        result.epoch = r.epoch;
        result.receipt = r.receipt;
        finish(std::move(result));
      } else if (!r.interrupted) {
        if (static_cast<TrialState>(r.state) == TrialState::stopped) {
          event({{"event", "stop"}, {"trial", a.run.trial}});
          stopped_.push_back(a.run.trial);  // its other repeats too
        }
        finish({.run = a.run,
                .state = static_cast<TrialState>(r.state),
                .reason = r.reason,
                .value = r.value,
                .iteration = r.iteration,
                .epoch = r.epoch,
                .metrics = r.metrics,
                .receipt = r.receipt});
      }
      return;
    } catch (const WorkerLost& lost) {
      trouble(a, lost.what(), true);
    } catch (const Cancelled& cancelled) {
      if (a.stopping) {
        finish(stopped(a.run));
      } else if (!ending_) {
        trouble(a, cancelled.what(), true);
      }
    } catch (const Error& error) {
      if (trouble(a, error.what(), false)) return;
      end_runs();
      throw;
    }
  }

  static TrialResult stopped(const TrialRun& run) {
    return {.run = run,
            .state = TrialState::stopped,
            .reason = stopped_by_request,
            .value = std::numeric_limits<double>::quiet_NaN()};
  }

  // The machine has failed a run, which is not a result. Returns whether it is tried again.
  bool trouble(const Active& a, const std::string& reason, bool lost) {
    event({{"event", "fault"},
           {"trial", a.run.trial},
           {"repeat", a.run.repeat},
           {"budget", a.run.budget},
           {"reason", reason}});
    notify([&](SweepObserver& o) { o.fault(a.run, reason); });
    if (ending_) return true;
    Trouble& t = troubles_[a.run];
    if (saved_[a.run] > t.saved) t = {.saved = saved_[a.run]};
    if (lost ? ++t.losses < most_losses : ++t.errors < most_errors) return true;
    if (!lost) return false;
    end_runs();
    throw WorkerLost("[sweep] trial " + std::to_string(a.run.trial) + " has ended " +
                         std::to_string(t.losses) + " workers without progress: " + reason,
                     "when the cause is removed, continue the sweep with --resume");
  }

  // Asks all runs to save their state, and waits for them.
  void end_runs() {
    ending_ = true;
    const auto begun = Clock::now();
    while (!active_.empty()) {
      const bool late = seconds_since(begun) > longest_end;
      for (Active& a : active_) {
        if (a.future.done()) continue;
        if (!setup_.takes_messages || late || a.future.state() == TaskState::queued) {
          a.future.cancel();
        } else if (placed(a) && a.told != trial_is_interrupted) {
          if (a.orders->send(a.worker, trial_is_interrupted, 0)) a.told = trial_is_interrupted;
        }
      }
      wait();
      collect();
    }
  }

  // Files in the folder of requests: stop-<trial>.
  void take_requests() {
    if (seconds_since(asked_) < requests_seconds) return;
    asked_ = Clock::now();
    FileSystem& files = local_files();
    const std::string folder = join_path(setup_.folder, requests_name);
    if (files.exists(folder)) {
      for (const std::string& name : files.list(folder)) {
        if (!name.starts_with(stop_prefix)) continue;
        const std::string digits = name.substr(std::string(stop_prefix).size());
        if (digits.empty() || digits.size() > 9 ||
            digits.find_first_not_of("0123456789") != std::string::npos) {
          continue;  // such as a file that is being written
        }
        stop_trial(std::stoll(digits));
        files.remove(join_path(folder, name));
      }
    }
    for (const int64_t trial : stopped_) stop_open_runs(trial);
  }

  void stop_trial(int64_t trial) {
    const auto& open = schedule_.open();
    const bool runs = std::any_of(open.begin(), open.end(),
                                  [&](const TrialRun& run) { return run.trial == trial; });
    if (!runs) {
      notify([&](SweepObserver& o) {
        o.notice("trial " + std::to_string(trial) + " does not run, so it cannot be stopped");
      });
      return;
    }
    event({{"event", "stop"}, {"trial", trial}});
    stopped_.push_back(trial);
  }

  void stop_open_runs(int64_t trial) {
    for (Active& a : active_) {
      if (a.run.trial != trial || !placed(a) || a.stopping) continue;
      if (!setup_.takes_messages) {
        a.future.cancel();
        a.stopping = true;
      } else if (a.orders->send(a.worker, trial_must_stop, 0)) {
        a.told = trial_must_stop;
        a.stopping = true;
      }
    }
    for (const TrialRun& run : std::vector<TrialRun>(schedule_.open())) {
      if (run.trial == trial && !is_active(run)) finish(stopped(run));
    }
  }

  SweepSchedule& schedule_;
  Pool& pool_;
  const SweepSetup& setup_;
  SweepRecord record_;
  PollableDataQueue<TrialProgress> progress_;
  ThreadShares shares_;
  std::vector<Active> active_;
  std::map<TrialRun, Trouble> troubles_;
  std::map<TrialRun, int64_t> saved_;
  std::vector<int64_t> stopped_;  // trials, by request
  std::string awaited_;           // as last reported
  Clock::time_point asked_;
  bool ending_ = false;
};

}  // namespace

SweepEnd run_schedule(SweepSchedule& schedule, Pool& pool, const SweepSetup& setup) {
  return Driver(schedule, pool, setup).run();
}

void request_trial_stop(const std::string& folder, int64_t number) {
  const std::string requests = join_path(folder, requests_name);
  make_folders(local_files(), requests);
  write_atomically(local_files(), join_path(requests, stop_prefix + std::to_string(number)), "");
}

}  // namespace lockstep
