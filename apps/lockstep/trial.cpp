// Trying a job out: --check and --dry-run of `lockstep train`.
#include "apps/lockstep/trial.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/report/progress.h"

namespace lockstep::command {
namespace {

// A folder that is gone when this is.
class Passing {
 public:
  explicit Passing(std::string path) : path_(std::move(path)) {}
  ~Passing() {
    std::error_code nothing_can_be_done;
    std::filesystem::remove_all(path_, nothing_can_be_done);
  }
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;

 private:
  std::string path_;
};

class Beginning : public TrainingObserver {
 public:
  void start(const TrainingStart& s) override { known = s; }
  TrainingStart known;
};

std::string images(const DatastorePtr& store) {
  return store ? format_count(store->size()) + " images" : "none";
}

// Also what takes less than a second.
std::string precise(double seconds) {
  return seconds < 1 ? fmt::format("{:.1f} ms", 1000 * seconds) : format_duration(seconds);
}

int64_t validations(const TrainingOptions& options, const TrainingStart& start) {
  const int64_t frequency = std::max<int64_t>(options.validation_frequency, 1);
  const bool by_epoch =
      options.validation_frequency == 0 || options.validation_frequency_unit == "epoch";
  return ((by_epoch ? options.max_epochs : start.iterations) - 1) / frequency + 1;
}

}  // namespace

int check_job(const Job& job) {
  const JobPlan plan = plan_job(job);
  const TrainingOptions& options = plan.job.training;
  print_table(
      {{"training", images(plan.data.training)},
       {"validation", images(plan.data.validation)},
       {"test", images(plan.data.test)},
       {"classes", plan.classes.empty() ? "none: images are learned"
                                        : format_count(static_cast<int64_t>(plan.classes.size()))},
       {"learnables", format_count(plan.network.learnable_elements())},
       {"iterations",
        fmt::format("{} in {} epochs", format_count(plan.iterations_per_epoch * options.max_epochs),
                    format_count(options.max_epochs))},
       {"shards",
        format_count((options.mini_batch_size + options.shard_size - 1) / options.shard_size)},
       {"device", options.device},
       {"check", "everything fits together"}});
  return 0;
}

int dry_run(const Job& job, RunOptions options) {
  options.folder += ".dry-run-" + std::to_string(getpid());
  const std::string parent = std::filesystem::path(options.folder).parent_path();
  const bool new_parent = !parent.empty() && !std::filesystem::exists(parent);
  options.resume = false;
  options.dry_run = true;
  const Passing around(new_parent ? parent : options.folder);
  Beginning beginning;
  options.observers.push_back(&beginning);
  const RunResult result = run_job(job, options);
  const TrainingResult& t = result.training;
  const TrainingStart& start = beginning.known;
  if (options.stop && options.stop()) return exit_stopped;
  const double iteration = t.iterations.back().seconds;
  double total = iteration * static_cast<double>(start.iterations);
  std::vector<std::pair<std::string, std::string>> rows{
      {"iterations", fmt::format("{} of {} done", format_count(t.last_iteration),
                                 format_count(start.iterations))},
      {"an iteration", precise(iteration)}};
  if (!t.validations.empty()) {
    const double seconds = t.validations.back().seconds;
    const int64_t count = validations(start.options, start);
    rows.emplace_back("a validation",
                      fmt::format("{}, {} in all", precise(seconds), format_count(count)));
    total += seconds * static_cast<double>(count);
  }
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  rows.emplace_back("the whole training", "about " + precise(total));
  rows.emplace_back("memory",
                    fmt::format("{} MiB at most so far", format_count(usage.ru_maxrss / 1024)));
  rows.emplace_back("checkpoint", "written, and removed again");
  print_table(rows);
  return 0;
}

}  // namespace lockstep::command
