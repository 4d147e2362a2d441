#include "lockstep/runs/run.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/memory_room.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/runs/folders/stop_request.h"
#include "lockstep/runs/jobs/networks/network_values.h"
#include "lockstep/runs/predictions.h"
#include "lockstep/runs/rebuild_receipt.h"
#include "lockstep/runs/store/run_recorder.h"
#include "lockstep/storage/network_wait.h"
#include "lockstep/storage/object_store.h"
#include "lockstep/train/input/pixel_targets.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/records/observer.h"
#include "lockstep/train/records/training_start.h"
#include "lockstep/train/state/checkpoint.h"
#include "lockstep/train/state/receipt.h"
#include "lockstep/train/state/receipt_check.h"

namespace lockstep {
namespace {

// Records the last checkpoint and iteration, and saves the network before the first iteration.
class Witness : public TrainingObserver {
 public:
  Witness(const RunFolder& folder, const JobPlan& plan, bool save_initial)
      : folder_(folder), plan_(plan), save_initial_(save_initial) {}

  void start(const TrainingStart& start) override {
    folder_.note_end();
    started = true;
    iterations = start.first_iteration - 1;
    if (!save_initial_ || start.first_iteration != 1) return;
    save_model(folder_.files(), folder_.file("initial.safetensors"), plan_.network, plan_.classes,
               preparation_of(plan_.job));
  }
  void iteration(const IterationRecord& record) override {
    iterations = record.iteration;
    computed = true;
  }
  void checkpoint(const std::string& path, int64_t) override { last = path; }

  std::string last;
  int64_t iterations = 0;  // the last finished one
  bool started = false;    // all checks have passed
  bool computed = false;   // this process has computed an iteration
  bool saved = false;      // the trained network is in the folder

 private:
  const RunFolder& folder_;
  const JobPlan& plan_;
  bool save_initial_;
};

// Tells what reading the data has shown, at the start of the training.
class Teller : public TrainingObserver {
 public:
  Teller(const RunData& data, std::function<void(const std::string&)> told)
      : data_(data), told_(std::move(told)) {
    for (std::string& text : notices_of(data_)) before_.insert(std::move(text));
  }
  void start(const TrainingStart&) override {
    for (const std::string& text : notices_of(data_)) {
      if (before_.insert(text).second) told_(text);
    }
  }

 private:
  const RunData& data_;
  const std::function<void(const std::string&)> told_;
  std::set<std::string> before_;
};

// Runs in worker processes and makes the same network and data as plan_job() in this process.
TrainingProblem job_problem(std::string job, std::string initial_model, std::string columns) {
  JobPlan plan =
      plan_job(read_resolved_job(job),
               {.initial_model = initial_model,
                .columns = TableColumns::from_json(parse_json<nlohmann::json>(columns))});
  return {std::move(plan.network), std::move(plan.training)};
}

// After a failed training: sets the network to the newest checkpoint with finite values, and saves
// it. Further errors are ignored, so that the user sees the first one.
void keep_last_sound_values(const RunFolder& folder, JobPlan& plan) {
  for (const std::string& path : checkpoints_in(folder.files(), folder.file("checkpoints"))) {
    try {
      const std::vector<NamedTensor> values = network_values(folder.files(), path).tensors;
      require_finite(values, path);
      set_values(plan.network, values, path);
      save_model(folder.files(), folder.file(run_model_name), plan.network, plan.classes,
                 preparation_of(plan.job));
      return;
    } catch (const Error&) {  // damaged, or of another network: an earlier checkpoint may be valid
    }
  }
}

constexpr const char* asked_to_stop = "by request (Ctrl-C, SIGTERM or a program)";
constexpr const char* asked_by_file_to_stop = "by request (the dashboard, or a file named stop)";

// The reason why a run stopped before its end.
std::string stop_reason(const Job& job, const RunOptions& options, const TrainingResult& training,
                        bool asked, bool asked_by_file) {
  if (asked) return asked_to_stop;
  if (asked_by_file) return asked_by_file_to_stop;
  if (options.dry_run) return "it was a dry run";
  if (options.stop_after > 0 && training.last_iteration >= options.stop_after) {
    return "stop_after = " + std::to_string(options.stop_after);
  }
  if (options.stop_after_epochs > 0) {
    return "it was to pause after " + counted(options.stop_after_epochs, "epoch");
  }
  return "max_time = " + nlohmann::json(job.training.max_time).dump() + " s has passed";
}

std::vector<RunScore> scores_of(const RunResult& result) {
  std::vector<RunScore> scores;
  for (const auto& [part, e] :
       {std::pair{"validation.", &result.validation}, std::pair{"test.", &result.test}}) {
    if (!*e) continue;
    const std::string prefix = part;
    scores.push_back({prefix + "loss", (*e)->loss});
    if (std::isfinite((*e)->accuracy)) scores.push_back({prefix + "accuracy", (*e)->accuracy});
    for (const MetricValue& m : (*e)->metrics) scores.push_back({prefix + m.name, m.value});
  }
  return scores;
}

// The training and the evaluation after it, in a folder that this run owns.
RunResult work(const Job& job, const RunOptions& options, JobPlan& plan, const RunFolder& folder,
               Witness& witness, RunRecorder& recorder, std::atomic<bool>& asked_by_file,
               std::atomic<bool>& started) {
  const RunData& data = plan.data;
  Network& network = plan.network;
  RunResult result;
  result.skipped = data.skipped;
  result.classes = plan.classes;
  result.examples = examples_word(*data.training);
  if (!options.profile) {
    // These files are from an earlier part of the run and do not describe this one.
    for (const char* name : {"profile.json", "trace.json"}) {
      if (folder.files().exists(folder.file(name))) folder.files().remove(folder.file(name));
    }
  }
  ReceiptWriter receipt(folder.files(), folder.path());
  TrainingControl control;
  control.observers = {&receipt, &witness, &recorder};
  control.observers.insert(control.observers.end(), options.observers.begin(),
                           options.observers.end());
  const auto notice = [&](const std::string& text) {
    for (TrainingObserver* observer : control.observers) observer->notice(text);
  };
  if (!data.skipped.empty()) notice(skipped_text(data.skipped));
  const std::vector<std::string> of_training = notices_of(plan.training);  // train() reports them
  for (const std::string& text : notices_of(data)) {
    if (std::find(of_training.begin(), of_training.end(), text) == of_training.end()) notice(text);
  }
  if (options.planned) options.planned(plan);
  for (const std::string& text : plan.own_notices()) notice(text);
  Teller teller(plan.data, notice);
  control.observers.push_back(&teller);
  if (!plan.initial_model_checked) {
    notice(no_digest_text(plan.job.from.empty() ? options.initial_model : plan.job.from));
  }
  control.checkpoint_folder = folder.file("checkpoints");
  control.observation_list = folder.file("observations");
  control.files = &folder.files();
  control.resume = folder.resumed();
  control.stop = options.stop;
  StopRequest request(folder.files(), folder.path());
  started = true;  // earlier requests are gone
  control.interrupted = [&] {
    if (options.interrupted && options.interrupted()) return true;
    if (!request.made()) return asked_by_file.load();
    if (!asked_by_file) notice("a stop was requested: the training ends after this iteration");
    asked_by_file = true;
    return true;
  };
  control.stop_after = options.stop_after;
  if (options.stop_after_epochs > 0) {
    control.stop_after = options.stop_after_epochs * plan.iterations_per_epoch;
  }
  control.threads = options.threads;
  control.workers = options.workers;
  control.pool = options.pool;
  control.dry_run = options.dry_run;
  control.profile = options.profile;
  if (folder.resumed() && folder.files().exists(folder.file("receipt.jsonl"))) {
    const std::string path = folder.file("receipt.jsonl"),
                      rest = receipt_rest_note(read_text(folder.files(), path), path);
    if (!rest.empty()) notice(rest + "; the training drops it");
  }
  const auto call = make_call<&job_problem>(plan.job.resolved().dump(), options.initial_model,
                                            plan.network.columns().to_json().dump());
  const auto run = [&] {
    result.training = train(call, network, plan.training, plan.job.training, control);
  };
  try {
    run();
  } catch (const ReceiptDamage& damage) {
    if (!options.rebuild_receipt) throw;
    notice(damage.what());
    rebuild_receipt({.folder = folder,
                     .job = plan.job,
                     .initial_model = options.initial_model,
                     .columns = plan.network.columns(),
                     .damage = damage.where(),
                     .notice = notice,
                     .stop = options.stop,
                     .interrupted = options.interrupted});
    network = plan_job(job, {.initial_model = options.initial_model,
                             .stop = options.interrupted,
                             .columns = plan.network.columns()})
                  .network;  // as it was before the training
    run();
  }
  receipt.finish();
  result.checkpoint = witness.last;

  // Saved first, so that the network is kept even if the evaluation fails.
  result.model = folder.file(run_model_name);
  save_model(folder.files(), result.model, network, result.classes, preparation_of(job));
  witness.saved = true;
  if (result.training.stopped) {
    recorder.finish(result.training.seconds, {});
    return result;
  }

  // Evaluated again, although the trainer may have validated these values, because the confusion is
  // needed and population statistics may have changed since. The workers have ended, so all
  // processors are free.
  const int64_t threads = job.training.workers.count > 0 ? 0 : job.training.threads;
  EvaluationOptions evaluation{.threads = static_cast<int>(threads),
                               .noise = job.noise,
                               .seed = static_cast<uint64_t>(job.training.seed),
                               .metrics = job.training.validation.metrics,
                               .confusion = learns_labels(*data.training, data.training_targets)};
  const auto evaluate_network = [&] {
    nlohmann::ordered_json confusion, predictions;
    const auto measure = [&](const char* part, const DatastorePtr& images,
                             const DatastorePtr& targets, std::optional<Evaluation>& into) {
      if (!images) return;
      const PredictionSelector selector(network.output_shapes().front());
      evaluation.targets = targets;
      evaluation.custom_metrics = job.training.validation.custom_metrics;
      // Of pixels there are no single predictions to show.
      const bool pixels = has_pixel_labels(*images);
      if (!pixels) evaluation.custom_metrics.push_back(selector.metric());
      into = evaluate(network, images, evaluation);
      std::erase_if(into->metrics, [](const MetricValue& m) {
        return m.name == PredictionSelector::metric_name();
      });
      if (into->confusion) confusion[part] = into->confusion->to_json();
      if (!pixels) predictions[part] = selector.to_json(*images);
    };
    measure("validation", data.validation, data.validation_targets, result.validation);
    measure("test", data.test, data.test_targets, result.test);
    recorder.finish(result.training.seconds, scores_of(result));
    for (const auto& [name, value] :
         {std::pair{"confusion.json", &confusion}, std::pair{"predictions.json", &predictions}}) {
      if (value->is_null()) continue;
      write_atomically(
          folder.files(), folder.file(name),
          value->dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
    }
  };
  const auto refuse = [&](const std::string& why, const std::string& hint) {
    throw OutOfMemory(why + "; the training has finished, and its network is saved in " +
                          result.model + ": only its evaluation is missing",
                      hint);
  };
  try {
    evaluate_network();
  } catch (const OutOfMemory& error) {
    refuse(error.what(), error.hint());
  } catch (const std::bad_alloc&) {
    refuse(out_of_memory_text(), out_of_memory_hint());
  }
  return result;
}

// For the run's folder.
std::string reason_of(const std::exception& error) {
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  return memory ? out_of_memory_text() : error.what();
}

// Never throws. If the folder cannot be written, the run counts as interrupted.
void note_failure(const RunFolder& folder, const Witness& witness, JobPlan& plan,
                  const std::exception& error) {
  try {
    const bool unwritten = dynamic_cast<const FileError*>(&error) != nullptr;
    if (folder.resumed() && (!witness.started || (unwritten && !witness.computed))) {
      folder.note_as_before();  // it was refused, or the disk is full: the run itself is unchanged
      return;
    }
    const bool has_model = folder.files().exists(folder.file(run_model_name));
    if (witness.started && !witness.saved && (witness.computed || !has_model)) {
      keep_last_sound_values(folder, plan);
    }
    folder.note(RunStatus::failed, reason_of(error), witness.iterations);
  } catch (const std::exception&) {
  }
}

// A path that means the same in every folder.
std::string settled_path(const std::string& path) {
  if (storage::is_address(path)) return path;
  return std::filesystem::absolute(path).lexically_normal().string();
}

// The model that a continued run started from.
std::string initial_model_of(const std::string& folder) {
  std::string model = run_initial_model(local_files(), folder);
  if (model.empty() || storage::is_address(model) || local_files().exists(model)) return model;
  throw FileError("[run] " + folder + " started from the values of " + model + ", which is missing",
                  "put it back, or name its new path with --initial-model");
}

void require_same_initial_model(const JobPlan& plan, const RunOptions& options) {
  const std::string noted = run_initial_model_digest(local_files(), options.folder);
  if (plan.initial_model.empty() || noted.empty() || plan.initial_model == noted) return;
  const bool from = !plan.job.from.empty();
  throw FileError("[run] " + (from ? plan.job.from : options.initial_model) +
                      " has changed since the run in " + options.folder + " began",
                  from ? "put the original back" : "name the original with --initial-model");
}

// A continued run has the columns with which it began.
JobPlan plan_of_run(Job job, const RunOptions& options) {
  JobPlanOptions how{.initial_model = options.initial_model, .stop = options.interrupted};
  if (options.resume) {
    how.columns = run_columns(local_files(), options.folder);
    keep_validation_frequency(local_files(), options.folder, job);
  }
  try {
    return plan_job(job, how);
  } catch (const InvalidArgument& error) {
    const std::string text = error.what();
    if (how.columns.empty() || text.find("[columns]") == std::string::npos) throw;
    throw InvalidArgument(text + " (the run in " + options.folder + ")", error.hint());
  }
}

}  // namespace

RunResult run_job(const Job& job, const RunOptions& wanted) {
  RunOptions options = wanted;
  if (options.resume && options.initial_model.empty()) {
    options.initial_model = initial_model_of(options.folder);
  }
  if (!options.resume) refuse_other_run(local_files(), options.folder);
  bool asked = false;
  std::atomic<bool> asked_by_file = false;
  // Before the data, whose threads may read until they end.
  std::atomic<bool> started = false;
  const std::string request = join_path(options.folder, stop_request_name);
  const storage::StopRetries stop_retries(
      [&] { return asked_by_file || (started && local_files().exists(request)); });
  JobPlan plan = plan_of_run(job, options);
  if (options.resume && wanted.initial_model.empty()) require_same_initial_model(plan, options);
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();
  if (!plan.initial_model.empty()) {
    extra["initial_model"] = plan.initial_model;
    if (plan.job.from.empty()) {
      extra["initial_model_file"] = settled_path(options.initial_model);
    }
  }
  if (!plan.network.columns().empty()) extra["columns"] = plan.network.columns().to_json();
  const RunFolder folder(local_files(), options.folder, plan.job, extra, options.resume);
  Witness witness(folder, plan, options.save_initial);
  RunRecorder recorder(folder, plan.job, options.dry_run ? "" : options.store, options.address,
                       options.trial, [&](const std::string& text) {
                         for (TrainingObserver* observer : options.observers) {
                           observer->notice(text);
                         }
                       });
  RunOptions watched = options;
  for (std::function<bool()>* wish : {&watched.stop, &watched.interrupted}) {
    if (!*wish) continue;
    *wish = [&asked, inner = *wish] { return inner() && (asked = true); };
  }
  try {
    RunResult result = work(job, watched, plan, folder, witness, recorder, asked_by_file, started);
    const TrainingResult& training = result.training;
    folder.note(training.stopped ? RunStatus::stopped : RunStatus::finished,
                training.stopped ? stop_reason(job, options, training, asked, asked_by_file) : "",
                training.last_iteration);
    recorder.record(/*at_end=*/true);
    return result;
  } catch (const Cancelled&) {  // before the first iteration
    if (folder.resumed()) {
      folder.note_as_before();
    } else {
      folder.note(RunStatus::stopped, asked_by_file ? asked_by_file_to_stop : asked_to_stop);
    }
    recorder.record(/*at_end=*/true);
    throw;
  } catch (const std::exception& error) {
    note_failure(folder, witness, plan, error);
    recorder.record(/*at_end=*/true);
    throw;
  }
}

}  // namespace lockstep
