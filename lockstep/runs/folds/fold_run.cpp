#include "lockstep/runs/folds/fold_run.h"

#include <chrono>
#include <cmath>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/run.h"
#include "lockstep/runs/run_orders.h"
#include "lockstep/train/records/observer.h"
#include "lockstep/train/records/training_start.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds message_pause{100};

// Follows a training, and sends messages.
class FoldFollower : public TrainingObserver {
 public:
  // Keeps a reference to `orders`.
  FoldFollower(const FoldTask& task, const QueueSender<FoldMessage>& queue, RunOrders& orders)
      : queue_(queue), orders_(orders), frequency_(task.frequency) {
    said_.fold = task.fold;
  }

  void preparing(int64_t, int64_t) override { say_sometimes(); }
  void start(const TrainingStart& s) override {
    said_.iterations = s.iterations;
    said_.iteration = said_.saved = s.first_iteration - 1;
    said_.shards = s.shards;
    say(false);
  }
  void iteration(const IterationRecord& r) override {
    say_pending();
    said_.iteration = r.iteration;
    said_.epoch = r.epoch;
    said_.loss = r.loss;
    orders_.note(r);
    if (r.iteration % frequency_ == 0) pending_ = said_;
    say_sometimes();
  }
  void validation(const ValidationRecord& v) override {
    pending_.reset();
    said_.validation = {{"loss", v.loss}};
    if (std::isfinite(v.accuracy)) said_.validation.emplace_back("accuracy", v.accuracy);
    for (const MetricValue& m : v.metrics) said_.validation.emplace_back(m.name, m.value);
    say(true);
    said_.validation.clear();
  }
  void checkpoint(const std::string&, int64_t iteration) override {
    said_.saved = iteration;
    say(false);
  }
  void end() override { say_pending(); }
  void notice(const std::string& text) override {
    FoldMessage message = said_;
    message.shown = true;
    message.text = text;
    queue_.send(message);
  }

 private:
  // A row that no validation of the same iteration has completed.
  void say_pending() {
    if (!pending_) return;
    pending_->shown = true;
    queue_.send(*pending_);
    pending_.reset();
  }
  void say_sometimes() {
    if (Clock::now() - sent_ >= message_pause) say(false);
  }
  void say(bool shown) {
    sent_ = Clock::now();
    said_.threads = orders_.threads();
    said_.measured = orders_.measured();
    said_.rate = orders_.rate();
    said_.shown = shown;
    queue_.send(said_);
  }

  const QueueSender<FoldMessage> queue_;
  RunOrders& orders_;
  const int64_t frequency_;
  FoldMessage said_;
  std::optional<FoldMessage> pending_;
  Clock::time_point sent_;
};

}  // namespace

FoldValues fold_values(const Evaluation& e) {
  FoldValues values{{"loss", e.loss}};
  if (std::isfinite(e.accuracy)) values.push_back({"accuracy", e.accuracy});
  for (const MetricValue& m : e.metrics) {
    if (m.name != "accuracy") values.push_back(m);
  }
  return values;
}

std::string fold_folder(const std::string& folder, int64_t fold) {
  return join_path(folder, "fold-" + std::to_string(fold));
}

FoldValues FoldReport::named() const {
  FoldValues all;
  for (const auto& [name, value] : values) all.push_back({name, value});
  return all;
}

FoldReport run_fold(const FoldTask& task, const QueueSender<FoldMessage>& messages,
                    const QueueReceiver<int64_t>& receiver) {
  RunOrders orders(receiver, task.threads);
  FoldFollower follower(task, messages, orders);
  Job job = read_resolved_job(task.job);
  job.file = task.file;
  RunOptions options;
  options.folder = task.folder;
  options.store = task.store;
  options.observers = {&follower};
  options.interrupted = [&] { return orders.must_end() || task_cancelled(); };
  if (task.threads > 0) options.threads = [&] { return orders.threads(); };
  FoldReport report;
  try {
    orders.wait_for(options.folder);
    options.resume = local_files().exists(join_path(options.folder, "job.json"));
    const RunResult result = run_job(job, options);
    report.stopped = result.training.stopped;
    if (report.stopped) return report;
    for (const MetricValue& v : fold_values(result.validation.value())) {
      report.values.emplace_back(v.name, v.value);
    }
    return report;
  } catch (const Cancelled&) {
    if (!orders.must_end()) throw;
    report.stopped = true;
    return report;
  }
}

}  // namespace lockstep
