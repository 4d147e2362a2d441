#include "lockstep/runs/compare_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/runs/jobs/job_difference.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/run.h"
#include "lockstep/train/records/observer.h"
#include "lockstep/train/records/training_start.h"

namespace lockstep {
namespace {

struct RunOnDisk {
  std::string folder;
  Job job;
  TableColumns columns;
  std::vector<ReceiptLine> receipt;
  std::optional<PopulationLine> population;
  std::string note;
};

RunOnDisk open_run(const std::string& folder) {
  const std::string job = join_path(folder, "job.json");
  if (!local_files().exists(job)) {
    throw InvalidArgument("[run] " + folder + " is not a run folder: there is no job.json",
                          "use the folder that lockstep train wrote");
  }
  RunOnDisk run;
  run.folder = folder;
  run.job = read_job(local_files(), job);
  run.columns = run_columns(local_files(), folder);
  Receipt receipt = read_whole_receipt(local_files(), join_path(folder, "receipt.jsonl"));
  run.receipt = std::move(receipt.lines);
  run.population = receipt.population;
  run.note = std::move(receipt.rest_note);
  return run;
}

// Compares the computed iterations with the receipt.
class Follower : public TrainingObserver {
 public:
  Follower(const RunOnDisk& run, int64_t until, const ReplayOptions& options)
      : run_(run), until_(until), options_(options) {}

  void start(const TrainingStart& start) override {
    from = start.first_iteration - 1;
    if (from > 0 || right_model) return;
    const bool named = !options_.initial_model.empty();
    std::string model =
        named ? options_.initial_model : run_initial_model(local_files(), run_.folder);
    if (model.empty()) model = "an initial model";
    throw FileError("[run] " + run_.folder + (named ? " did not start" : " started") +
                        " from the values of " + model +
                        (named ? "" : ", which is missing or has changed"),
                    "name the original with --initial-model (of diff: --initial-model-a, "
                    "--initial-model-b)");
  }
  void iteration(const IterationRecord& r) override {
    if (options_.progress) options_.progress(r.iteration - from, until_ - from);
    const ReceiptLine& line = run_.receipt[static_cast<size_t>(r.iteration - 1)];
    if (differs > 0) return;
    if (line.observations != r.observations) {
      what = "the mini-batch has other observations";
    } else if (line.loss != r.loss) {
      what = fmt::format("the loss is {} in the receipt, but {} now", line.loss, r.loss);
    } else if (line.digest != r.digest) {
      what = fmt::format("the digest is {} in the receipt, but {} now", line.digest.to_string(),
                         r.digest.to_string());
    } else {
      return;
    }
    differs = r.iteration;
  }

  int64_t from = 0, differs = 0;
  std::string what;
  bool right_model = true;  // whether the first iteration begins with the run's initial model

 private:
  const RunOnDisk& run_;
  const int64_t until_;
  const ReplayOptions& options_;
};

// With the initial model, unless its path is that of the folder and it is not there or has
// changed. From a checkpoint, none is needed.
JobPlan plan_of(const RunOnDisk& run, const Job& job, const ReplayOptions& options,
                const std::string& digest) {
  const auto from = [&](const std::string& model) {
    return plan_job(job, {.initial_model = model, .columns = run.columns});
  };
  if (!options.initial_model.empty()) return from(options.initial_model);
  const std::string model = run_initial_model(local_files(), run.folder);
  if (model.empty()) return from("");
  try {
    JobPlan plan = from(model);
    if (digest.empty() || plan.initial_model == digest) return plan;
  } catch (const Error&) {  // an error of the job is thrown again
  }
  return from("");
}

// Returns all values after the iteration.
std::vector<NamedTensor> replay(const RunOnDisk& run, int64_t iteration,
                                const ReplayOptions& options, Follower& follower) {
  Job job = run.job;
  job.training.workers.count = 0;
  job.training.workers.load.clear();
  job.training.threads = options.threads;
  job.training.max_time = 0;
  const std::string digest = run_initial_model_digest(local_files(), run.folder);
  JobPlan plan = plan_of(run, job, options, digest);
  follower.right_model = digest.empty() || plan.initial_model == digest;
  TrainingControl control;
  control.observers = {&follower};
  control.replay = Replay{join_path(run.folder, "checkpoints"), iteration};
  return train(plan.network, plan.training, plan.job.training, control).replayed;
}

void require_iteration(const RunOnDisk& run, int64_t iteration) {
  const auto last = static_cast<int64_t>(run.receipt.size());
  if (iteration >= 1 && iteration <= last) return;
  throw InvalidArgument(fmt::format("[run] the receipt of {} has iterations 1 to {}, not {}",
                                    run.folder, last, iteration));
}

void compare(const std::string& name, const Tensor& a, const Tensor& b,
             std::vector<TensorDifference>& found) {
  if (!(a.shape() == b.shape())) {
    found.push_back({name, a.shape().elements(), a.shape().elements(), std::nan("")});
    return;
  }
  TensorDifference d{name, a.shape().elements(), 0, 0};
  const Tensor left = a.to({}), right = b.to({});
  const auto *x = left.data<float>(), *y = right.data<float>();
  for (int64_t i = 0; i < d.elements; ++i) {
    if (std::memcmp(x + i, y + i, sizeof(float)) == 0) continue;
    ++d.different;
    d.largest =
        std::max(d.largest, std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i])));
  }
  if (d.different > 0) found.push_back(d);
}

// The name without the kind of the value.
std::string short_name(const std::string& name) { return name.substr(name.find('/') + 1); }

std::vector<TensorDifference> compare(const std::vector<NamedTensor>& a,
                                      const std::vector<NamedTensor>& b) {
  std::vector<TensorDifference> found;
  std::map<std::string, Tensor> others;
  for (const NamedTensor& t : b) others.emplace(t.name, t.tensor);
  for (const NamedTensor& t : a) {
    const auto other = others.find(t.name);
    if (other == others.end()) {
      found.push_back({short_name(t.name), 0, 0, std::nan("")});
      continue;
    }
    compare(short_name(t.name), t.tensor, other->second, found);
    others.erase(other);
  }
  for (const NamedTensor& t : b) {
    if (others.count(t.name) > 0) found.push_back({short_name(t.name), 0, 0, std::nan("")});
  }
  return found;
}

std::string reason(const RunDifference& d, const Follower& a, const Follower& b,
                   const std::string& folder_a, const std::string& folder_b) {
  const auto not_itself = [](const std::string& folder, const Follower& f) {
    return fmt::format("{} differs from what its job computes here: in iteration {} {}", folder,
                       f.differs, f.what);
  };
  if (a.differs > 0) return not_itself(folder_a, a);
  if (b.differs > 0) return not_itself(folder_b, b);
  if (!d.job.empty()) return "the jobs differ in " + d.job;
  if (d.what == "observations") return "the images, or their order, differ";
  return "both match what their jobs compute here: images, initial model or libraries differ";
}

}  // namespace

Verification verify_run(const std::string& folder, int64_t iteration,
                        const ReplayOptions& options) {
  const RunOnDisk run = open_run(folder);
  require_iteration(run, iteration);
  Follower follower(run, iteration, options);
  replay(run, iteration, options, follower);
  return {iteration,
          follower.from,
          follower.differs,
          follower.what,
          run.receipt[static_cast<size_t>(iteration - 1)],
          run.note};
}

RunDifference compare_runs(const std::string& folder_a, const std::string& folder_b,
                           const ReplayOptions& options_a, const ReplayOptions& options_b) {
  const RunOnDisk a = open_run(folder_a), b = open_run(folder_b);
  RunDifference d;
  d.job = job_difference(a.job.resolved(), b.job.resolved()).what;
  d.common = static_cast<int64_t>(std::min(a.receipt.size(), b.receipt.size()));
  d.more_a = static_cast<int64_t>(a.receipt.size()) - d.common;
  d.more_b = static_cast<int64_t>(b.receipt.size()) - d.common;
  for (const RunOnDisk* run : {&a, &b}) {
    if (!run->note.empty()) d.notes.push_back(run->note);
  }
  for (int64_t i = 0; i < d.common && d.iteration == 0; ++i) {
    const ReceiptLine &x = a.receipt[static_cast<size_t>(i)],
                      &y = b.receipt[static_cast<size_t>(i)];
    if (x.observations != y.observations) {
      d.what = "observations";
    } else if (x.loss != y.loss) {
      d.what = "loss";
    } else if (x.digest != y.digest) {
      d.what = "digest";
    } else {
      continue;
    }
    d.iteration = x.iteration;
    d.epoch = x.epoch;
  }
  if (d.iteration == 0) {
    // The network that they leave depends on it too.
    const bool both = a.population && b.population && d.more_a == 0 && d.more_b == 0;
    if (both && (a.population->observations != b.population->observations ||
                 a.population->digest != b.population->digest)) {
      d.what = "population statistics";
      d.why = a.population->observations != b.population->observations
                  ? "they are of other images"
                  : "their digests differ: other libraries, or a fault";
    }
    return d;
  }
  Follower of_a(a, d.iteration, options_a), of_b(b, d.iteration, options_b);
  d.tensors =
      compare(replay(a, d.iteration, options_a, of_a), replay(b, d.iteration, options_b, of_b));
  d.why = reason(d, of_a, of_b, folder_a, folder_b);
  return d;
}

}  // namespace lockstep
