#include "lockstep/runs/folds/fold_run.h"

#include <chrono>
#include <cmath>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/runs/folders/run_state.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/run.h"
#include "lockstep/train/records/observer.h"
#include "lockstep/train/records/training_start.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds message_pause{100};
constexpr std::chrono::seconds longest_wait_for_folder{20};

// Follows a training: sends messages, and receives orders.
class FoldFollower : public TrainingObserver {
 public:
  FoldFollower(const FoldTask& task, const QueueSender<FoldMessage>& queue,
               const QueueReceiver<int64_t>& orders)
      : queue_(queue), orders_(orders), frequency_(task.frequency) {
    said_.fold = task.fold;
    said_.threads = task.threads;
  }

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
    ++said_.measured;
    seconds_ = 0.9 * seconds_ + r.seconds;
    observations_ = 0.9 * observations_ + static_cast<double>(r.observations_count);
    if (seconds_ > 0) said_.rate = observations_ / seconds_;
    if (r.iteration % frequency_ == 0) pending_ = said_;
    if (Clock::now() - sent_ >= message_pause) say(false);
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

  // Takes the newest order. Whether the run must end now.
  bool must_end() {
    while (const auto order = orders_.poll()) {
      if (*order == fold_must_end) ends_ = true;
      if (*order > 0) use(*order);
    }
    return ends_;
  }
  int64_t threads() const { return said_.threads; }

 private:
  // The rate with another number of threads is measured again.
  void use(int64_t threads) {
    if (threads == said_.threads) return;
    said_.threads = threads;
    said_.measured = 0;
    seconds_ = observations_ = 0;
  }
  // A row that no validation of the same iteration has completed.
  void say_pending() {
    if (!pending_) return;
    pending_->shown = true;
    queue_.send(*pending_);
    pending_.reset();
  }
  void say(bool shown) {
    sent_ = Clock::now();
    said_.shown = shown;
    queue_.send(said_);
  }

  const QueueSender<FoldMessage> queue_;
  const QueueReceiver<int64_t> orders_;
  const int64_t frequency_;
  FoldMessage said_;
  std::optional<FoldMessage> pending_;
  double seconds_ = 0, observations_ = 0;
  bool ends_ = false;
  Clock::time_point sent_;
};

// The worker of an earlier attempt may still have the folder.
void wait_for_folder(const std::string& folder, FoldFollower& follower) {
  const auto begun = Clock::now();
  while (run_state(local_files(), folder).status == RunStatus::running &&
         Clock::now() - begun < longest_wait_for_folder && !follower.must_end()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

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
                    const QueueReceiver<int64_t>& orders) {
  FoldFollower follower(task, messages, orders);
  Job job = read_resolved_job(task.job);
  job.file = task.file;
  RunOptions options;
  options.folder = task.folder;
  options.store = task.store;
  options.observers = {&follower};
  options.interrupted = [&] { return follower.must_end() || task_cancelled(); };
  if (task.threads > 0) options.threads = [&] { return follower.threads(); };
  FoldReport report;
  try {
    wait_for_folder(options.folder, follower);
    options.resume = local_files().exists(join_path(options.folder, "job.json"));
    const RunResult result = run_job(job, options);
    report.stopped = result.training.stopped;
    if (report.stopped) return report;
    for (const MetricValue& v : fold_values(result.validation.value())) {
      report.values.emplace_back(v.name, v.value);
    }
    return report;
  } catch (const Cancelled&) {
    if (!follower.must_end()) throw;
    report.stopped = true;
    return report;
  }
}

}  // namespace lockstep
