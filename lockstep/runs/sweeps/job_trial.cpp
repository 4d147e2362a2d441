#include "lockstep/runs/sweeps/job_trial.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/runs/run.h"
#include "lockstep/runs/run_data.h"
#include "lockstep/runs/run_orders.h"
#include "lockstep/runs/store/run_recorder.h"
#include "lockstep/runs/sweeps/continuation.h"
#include "lockstep/train/loop/objective.h"
#include "lockstep/train/records/observer.h"
#include "lockstep/train/records/training_start.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

Mutex lent_mutex;
std::map<uint64_t, LentWorkers> lent LOCKSTEP_GUARDED_BY(lent_mutex);
uint64_t next_lent LOCKSTEP_GUARDED_BY(lent_mutex) = 1;

LentWorkers lent_workers(uint64_t number) {
  const MutexLock lock(lent_mutex);
  const auto found = lent.find(number);
  if (found == lent.end()) throw InternalError("[sweep] the lent workers are of another process");
  return found->second;
}

constexpr std::chrono::milliseconds progress_pause{100};

double metric_of(const ValidationRecord& v, const std::string& metric) {
  if (metric == "accuracy") return v.accuracy;
  if (metric == "loss") return v.loss;
  for (const MetricValue& m : v.metrics) {
    if (m.name == metric) return m.value;
  }
  throw InvalidArgument("[sweep] the validation has no metric `" + metric + "`",
                        "name it in training.metrics");
}

// Follows a training, and sends its progress.
class TrialFollower : public TrainingObserver {
 public:
  // Keeps a reference to `orders`.
  TrialFollower(const TrialTask& task, const std::string& metric,
                const QueueSender<TrialProgress>& queue, RunOrders& orders)
      : metric_(metric), queue_(queue), orders_(orders) {
    said_.trial = task.trial;
    said_.repeat = task.repeat;
    budget_ = task.last ? 0 : task.budget;
  }

  void preparing(int64_t, int64_t) override { say(false); }
  void start(const TrainingStart& s) override {
    said_.iterations = s.iterations;
    said_.iteration = s.first_iteration - 1;
    said_.saved = said_.iteration;
    said_.goal =
        budget_ > 0 ? std::min(s.iterations, budget_ * s.iterations_per_epoch) : s.iterations;
    said_.shards = s.shards;
    per_epoch_ = s.iterations_per_epoch;
    chain_ = s.chain.to_string();
    say(true);
  }
  void iteration(const IterationRecord& r) override {
    said_.iteration = r.iteration;
    said_.loss = r.loss;
    orders_.note(r);
    chain_ = r.chain.to_string();
    say(false);
  }
  void validation(const ValidationRecord& v) override {
    said_.metric = metric_of(v, metric_);
    say(true);
  }
  // Lent workers take the place of threads.
  void worker(const WorkerChange& change) override { orders_.use(change.members); }
  void checkpoint(const std::string&, int64_t iteration) override {
    said_.saved = iteration;
    say(true);
  }

  int64_t iteration() const { return said_.iteration; }
  int64_t epoch() const {
    return per_epoch_ > 0 ? (said_.iteration + per_epoch_ - 1) / per_epoch_ : 0;
  }
  const std::string& chain() const { return chain_; }
  // Whether the training has ended before its goal.
  bool is_short() const { return said_.iteration < said_.goal; }

 private:
  void say(bool now) {
    if (!now && Clock::now() - sent_ < progress_pause) return;
    sent_ = Clock::now();
    said_.threads = orders_.threads();
    said_.measured = orders_.measured();
    said_.images_per_second = orders_.rate();
    queue_.send(said_);
  }

  const std::string metric_;
  const QueueSender<TrialProgress> queue_;
  RunOrders& orders_;
  TrialProgress said_;
  int64_t budget_ = 0, per_epoch_ = 0;
  std::string chain_;
  Clock::time_point sent_;
};

// Errors about the folder of a run are not the trial's: another process uses it, for example.
bool is_about_the_folder(const Error& error) {
  const std::string text = error.what();
  return text.find("[run] ") != std::string::npos &&
         text.find("[run] the network") == std::string::npos;
}

// A device that is not here, which another machine may have: it is not a result of the trial.
bool is_about_the_device(const Unsupported& error) {
  return std::string(error.what()).find("[device]") != std::string::npos;
}

bool is_about_the_sweep(const Error& error) {
  return std::string(error.what()).find("[sweep]") != std::string::npos;
}

// The validation of the network that the training would give now: the last one, if none has an
// objective that is a number.
const ValidationRecord* counted(const std::vector<ValidationRecord>& all,
                                const ValidationOptions& options) {
  const bool best = options.output_network == OutputNetwork::best;
  const ValidationRecord* const found = best ? Objective(options).best(all) : nullptr;
  return found == nullptr && !all.empty() ? &all.back() : found;
}

void set_results(TrialReport& report, const Job& job, const TrainingResult& training,
                 const std::string& metric) {
  const ValidationRecord* const v = counted(training.validations, job.training.validation);
  if (v == nullptr) {
    throw InvalidArgument("[sweep] the trial has no validation until iteration " +
                              std::to_string(training.last_iteration) +
                              ", so it cannot be compared",
                          "set validation_frequency = \"epoch\", or a smaller number");
  }
  report.value = metric_of(*v, metric);
  report.metrics = {{"validation.loss", v->loss}};
  if (!std::isnan(v->accuracy)) report.metrics.emplace_back("validation.accuracy", v->accuracy);
  for (const MetricValue& m : v->metrics) {
    report.metrics.emplace_back("validation." + m.name, m.value);
  }
  // A network whose loss is not a number is not a good one, whatever it classifies.
  const std::string failing = !std::isfinite(v->loss) ? "loss" : metric;
  if (std::isfinite(report.value) && std::isfinite(v->loss)) return;
  report.state = static_cast<int32_t>(TrialState::diverged);
  report.reason = "the validation " + failing + " is not a finite number";
  report.value = std::numeric_limits<double>::quiet_NaN();
}

// The reason has no path, because the same sweep may lie elsewhere.
TrialReport failed(TrialState state, const Error& error, const std::string& file,
                   const TrialFollower& follower) {
  TrialReport report;
  report.state = static_cast<int32_t>(state);
  report.reason = error.what();
  if (report.reason.starts_with(file + ": ")) report.reason.erase(0, file.size() + 2);
  report.value = std::numeric_limits<double>::quiet_NaN();
  report.iteration = follower.iteration();
  report.epoch = follower.epoch();
  report.receipt = follower.chain();
  return report;
}

}  // namespace

LendingOffer::LendingOffer(LentWorkers workers) {
  const MutexLock lock(lent_mutex);
  number_ = next_lent++;
  lent.emplace(number_, std::move(workers));
}

LendingOffer::~LendingOffer() {
  const MutexLock lock(lent_mutex);
  lent.erase(number_);
}

Job trial_job(const JobTrials& all, const TrialParameters& parameters, int64_t repeat) {
  Job job = job_of(all.text(), parameters);
  job.training.seed += repeat;
  job.training.workers = {};
  return job;
}

TrialReport run_job_trial(const JobTrials& all, const TrialTask& task,
                          const QueueSender<TrialProgress>& progress,
                          const QueueReceiver<int64_t>& receiver) {
  RunOrders orders(receiver, task.threads);
  TrialFollower follower(task, all.metric, progress, orders);
  TrialReport report;
  try {
    Job job = trial_job(all, task.parameters, task.repeat);
    RunOptions options;
    if (all.lent > 0) {
      const LentWorkers workers = lent_workers(all.lent);
      const TrialRun run{task.trial, task.repeat, task.budget};
      job.training.workers.count = 1;  // as many as are lent
      job.training.threads = workers.threads;
      options.pool = workers.pool;
      options.workers = [of = workers.of, run] { return of(run); };
    } else {
      job.training.threads = task.most_threads;
      keep_run_data(true);  // this process runs one trial after the other
      options.threads = [&] { return orders.threads(); };
    }
    options.folder = trial_folder(all.folder, task.trial, task.repeat);
    options.resume = true;
    options.observers = {&follower};
    options.interrupted = [&] { return orders.must_end() || task_cancelled(); };
    options.stop_after_epochs = task.last ? 0 : task.budget;
    // run.json names the sweep; the process that runs it records the folder in the store.
    const RunTrial trial{.sweep = all.folder, .number = task.trial, .parameters = task.parameters};
    options.trial = &trial;
    orders.wait_for(options.folder);
    const RunResult result = run_job(job, options);
    report.iteration = result.training.last_iteration;
    report.epoch = follower.epoch();
    report.receipt = follower.chain();
    // An order may arrive in the last iteration.
    if (result.training.stopped && follower.is_short()) {
      check_cancelled();
      report.interrupted = orders.ended();
      if (report.interrupted) return report;
      // By a request in the run's own folder (stop_request.h).
      report.state = static_cast<int32_t>(TrialState::stopped);
      report.reason = stopped_by_request;
      report.value = std::numeric_limits<double>::quiet_NaN();
      return report;
    }
    report.state =
        static_cast<int32_t>(follower.is_short() ? TrialState::ended : TrialState::reached);
    set_results(report, job, result.training, all.metric);
    return report;
  } catch (const Cancelled&) {
    if (!orders.ended()) throw;
    report.interrupted = true;
    return report;
  } catch (const Diverged& error) {
    return failed(TrialState::diverged, error, all.file, follower);
  } catch (const InvalidArgument& error) {
    if (is_about_the_folder(error) || is_about_the_sweep(error)) throw;
    return failed(TrialState::unbuildable, error, all.file, follower);
  } catch (const Unsupported& error) {
    if (is_about_the_device(error)) throw;
    return failed(TrialState::unbuildable, error, all.file, follower);
  }
}

}  // namespace lockstep
