// Implementation of --check and --dry-run of `lockstep train`.
#include "apps/lockstep/dry_run.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/report/progress.h"
#include "lockstep/train/input/pixel_targets.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/iteration/shard_sizes.h"
#include "lockstep/train/loop/memory_estimate.h"
#include "lockstep/train/records/observer.h"

namespace lockstep::command {
namespace {

// A temporary folder. The destructor removes it with its parents that did not exist before.
class Passing {
 public:
  explicit Passing(const std::string& path) : topmost_(path) {
    for (auto above = topmost_.parent_path(); !above.empty() && !std::filesystem::exists(above);
         above = above.parent_path()) {
      topmost_ = above;
    }
  }
  ~Passing() {
    std::error_code nothing_can_be_done;
    std::filesystem::remove_all(topmost_, nothing_can_be_done);
  }
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;

 private:
  std::filesystem::path topmost_;
};

class Beginning : public TrainingObserver {
 public:
  void start(const TrainingStart& s) override { known = s; }
  TrainingStart known;
};

std::string examples(const DatastorePtr& store) {
  if (!store) return "none";
  std::string word = examples_word(*store);
  if (store->size() == 1) word.pop_back();
  return format_count(store->size()) + " " + word;
}

struct Sample {
  int64_t read = 0;
  std::vector<std::string> damaged;  // what is wrong with each
};

// Reads images from all over the listing, one of each class among them, for what only reading
// shows: damage, and orientations.
void read_some(const DatastorePtr& store, Sample& sample) {
  constexpr int64_t most = 256;
  if (!store || !has_image_inputs(*store)) return;
  const int64_t count = std::min(most, store->size());
  std::set<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) indices.insert(i * store->size() / count);
  std::vector<bool> seen(store->classes().size(), false);
  for (int64_t i = 0; i < store->size() && !seen.empty(); ++i) {
    const auto label = static_cast<size_t>(store->label(i));
    if (label < seen.size() && !seen[label]) indices.insert(i);
    if (label < seen.size()) seen[label] = true;
  }
  for (const int64_t index : indices) {
    if (store->facts(index) != nullptr) continue;  // was read when its index was written
    try {
      ++sample.read;
      store->read(index);
    } catch (const DataError& error) {
      sample.damaged.emplace_back(error.what());
    }
  }
}

[[noreturn]] void refuse_damaged(const Sample& sample) {
  constexpr size_t most = 10;
  const auto& all = sample.damaged;
  std::string text =
      fmt::format("[data] {} of the {} images that were read cannot be used:",
                  format_count(static_cast<int64_t>(all.size())), format_count(sample.read));
  for (size_t i = 0; i < std::min(most, all.size()); ++i) text += "\n  " + all[i];
  if (all.size() > most) text += fmt::format("\n  and {} more", all.size() - most);
  throw DataError(text,
                  "repair or remove them, or leave such images out: bad_images = \"skip\" in "
                  "[data], or --set bad_images=skip");
}

// Includes times below one second.
std::string precise(double seconds) {
  return seconds < 1 ? fmt::format("{:.1f} ms", 1000 * seconds) : format_duration(seconds);
}

// "about 93 MiB: values 4, gradients 12, ..."
std::string memory_text(const JobPlan& plan, const TrainingOptions& options) {
  const MemoryEstimate e = estimate_memory(plan.network, plan.training, options, plan.data.test);
  const auto mib = [](size_t bytes) { return (bytes + (size_t{1} << 20) - 1) >> 20; };
  std::string text =
      fmt::format("about {} MiB", format_count(static_cast<int64_t>(mib(e.total()))));
  if (options.workers.count > 0)
    text += fmt::format(" in each of {} workers", options.workers.count);
  return text + fmt::format(
                    ": values {}, gradients {}, shards {}, images {}, saving {}, program {}, "
                    "evaluation {}",
                    mib(e.values), mib(e.gradients), mib(e.shards), mib(e.images), mib(e.saving),
                    mib(e.program), mib(e.evaluation));
}

int64_t validations(const TrainingOptions& options, const TrainingStart& start) {
  const int64_t frequency = std::max<int64_t>(options.validation.frequency, 1);
  const bool by_epoch = options.validation.frequency == 0 ||
                        options.validation.frequency_unit == FrequencyUnit::epoch;
  return ((by_epoch ? start.epochs() : start.iterations) - 1) / frequency + 1;
}

}  // namespace

std::string classes_text(const JobPlan& plan) {
  constexpr size_t most = 20;
  const std::vector<int64_t> counts = count_each_label(*plan.data.training);
  // An observation has a class for each step or pixel then, which only reading it shows.
  const bool by_step =
      plan.network.outputs().at(0).sequence || has_pixel_labels(*plan.data.training);
  const std::vector<double>& weights = plan.job.training.class_weights;
  const auto [least, largest] = std::minmax_element(counts.begin(), counts.end());
  std::string text;
  for (size_t i = 0; i < counts.size(); ++i) {
    const bool shown = counts.size() <= most || i < most / 2 || i + 1 == counts.size();
    if (!shown) {
      text += i == most / 2 ? ", ..." : "";
      continue;
    }
    text += (i > 0 ? ", " : "") + printable(plan.classes[i]);
    const std::string count = by_step ? "" : format_count(counts[i]);
    const std::string weight = weights.empty() ? "" : fmt::format("weight {}", weights[i]);
    if (!count.empty() || !weight.empty()) {
      text += " (" + count + (count.empty() || weight.empty() ? "" : ", ") + weight + ")";
    }
  }
  if (counts.size() > most && !by_step) {
    text += fmt::format("; of {} to {} {}", format_count(*least), format_count(*largest),
                        examples_word(*plan.data.training));
  }
  return text;
}

void check_job(const Job& job, const std::string& initial_model) {
  const JobPlan plan =
      plan_job(job, {.initial_model = initial_model, .values = JobValues::sizes_alone});
  if (!plan.initial_model_checked) {
    std::fprintf(stderr, "note: %s\n",
                 no_digest_text(job.from.empty() ? initial_model : job.from).c_str());
  }
  Sample sample;
  read_some(plan.data.training, sample);
  const int64_t read = sample.read;
  for (const DatastorePtr& part : {plan.data.validation, plan.data.test, plan.data.training_targets,
                                   plan.data.validation_targets, plan.data.test_targets}) {
    read_some(part, sample);
  }
  if (!sample.damaged.empty()) refuse_damaged(sample);
  for (const std::string& text : plan.notices()) print_note(text);
  const TrainingOptions options = plan.job.training.resolved();
  const int64_t shards = (options.mini_batch_size + options.shards.size - 1) / options.shards.size;
  const std::string advice = smaller_shards_advice(plan.network, plan.training, options);
  if (!advice.empty()) {
    print_note(idle_threads_note(shards, options.threads, options.workers.count) + advice);
  }
  const int64_t iterations = options.last_iteration(plan.iterations_per_epoch);
  const int64_t epochs = (iterations - 1) / plan.iterations_per_epoch + 1;
  std::vector<std::pair<std::string, std::string>> rows{
      {"training", examples(plan.data.training) +
                       (read > 0 ? ", of which " + format_count(read) + " were read" : "")},
      {"validation", examples(plan.data.validation)},
      {"test", examples(plan.data.test)},
      {"classes",
       plan.classes.empty()
           ? has_image_inputs(*plan.data.training) ? "none: the targets are images"
                                                   : "none: the targets are numbers"
           : format_count(static_cast<int64_t>(plan.classes.size())) + ": " + classes_text(plan)},
      {"parameters", format_count(plan.network.parameter_elements())},
      {"iterations", fmt::format("{} in {} {}", format_count(iterations), format_count(epochs),
                                 epochs == 1 ? "epoch" : "epochs")},
      {"shards", format_count(shards)},
      {"device", options.device}};
  if (options.device == "cpu") rows.emplace_back("memory", memory_text(plan, options));
  rows.emplace_back("check", "passed");
  print_table(rows);
}

DryRun dry_run(const Job& job, RunOptions options) {
  options.folder += ".dry-run-" + std::to_string(getpid());
  options.resume = false;
  options.dry_run = true;
  const Passing folder(options.folder);
  Beginning beginning;
  options.observers.push_back(&beginning);
  TrainingResult training = run_job(job, options).training;
  return {beginning.known, std::move(training)};
}

void print_estimate(const DryRun& of) {
  const TrainingResult& t = of.training;
  const TrainingStart& start = of.start;
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
  if (start.options.batch_normalization_statistics == BatchNormalizationStatistics::population) {
    rows.emplace_back("and afterwards", "a pass over the images for each level of normalization");
  }
  rows.emplace_back("memory",
                    fmt::format("{} MiB at most until now", format_count(usage.ru_maxrss / 1024)));
  rows.emplace_back("checkpoint", "written and removed again");
  print_table(rows);
}

}  // namespace lockstep::command
