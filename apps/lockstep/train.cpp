#include "apps/lockstep/train.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/lockstep/archives_progress.h"
#include "apps/lockstep/command.h"
#include "apps/lockstep/continuation.h"
#include "apps/lockstep/dry_run.h"
#include "apps/lockstep/image_options.h"
#include "apps/lockstep/stop_signals.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/memory_room.h"
#include "lockstep/base/text.h"
#include "lockstep/cluster/slurm/cluster_hosts.h"
#include "lockstep/report/charts.h"
#include "lockstep/report/dashboard/dashboard.h"
#include "lockstep/report/pages/run_page.h"
#include "lockstep/report/progress.h"
#include "lockstep/report/tensorboard/tensorboard_writer.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/runs/folders/run_mirror.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/run.h"
#include "lockstep/runs/store/run_store.h"
#include "lockstep/storage/network_wait.h"
#include "lockstep/storage/object_store.h"
#include "lockstep/train/records/observer.h"

namespace lockstep::command {
namespace {

// The folder of a run without --out. It is made at once, so that no other run takes it, and removed
// if nothing was written to it.
class DefaultFolder {
 public:
  explicit DefaultFolder(const std::string& path) : path_(path) {}
  ~DefaultFolder() {
    std::error_code not_empty;
    if (path_.empty() || !std::filesystem::remove(path_, not_empty)) return;
    std::filesystem::remove(folder_of(path_), not_empty);
  }
  DefaultFolder(const DefaultFolder&) = delete;
  DefaultFolder& operator=(const DefaultFolder&) = delete;

 private:
  const std::string path_;
};

// The settings for the workers of a cluster, by its profile.
void add_cluster_settings(const TrainArguments& a, std::vector<std::string>& settings) {
  if (a.cluster.empty()) return;
  const ClusterLayout layout = cluster_layout(a.cluster);
  settings.push_back("training.workers=" + std::to_string(layout.workers));
  settings.push_back("training.threads=" + std::to_string(layout.threads));
  add_device_setting(layout.device, settings);
  if (layout.hosts.empty()) return;
  settings.push_back("training.hosts=" + nlohmann::json(layout.hosts).dump());
  settings.push_back("training.host_launch=" + nlohmann::json(layout.launch).dump());
  settings.push_back("training.host_address=" + nlohmann::json(layout.address).dump());
}

// The settings for the options about workers.
std::vector<std::string> worker_settings(const TrainArguments& a) {
  std::vector<std::string> settings;
  int workers = a.workers;
  if (!a.hosts.empty()) {
    TrainingOptions options;
    options.workers.hosts = a.hosts;
    int there = 0;
    for (const TrainingHost& host : lockstep::hosts_of(options)) there += host.workers;
    if (workers == 0) workers = there;
    settings.push_back("training.hosts=" + nlohmann::json(a.hosts).dump());
  }
  if (!a.host_launch.empty()) {
    settings.push_back("training.host_launch=" + nlohmann::json(a.host_launch).dump());
  }
  if (workers > 0) settings.push_back("training.workers=" + std::to_string(workers));
  if (!a.worker_load.empty()) settings.push_back("training.worker_load=[" + loads_of(a) + "]");
  return settings;
}

// Of --dashboard. It is for the command alone, not for those who start trainings by arguments.
bool dashboard_wanted = false;

// Prints notices when there is no progress output (--quiet).
class Notices : public TrainingObserver {
 public:
  void notice(const std::string& text) override {
    std::fprintf(stderr, "note: %s\n", printable(text).c_str());
  }
};

nlohmann::ordered_json workers_of(const TrainingResult& result) {
  nlohmann::ordered_json workers = nlohmann::ordered_json::array();
  for (const WorkerSummary& w : result.workers) {
    workers.push_back(
        {{"worker", w.worker}, {"pid", w.pid}, {"shards", w.shards}, {"lost", w.lost}});
  }
  return workers;
}

nlohmann::ordered_json summary_of(const RunResult& result, const std::string& folder,
                                  bool confusion) {
  const TrainingResult& t = result.training;
  const auto of = [](const std::optional<Evaluation>& e, double Evaluation::*field) {
    return e && std::isfinite((*e).*field) ? nlohmann::ordered_json((*e).*field)
                                           : nlohmann::ordered_json();
  };
  const auto metrics = [](const std::optional<Evaluation>& e) {
    return e ? metrics_json(e->metrics) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json summary{
      {"test_accuracy", of(result.test, &Evaluation::accuracy)},
      {"test_loss", of(result.test, &Evaluation::loss)},
      {"validation_accuracy", of(result.validation, &Evaluation::accuracy)},
      {"validation_loss", of(result.validation, &Evaluation::loss)},
      {"test_metrics", metrics(result.test)},
      {"validation_metrics", metrics(result.validation)},
      {"iterations", t.last_iteration},
      {"images_per_second", t.images_per_second > 0 ? nlohmann::ordered_json(t.images_per_second)
                                                    : nlohmann::ordered_json()},
      {"steps_per_second", t.steps_per_second > 0 ? nlohmann::ordered_json(t.steps_per_second)
                                                  : nlohmann::ordered_json()},
      {"seconds", t.seconds},
      {"digest", t.digest.to_string()},
      {"network_digest", t.network_digest.to_string()},
      {"stopped", t.stopped},
      {"out_of_patience", t.out_of_patience},
      {"network_iteration", t.network_iteration},
      {"shards_by_thread", t.shards_by_thread},
      {"workers", workers_of(t)},
      {"skipped_images", skipped_json(result.skipped)},
      {"folder", folder},
      {"model",
       result.model.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(result.model)}};
  for (const auto& [part, e] :
       {std::pair{"validation", &result.validation}, std::pair{"test", &result.test}}) {
    if (confusion && *e && (*e)->confusion) {
      summary["confusion"][part] = (*e)->confusion->to_json();
    }
  }
  return summary;
}

void print_closing_table(const RunResult& result, bool confusion) {
  const TrainingResult& t = result.training;
  std::vector<std::pair<std::string, std::string>> rows;
  const auto score = [&](const std::string& name, const std::optional<Evaluation>& e) {
    if (!e) return;
    const bool classes = std::isfinite(e->accuracy);
    rows.emplace_back(
        name + (classes ? " accuracy" : " loss"),
        fmt::format("{} of {} {}", classes ? percent(e->accuracy) : fmt::format("{:.5g}", e->loss),
                    format_count(e->observations), e->examples));
    for (const MetricValue& m : e->metrics) rows.emplace_back(name + " " + m.name, metric_text(m));
  };
  score("validation", result.validation);
  score("test", result.test);
  if (t.network_iteration != t.last_iteration) {
    rows.emplace_back("network of iteration", format_count(t.network_iteration));
  }
  rows.emplace_back("iterations", fmt::format("{} in {}", format_count(t.last_iteration),
                                              format_duration(t.seconds)));
  if (t.images_per_second > 0) {
    rows.emplace_back(result.examples + " per second",
                      format_count(std::llround(t.images_per_second)));
  }
  if (t.steps_per_second > 0) {
    rows.emplace_back("steps per second", format_count(std::llround(t.steps_per_second)));
  }
  rows.emplace_back("digest", t.digest.to_string());
  if (t.population) rows.emplace_back("network digest", t.network_digest.to_string());
  rows.emplace_back("model", result.model);
  print_table(rows);
  for (const auto& [part, e] :
       {std::pair{"validation", &result.validation}, std::pair{"test", &result.test}}) {
    if (!confusion || !*e || !(*e)->confusion) continue;
    print(fmt::format("\n{}\n{}", part, confusion_table(*(*e)->confusion, output_width())));
  }
}

// Writes the profile to the run's folder, and prints its table unless the output is JSON.
void report_profile(const Profile& profile, const TrainArguments& a, const std::string& folder) {
  write_atomically(local_files(), join_path(folder, "profile.json"), profile_json(profile));
  write_atomically(local_files(), join_path(folder, "trace.json"), chrome_trace(profile));
  if (!a.json) print("\n" + profile_table(profile, output_width()));
}

// A report that cannot be written does not make the training fail.
void write_report_of(const std::string& folder) {
  try {
    write_report(folder);
  } catch (const Error& e) {
    std::fprintf(stderr, "note: no report was written: %s\n", printable(e.what()).c_str());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "note: no report was written: %s\n", out_of_memory_text().c_str());
  }
}

// The local copy of a run in a store, with what must be said about it.
void open_mirror(const TrainArguments& a, std::optional<RunMirror>& mirror) {
  mirror.emplace(a.out, a.resume);
  if (mirror->is_ahead()) {
    std::fprintf(stderr, "note: the run continues from %s, whose state did not reach %s\n",
                 printable(mirror->folder()).c_str(), printable(a.out).c_str());
  }
  if (!mirror->moved_aside().empty()) {
    std::fprintf(stderr,
                 "note: %s has another state of the run than this machine, whose files are now in "
                 "%s\n",
                 printable(a.out).c_str(), printable(mirror->moved_aside()).c_str());
  }
}

int work(const TrainArguments& a) {
  if (a.job.empty() && !a.resume) {
    throw UsageError("a job file is missing",
                     "lockstep train JOB, or lockstep train --out DIR --resume to continue a run");
  }
  std::vector<std::string> settings = a.settings;
  add_cluster_settings(a, settings);
  if (!a.device.empty()) settings.push_back("training.device=\"" + a.device + "\"");
  if (a.threads > 0) settings.push_back("training.threads=" + std::to_string(a.threads));
  for (std::string& setting : worker_settings(a)) settings.push_back(std::move(setting));
  const ArchivesProgress archives(a.quiet);
  std::optional<storage::StopRetries> stop_retries;
  std::optional<RunMirror> mirror;  // of a run in a store
  const auto catch_stops = [&] {
    if (stop_retries) return;
    catch_stop_signals();
    stop_retries.emplace(stop_wanted);
  };
  std::string job_file = a.job;
  if (job_file.empty()) {
    if (storage::is_address(a.out)) {
      catch_stops();
      open_mirror(a, mirror);
    }
    job_file = job_of_run(mirror ? mirror->folder() : a.out, a.out);
  }
  const Job job = read_job(local_files(), job_file, settings);
  if (a.confusion && !job.data.labeled()) {
    throw InvalidArgument("[train] --confusion needs a network that classifies, but " + job_file +
                          " has image targets");
  }
  if (a.check) {
    check_job(job, a.initial_model);
    return 0;
  }
  if (a.dry_run && !a.cluster.empty()) {
    print(cluster_hosts_script(a.cluster));
    return 0;
  }
  catch_stops();
  RunOptions options;
  const std::string usual = "runs/" + job.name;
  // dry_run() makes another folder next to this one.
  options.folder = !a.out.empty() ? a.out : a.dry_run ? usual : make_numbered_folder(usual);
  const DefaultFolder made(a.out.empty() && !a.dry_run ? options.folder : "");
  if (storage::is_address(a.out)) {
    if (a.dry_run) throw Unsupported("[train] --dry-run needs a local folder for --out");
    if (!mirror) open_mirror(a, mirror);
    options.folder = mirror->folder();
    mirror->start();
  }
  options.resume = a.resume;
  options.rebuild_receipt = a.rebuild_receipt;
  options.save_initial = a.save_initial;
  options.initial_model = a.initial_model;
  options.profile = a.profile;
  options.interrupted = stop_wanted;
  if (!a.not_recorded) options.store = default_store_folder();
  if (mirror) options.address = mirror->address();

  ProgressPrinter progress(stderr, job.verbose_frequency);
  Notices notices;
  options.observers.push_back(a.quiet ? static_cast<TrainingObserver*>(&notices) : &progress);

  TensorBoardWriter events(
      local_files(), options.folder, a.histograms, [&](const std::string& text) {
        (a.quiet ? static_cast<TrainingObserver&>(notices) : progress).notice(text);
      });
  if (a.tensorboard) options.observers.push_back(&events);

  if (!a.quiet) {
    options.planned = [](const JobPlan& plan) {
      if (plan.classes.empty()) return;
      std::fprintf(stderr, "%s %s: %s\n",
                   format_count(static_cast<int64_t>(plan.classes.size())).c_str(),
                   plan.classes.size() == 1 ? "class" : "classes", classes_text(plan).c_str());
    };
  }
  std::unique_ptr<Dashboard> dashboard;
  if (dashboard_wanted) {
    dashboard = std::make_unique<Dashboard>(DashboardOptions{.folders = {options.folder}});
    std::fprintf(stderr, "dashboard: %s\n", dashboard->address().c_str());
  }
  RunResult result;
  DryRun tried;
  try {
    if (a.dry_run) {
      tried = dry_run(job, options);
    } else {
      result = run_job(job, options);
    }
  } catch (...) {
    if (!a.quiet) progress.finish();
    throw;
  }
  if (mirror) {  // the local copy is removed at the end
    if (!result.checkpoint.empty()) result.checkpoint = "in " + a.out;
    if (!result.model.empty()) result.model = join_path(a.out, run_model_name);
  }
  const int64_t last = result.training.last_iteration;
  if (result.validation) events.evaluation("validation", *result.validation, last);
  if (result.test) events.evaluation("test", *result.test, last);
  events.finish();
  if (!a.quiet) progress.finish();
  if (a.dry_run) {
    if (stop_wanted()) return exit_stopped;
    print_estimate(tried);
    return 0;
  }
  if (result.training.stopped) {
    // A run that stops before its first iteration has only the checkpoint from which it resumed.
    const std::string saved = result.checkpoint.empty() ? "" : "; checkpoint " + result.checkpoint;
    const bool out_of_time = result.training.out_of_time;
    std::fprintf(stderr, "stopped %safter iteration %s%s\nhint: continue with: %s\n",
                 out_of_time ? "by max_time " : "",
                 format_count(result.training.last_iteration).c_str(), printable(saved).c_str(),
                 how_to_go_on(a, mirror ? a.out : options.folder, out_of_time).c_str());
  }
  if (a.json) {
    print_json(summary_of(result, mirror ? a.out : options.folder, a.confusion));
  } else if (!result.training.stopped) {
    print_closing_table(result, a.confusion);
  }
  if (result.training.profile) report_profile(*result.training.profile, a, options.folder);
  write_report_of(options.folder);
  // What a stopped run has written reaches the store; a second signal ends that. A first one, of a
  // run that has finished, ends it too.
  if (stop_wanted()) stop_retries.reset();
  if (mirror) {
    if (stop_wanted()) {
      std::fprintf(stderr, "copying the run to %s; a second signal leaves it in %s\n",
                   printable(a.out).c_str(), printable(mirror->folder()).c_str());
    }
    mirror->finish(how_to_go_on(a, a.out, false));
  }
  return result.training.stopped ? exit_stopped : 0;
}

}  // namespace

void add_device_setting(const std::string& device, std::vector<std::string>& settings) {
  if (device != "cpu") settings.push_back("training.device=" + nlohmann::json(device).dump());
}

int train_command(const TrainArguments& a) {
  try {
    return work(a);
  } catch (const Cancelled& stopped) {
    // The run was waiting for its data or its workers.
    std::fprintf(stderr, "stopped: %s\n", stopped.what());
    if (!stopped.hint().empty()) std::fprintf(stderr, "hint: %s\n", stopped.hint().c_str());
    return exit_stopped;
  }
}

void add_train(Commands& commands) {
  auto a = std::make_shared<TrainArguments>();
  Subcommand sub = commands.add(
      "train", "Train the network of a job file",
      "The folder of the run receives the model, checkpoints, a log, a receipt of every "
      "iteration, the job with all its options (job.json) and a report (report.html).\n\n"
      "Ctrl-C finishes the iteration, writes a checkpoint and prints the command that continues "
      "the "
      "run; a second Ctrl-C ends at once. A run that was stopped in any way and continued has the "
      "same bits as an uninterrupted run. The number of threads and worker processes, and the loss "
      "of workers, change the speed, never the answer.\n\n"
      "Progress goes to standard error, the result to standard output. `lockstep reference` lists "
      "all fields of a job.",
      {{"lockstep train examples/jobs/digits.toml", "into runs/digits-1, or the next free number"},
       {"lockstep train job.toml --check", "check the job without training"},
       {"lockstep train job.toml --dry-run", "estimate the time of the training"},
       {"lockstep train job.toml --set max_epochs=5 --set training.seed=3", "change fields"},
       {"lockstep train job.toml --cluster lab --out runs/a", "by the nodes of a cluster"},
       {"lockstep train --out runs/a --resume", "continue the run in runs/a"},
       {"lockstep train --out runs/a --resume --set max_epochs=8",
        "also if it has finished, with more epochs"}},
      [a] { return train_command(*a); });
  sub.add_option("job", a->job, "Job file (TOML, or a run's job.json); --resume needs none")
      .type_name("JOB");
  sub.add_option("--set", a->settings, "Change a field or variable of the job (repeatable)")
      .one_value_each()
      .type_name("KEY=VALUE");
  sub.add_option("--out", a->out,
                 "Folder or s3:// address for the run (default: runs/<job>-<number>)")
      .type_name("DIR")
      .not_empty();
  add_threads(sub, a->threads);
  sub.add_option("--workers", a->workers,
                 "Worker processes, each with --threads threads (default: none)")
      .type_name("N")
      .range(1, 1024);
  sub.add_option("--worker-load", a->worker_load,
                 "Relative load of each worker: its share of the shards, such as 3,1")
      .type_name("LOADS")
      .separated_by_commas();
  sub.add_option("--hosts", a->hosts,
                 "Hosts and numbers of workers, such as 10.0.0.2:4,localhost:2 (by ssh)")
      .type_name("HOSTS")
      .separated_by_commas();
  sub.add_option(
         "--host-launch", a->host_launch,
         "Command that runs a program on a host, where {host} stands for its name (default: ssh)")
      .type_name("COMMAND");
  sub.add_option("--cluster", a->cluster,
                 "Profile of a cluster whose nodes compute (lockstep cluster)")
      .type_name("NAME")
      .not_empty()
      .excludes(sub.option("--threads"))
      .excludes(sub.option("--workers"))
      .excludes(sub.option("--hosts"))
      .excludes(sub.option("--host-launch"));
  sub.add_option("--device", a->device, "cpu, cuda, cuda:N, or auto: a GPU if there is one")
      .type_name("DEVICE");
  Option resume = sub.add_flag("--resume", a->resume,
                               "Continue the run in --out, with its own job and options");
  resume.needs(sub.option("--out"));
  sub.add_flag("--rebuild-receipt", a->rebuild_receipt,
               "If the run's receipt is damaged, compute its iterations again")
      .needs(resume);
  sub.add_flag("--save-initial", a->save_initial,
               "Also write the network before the first iteration");
  sub.add_option("--initial-model", a->initial_model,
                 "Start from the values of this model, run or checkpoint")
      .type_name("MODEL")
      .not_empty();
  Option check = sub.add_flag("--check", a->check, "Check the job without training");
  sub.add_flag("--dry-run", a->dry_run,
               "Three iterations, a validation, a checkpoint; estimate the time of the training. "
               "With --cluster: print the script for the scheduler")
      .excludes(check)
      .excludes(resume);
  for (const char* other : {"--resume", "--save-initial"}) {
    check.excludes(sub.option(other));
  }
  sub.add_flag("--confusion", a->confusion,
               "Also print the confusion matrix (also in confusion.json)")
      .excludes(check)
      .excludes(sub.option("--dry-run"));
  sub.add_flag("--profile", a->profile,
               "Also print a time profile, and write profile.json and trace.json")
      .excludes(check)
      .excludes(sub.option("--dry-run"));
  sub.add_flag("--dashboard", dashboard_wanted,
               "Serve a page of the training until it ends, and print its address")
      .excludes(check)
      .excludes(sub.option("--dry-run"));
  Option tensorboard = sub.add_flag("--tensorboard", a->tensorboard,
                                    "Also write event files for TensorBoard into the folder");
  tensorboard.excludes(check).excludes(sub.option("--dry-run"));
  sub.add_flag("--histograms", a->histograms,
               "With histograms of the parameters at every checkpoint")
      .needs(tensorboard);
  Option json =
      sub.add_flag("--json", a->json, "Print the result as one JSON object on the last line");
  json.excludes(check).excludes(sub.option("--dry-run"));
  sub.add_flag("--quiet", a->quiet, "Print no progress");
  sub.add_flag("--not-recorded", a->not_recorded,
               "Leave this run out of the run store (`lockstep runs`)");
}

}  // namespace lockstep::command
