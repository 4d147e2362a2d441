#include "lockstep/runs/sweeps/job_sweep.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/runs/jobs/job_difference.h"
#include "lockstep/runs/run.h"
#include "lockstep/runs/run_data.h"
#include "lockstep/runs/sweeps/continuation.h"
#include "lockstep/runs/sweeps/job_trial.h"
#include "lockstep/runs/sweeps/methods/search_space.h"
#include "lockstep/runs/sweeps/record.h"
#include "lockstep/runs/sweeps/trial_recorder.h"
#include "lockstep/runs/sweeps/worker_slots.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/workers/pool_workers.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* sweep_version = "1";
constexpr const char* result_name = "result.json";

// What sweep.json holds.
struct Stored {
  JobText text;
  std::vector<std::string> settings;
};

Stored read_stored(const std::string& path) {
  const json stored = parse_json_or_discard<json>(read_text(local_files(), path));
  try {
    if (stored.at("lockstep.sweep") != sweep_version) {
      throw DataError("[sweep] " + path + " is of a later version of Lockstep");
    }
    return {{stored.at("file").get<std::string>(), stored.at("job").dump()},
            stored.at("settings").get<std::vector<std::string>>()};
  } catch (const json::exception&) {
    throw DataError("[sweep] " + path + " is damaged");
  }
}

void write_stored(const std::string& path, const Stored& stored) {
  const ordered_json written{{"lockstep.sweep", sweep_version},
                             {"file", stored.text.file},
                             {"settings", stored.settings},
                             {"job", parse_json<ordered_json>(stored.text.tree)}};
  write_atomically(local_files(), path, written.dump(2) + "\n");
}

SweepOptions sweep_options_of(const JobText& text) {
  const json tree = parse_json<json>(text.tree);
  if (!tree.contains("sweep")) {
    throw InvalidArgument(text.file + ": [sweep] is missing",
                          "`lockstep reference sweep` describes this table");
  }
  return read_sweep_table(tree["sweep"]);
}

// A sweep continues with the same job. Its end alone may be later.
void check_same(const JobText& here, const JobText& there) {
  json a = parse_json<json>(here.tree), b = parse_json<json>(there.tree);
  const auto refuse = [](const std::string& what) {
    throw InvalidArgument("[sweep] the folder contains a sweep of another job: " + what,
                          "continue with the same job, or choose another folder with --out");
  };
  for (const char* field : {"trials", "repeats"}) {
    const int64_t now = a["sweep"].value(field, int64_t{0});
    if (now < b["sweep"].value(field, int64_t{0})) {
      refuse("[sweep] " + std::string(field) + " is smaller than there");
    }
    a["sweep"].erase(field);
    b["sweep"].erase(field);
  }
  const Job job_here = job_of(here), job_there = job_of(there);
  if (job_here.training.max_epochs < job_there.training.max_epochs) {
    refuse("training.max_epochs is smaller than there");
  }
  const JobDifference difference = job_difference(job_here.resolved(), job_there.resolved());
  if (!difference.what.empty()) {
    throw InvalidArgument("[sweep] the folder contains a sweep of another job: " + difference.what,
                          difference.hint);
  }
  for (const char* table : {"sweep", "variables", "network"}) {
    if (a.value(table, json()) != b.value(table, json())) {
      refuse("[" + std::string(table) + "] differs");
    }
  }
}

void check_parameters(const JobText& text, const SweepOptions& options) {
  for (const SweepParameter& p : options.parameters) {
    const std::string field = field_of_key(text, p.name);
    if (field.ends_with("/max_time") || field.starts_with("/sweep") || field == "/name") {
      throw InvalidArgument("[sweep.parameters] " + p.name + " cannot be a parameter of a sweep");
    }
    const bool halves = options.method == "successive-halving" || options.method == "hyperband";
    if (halves && field == "/training/max_epochs") {
      throw InvalidArgument(
          "[sweep.parameters] max_epochs cannot be a parameter of " + options.method,
          "its rungs are epochs; use a method without rungs");
    }
    if (options.repeats > 1 && field == "/training/seed") {
      throw InvalidArgument("[sweep.parameters] seed cannot be a parameter if there are repeats");
    }
    // A key that the job does not know is refused for every value.
    const std::vector<std::string> tries{parameter_value(p, 0), parameter_value(p, 0.5),
                                         parameter_value(p, 0.999999)};
    for (size_t i = 0; i < tries.size(); ++i) {
      try {
        job_of(text, {{p.name, tries[i]}});
        break;
      } catch (const InvalidArgument& e) {
        if (i + 1 < tries.size()) continue;
        throw InvalidArgument(
            "[sweep.parameters] " + p.name + ": none of its values gives a valid job: " + e.what(),
            e.hint());
      }
    }
  }
}

TrainingOptions options_of_hosts(const JobSweepOptions& options, const Job& job) {
  TrainingOptions own;
  own.threads = options.host_threads > 0 ? options.host_threads : job.training.threads;
  own.device = "cpu";
  own.workers.hosts = options.hosts;
  if (!options.host_launch.empty()) own.workers.host_launch = options.host_launch;
  own.workers.host_address = options.host_address;
  own.workers.count = 0;
  for (const TrainingHost& host : hosts_of(own)) own.workers.count += host.workers;
  own.workers.count = std::max<int64_t>(own.workers.count, 1);  // for check()
  own.check();
  return own.resolved();
}

// Workers on hosts, which compute the trainings of this process's trials.
class Lending {
 public:
  Lending(const JobSweepOptions& options, JobTrials& trials)
      : options_(options_of_hosts(options, job_of(trials.text()))),
        pool_(open_training_pool(options_)),
        slots_(static_cast<int>(options_.workers.count),
               [this](int slot) { return is_present(slot); }),
        offer_({.pool = pool_, .threads = options_.threads, .of = [this](const TrialRun& run) {
                  return slots_.of(run);
                }}) {
    trials.lent = offer_.number();
  }
  ~Lending() { pool_->stop(); }
  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;

  void fill(SweepSetup& setup) {
    setup.threads = options_.workers.count;
    setup.assign = [this](const std::vector<TrialRun>& runs, const std::vector<int64_t>& counts) {
      slots_.assign(runs, counts);
    };
    setup.waits_for = [this] { return waits_for(); };
  }

 private:
  bool is_present(int slot) const {
    const detail::HostMemory* const hosts = pool_->hosts();
    const int host = hosts ? hosts->host_of(slot) : 0;
    return host == 0 || hosts->presence(host) > 0;
  }

  // Until all hosts have joined. The loss of one later keeps no trial waiting.
  std::string waits_for() {
    for (int slot = 0; !all_came_ && slot < options_.workers.count; ++slot) {
      if (!is_present(slot)) return pool_->hosts()->waits_for();
    }
    all_came_ = true;
    return "";
  }

  const TrainingOptions options_;
  const std::shared_ptr<detail::PoolCore> pool_;
  WorkerSlots slots_;
  LendingOffer offer_;
  bool all_came_ = false;
};

class JobSweep {
 public:
  explicit JobSweep(const JobSweepOptions& options) : o_(options) {
    if (o_.folder.empty()) throw InvalidArgument("[sweep] the sweep's folder has no name");
    std::error_code none;
    o_.folder = std::filesystem::absolute(o_.folder, none).lexically_normal().string();
    read();
  }

  JobSweepResult run(const std::function<void(const JobSweepStart&)>& on_start) {
    JobSweepResult result;
    result.start = {.metric = "validation." + trials_.metric,
                    .minimize = options_.goal == "minimize",
                    .budget = budget_,
                    .epochs = expected_epochs(),
                    .workers = workers(),
                    .hosts = static_cast<int64_t>(o_.hosts.size()),
                    .lent = lent_count_,
                    .options = options_};
    result.job = stored_.text.file;
    make_folders(local_files(), o_.folder);
    const SweepLock lock(o_.folder);
    SweepSchedule schedule(method_, options_.repeats, result.start.minimize);
    SweepSetup setup;
    if (!local_files().exists(stored_path())) write_stored(stored_path(), stored_);
    continue_sweep({.folder = o_.folder,
                    .metric = result.start.metric,
                    .options = options_,
                    .budget = budget_,
                    .extended = extended_,
                    .rerun_failed = o_.rerun_failed},
                   schedule, setup);
    write_stored(stored_path(), stored_);
    if (on_start) on_start(result.start);
    {
      const auto lending = o_.hosts.empty() ? nullptr : std::make_unique<Lending>(o_, trials_);
      Pool pool({.workers = static_cast<int>(workers()),
                 .threads = lending != nullptr,
                 .threads_per_worker = lending ? 1 : available_cores()});
      fill(setup, pool);
      if (lending) lending->fill(setup);
      TrialRecorder recorder(o_.store, o_.folder, [this](const std::string& text) {
        for (SweepObserver* observer : o_.observers) observer->notice(text);
      });
      setup.observers.push_back(&recorder);
      result.finished = run_schedule(schedule, pool, setup) == SweepEnd::finished;
    }
    write_table(schedule);
    result.rows = trial_rows(schedule, options_);
    result.importance = parameter_importance(schedule, options_);
    if (result.finished) choose_best(schedule, result);
    return result;
  }

 private:
  std::string stored_path() const { return join_path(o_.folder, sweep_job_name); }

  void read() {
    FileSystem& files = local_files();
    const bool there = files.exists(stored_path());
    if (there && !o_.resume) {
      throw InvalidArgument("[sweep] " + o_.folder + " contains a sweep",
                            "continue it with --resume, or choose another folder with --out");
    }
    if (!there) {
      if (o_.job.empty()) {
        throw InvalidArgument("[sweep] " + o_.folder + " contains no sweep", "name a job file");
      }
      refuse_other_run(files, o_.folder);
      stored_ = {read_job_text(files, o_.job, o_.settings), o_.settings};
    } else {
      const Stored before = read_stored(stored_path());
      stored_ = before;
      stored_.settings.insert(stored_.settings.end(), o_.settings.begin(), o_.settings.end());
      stored_.text = o_.job.empty() ? with_settings(before.text, o_.settings)
                                    : read_job_text(files, o_.job, stored_.settings);
      stored_.text.file = before.text.file;
      check_same(stored_.text, before.text);
      extended_ = stored_.text.tree != before.text.tree;
    }
    options_ = sweep_options_of(stored_.text);
    const Job job = job_of(stored_.text);
    check(job);
    if (!o_.hosts.empty()) lent_count_ = options_of_hosts(o_, job).workers.count;
    check_parameters(stored_.text, options_);
    trials_ = {stored_.text.file, stored_.text.tree, o_.folder, options_.metric};
    budget_ = job.training.max_epochs;
    method_ = make_sweep_method(options_, budget_);
  }

  // Checks the job, and completes the options.
  void check(const Job& job) {
    if (job.training.max_time > 0) {
      throw InvalidArgument(
          stored_.text.file +
              ": [training] max_time would make trials depend on the machine's speed",
          "leave it out; Ctrl-C stops a sweep, and --resume continues it");
    }
    const JobData& data = job.data;
    if (data.validation.empty() && data.validation_fraction == 0 && data.folds == 0) {
      throw InvalidArgument(stored_.text.file + ": [data] a sweep needs validation data",
                            "give data.validation, or data.validation_fraction");
    }
    const bool labels = data.labeled();
    const auto& given = job.given;
    if (options_.metric.empty() &&
        std::find(given.begin(), given.end(), "training.objective") != given.end()) {
      options_.metric = job.training.validation.objective;
    }
    if (options_.metric.empty()) options_.metric = labels ? "accuracy" : "loss";
    std::vector<std::string> known = job.training.resolved().validation.metrics;
    known.emplace_back("loss");
    if (labels) known.emplace_back("accuracy");
    if (std::find(known.begin(), known.end(), options_.metric) == known.end()) {
      throw InvalidArgument("[sweep] the job has no metric `" + options_.metric + "`",
                            "name it in training.metrics");
    }
    if (options_.goal.empty()) {
      options_.goal = larger_is_better(options_.metric) ? "maximize" : "minimize";
    }
  }

  int64_t workers() const {
    const int64_t most = lent_count_ > 0 ? lent_count_ : available_cores();
    int64_t wanted = o_.workers > 0 ? o_.workers : most;
    if (lent_count_ > 0) wanted = std::min(wanted, lent_count_);
    const auto first = method_->decide(0, {}).goals.size();
    const int64_t trials = options_.method == "tpe" ? options_.trials
                           : method_->decisions() > 1 && options_.method == "hyperband"
                               ? options_.trials
                               : static_cast<int64_t>(first);
    return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, trials * options_.repeats));
  }

  // Epochs of all trials together, if none fails: decisions are pure, so they can be tried out.
  int64_t expected_epochs() const {
    if (options_.method == "tpe") return options_.trials * options_.repeats * budget_;
    SweepSchedule trial(method_, options_.repeats, false);
    std::map<std::pair<int64_t, int64_t>, int64_t> reached;
    while (const auto due = trial.due()) {
      trial.take(*due, trial.decide(*due));
      for (const TrialRun& run : std::vector<TrialRun>(trial.open())) {
        reached[{run.trial, run.repeat}] = run.budget;
        trial.add({.run = run});
      }
    }
    int64_t epochs = 0;
    for (const auto& [unused, budget] : reached) epochs += budget;
    return epochs;
  }

  void fill(SweepSetup& setup, Pool& pool) {
    setup.folder = o_.folder;
    setup.submit = [this, &pool](const TrialTask& task, const QueueSender<TrialProgress>& progress,
                                 const QueueReceiver<int64_t>& orders) {
      return pool.submit<&run_job_trial>(trials_, task, progress, orders);
    };
    setup.takes_messages = true;
    setup.complete = budget_;
    setup.threads = available_cores();
    setup.lend = o_.lend;
    setup.observers = o_.observers;
    setup.interrupted = o_.interrupted;
  }

  void write_table(const SweepSchedule& schedule) const {
    write_atomically(local_files(), join_path(o_.folder, trials_name),
                     trials_csv(schedule, options_, "validation." + options_.metric));
  }

  // The repeat of a trial that counts as its network: the best, then the first.
  int64_t best_repeat(const TrialSummary& summary) const {
    size_t best = 0;
    for (size_t r = 1; r < summary.repeats.size(); ++r) {
      const double here = summary.repeats[r]->value, there = summary.repeats[best]->value;
      if (options_.goal == "minimize" ? here < there : here > there) best = r;
    }
    return static_cast<int64_t>(best);
  }

  void choose_best(const SweepSchedule& schedule, JobSweepResult& result) {
    const std::vector<int64_t> ranking = schedule.ranking();
    if (ranking.empty() || schedule.summary(ranking.front())->failed()) {
      write_result(result, nullptr);
      return;
    }
    const int64_t trial = result.best = ranking.front();
    const TrialSummary summary = *schedule.summary(trial);
    const int64_t repeat = best_repeat(summary);
    const TrialParameters& parameters = schedule.parameters(trial);
    const Job job = trial_job(trials_, parameters, repeat);
    result.settings = stored_.settings;
    for (const auto& [name, value] : parameters) {
      result.settings.push_back(name + "=" + toml_of_json(value));
    }
    if (repeat > 0) {
      result.settings.push_back("training.seed=" + std::to_string(job.training.seed));
    }
    result.folder = trial_folder(o_.folder, trial, repeat);
    result.model = join_path(o_.folder, run_model_name);
    save_best(job, result);
    write_result(result, &summary);
  }

  // Evaluates the best network on the test data, and copies it and its confusion.
  void save_best(const Job& job, JobSweepResult& result) const {
    FileSystem& files = local_files();
    const std::string from = join_path(result.folder, run_model_name);
    write_atomically(files, result.model, files.read(from));
    const RunData data = open_run_data(job);
    Network network = load_model(files, from).network.clone();
    EvaluationOptions how{.noise = job.noise,
                          .seed = static_cast<uint64_t>(job.training.seed),
                          .metrics = job.training.validation.metrics,
                          .confusion = learns_labels(*data.training, data.training_targets)};
    ordered_json confusion;
    if (data.test) {
      how.targets = data.test_targets;
      result.test = evaluate(network, data.test, how);
      if (result.test->confusion) confusion["test"] = result.test->confusion->to_json();
    }
    if (data.validation && how.confusion) {
      how.targets = data.validation_targets;
      const Evaluation validation = evaluate(network, data.validation, how);
      if (validation.confusion) confusion["validation"] = validation.confusion->to_json();
    }
    for (const std::string& text : notices_of(data)) {
      for (SweepObserver* observer : o_.observers) observer->notice(text);
    }
    if (confusion.is_null()) return;
    write_atomically(files, join_path(o_.folder, "confusion.json"),
                     confusion.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  }

  void write_result(const JobSweepResult& result, const TrialSummary* best) const {
    const auto number = [](double value) {
      return std::isfinite(value) ? ordered_json(value) : ordered_json();
    };
    ordered_json written{{"lockstep.sweep.result", sweep_version},
                         {"trials", result.rows.size()},
                         {"metric", result.start.metric},
                         {"best", best == nullptr ? ordered_json() : ordered_json(result.best)}};
    if (best != nullptr) {
      written["value"] = number(best->value);
      if (options_.repeats > 1) written["spread"] = number(best->spread);
      written["settings"] = result.settings;
      if (result.test) {
        written["test_loss"] = number(result.test->loss);
        written["test_accuracy"] = number(result.test->accuracy);
        for (const MetricValue& m : result.test->metrics) {
          written["test_metrics"][m.name] = number(m.value);
        }
      }
    }
    for (const auto& [name, share] : result.importance) {
      written["importance"][name] = number(share);
    }
    write_atomically(local_files(), join_path(o_.folder, result_name), written.dump(2) + "\n");
  }

  JobSweepOptions o_;
  Stored stored_;
  bool extended_ = false;
  int64_t lent_count_ = 0;  // workers on hosts
  SweepOptions options_;
  JobTrials trials_;
  int64_t budget_ = 1;
  SweepMethodPtr method_;
};

}  // namespace

JobSweepResult run_job_sweep(const JobSweepOptions& options,
                             const std::function<void(const JobSweepStart&)>& on_start) {
  return JobSweep(options).run(on_start);
}

void check_job_sweep(const JobSweepOptions& options) { const JobSweep checked(options); }

}  // namespace lockstep
