// The subcommands submit and jobs.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/lockstep/command.h"
#include "apps/lockstep/stop_signals.h"
#include "apps/lockstep/train.h"
#include "lockstep/base/cloud/object_store.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/parallel/clusters/cluster_profile.h"
#include "lockstep/parallel/clusters/slurm.h"
#include "lockstep/report/progress.h"
#include "lockstep/runs/batch/batch_job.h"
#include "lockstep/runs/batch/batch_process.h"
#include "lockstep/runs/run.h"

namespace lockstep::command {
namespace {

using nlohmann::ordered_json;

struct SubmitArguments {
  std::string job, device, initial_model, cluster;
  std::vector<std::string> settings;
  int threads = 0, workers = 0;
  bool at_once = false;
};

struct JobsArguments {
  std::string action;
  std::vector<std::string> numbers;
  std::string out;
  double timeout = 0;
  int ready_descriptor = -1;
  bool json = false;
};

int submit_command(const SubmitArguments& a) {
  std::vector<std::string> settings = a.settings;
  if (!a.device.empty()) settings.push_back("training.device=\"" + a.device + "\"");
  if (a.threads > 0) settings.push_back("training.threads=" + std::to_string(a.threads));
  if (a.workers > 0) settings.push_back("training.workers=" + std::to_string(a.workers));
  BatchRequest request;
  if (!a.cluster.empty()) {
    const ClusterProfile profile = read_cluster_profile(a.cluster);
    settings.push_back("training.threads=" + std::to_string(profile.threads));
  }
  request.cluster = a.cluster;
  const Job job = read_job(local_files(), a.job, settings);
  request.at_once = a.at_once;
  if (cloud::is_address(a.initial_model)) {
    request.initial_model = a.initial_model;
  } else if (!a.initial_model.empty()) {
    request.initial_model = std::filesystem::absolute(a.initial_model).string();
  }
  // A job that cannot be trained is refused here, not in its diary.
  plan_job(job, {.initial_model = request.initial_model, .values = JobValues::sizes_alone});
  const int64_t number = submit_batch_job(job, request);
  if (const std::string note = logout_note(); a.cluster.empty() && !note.empty()) {
    std::fprintf(stderr, "note: %s\n", note.c_str());
  }
  print(std::to_string(number) + "\n");
  return 0;
}

// The newest iteration and validation in a run's log, and how long the run will be.
struct BatchProgress {
  ordered_json iteration, validation;
  int64_t last_epoch = 0;
};

BatchProgress progress_of(const BatchJob& job) {
  BatchProgress progress;
  const auto description =
      ordered_json::parse(read_text(local_files(), job.file("job.json")), nullptr, false);
  const ordered_json::json_pointer epochs("/training/max_epochs");
  if (description.contains(epochs) && description[epochs].is_number_integer()) {
    progress.last_epoch = description[epochs].get<int64_t>();
  }
  const std::string log = join_path(job.run_folder(), "log.jsonl");
  if (!local_files().exists(log)) return progress;
  const std::string text = read_text(local_files(), log);
  for (size_t end = text.rfind('\n'); end != std::string::npos && end > 0;) {
    const size_t before = text.rfind('\n', end - 1);
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    auto line = ordered_json::parse(text.substr(begin, end - begin), nullptr, false);
    if (line.is_object() && line.contains("seconds") && progress.iteration.is_null()) {
      progress.iteration = std::move(line);
    } else if (line.is_object() && line.contains("validation_loss") &&
               progress.validation.is_null()) {
      progress.validation = std::move(line);
    }
    if (!progress.iteration.is_null() && !progress.validation.is_null()) break;
    end = before;
  }
  return progress;
}

std::string number_text(const ordered_json& line, const char* key, bool share = false) {
  if (!line.is_object() || !line.contains(key) || !line[key].is_number()) return "-";
  const double value = line[key].get<double>();
  if (share) return percent(value);
  return line[key].is_number_integer() ? format_count(line[key].get<int64_t>())
                                       : fmt::format("{:.4g}", value);
}

ordered_json json_of(const BatchJob& job) {
  return {{"number", job.number},
          {"name", job.name},
          {"state", to_string(job.state.status)},
          {"reason", job.state.reason},
          {"submitted", job.submitted},
          {"since", job.state.time},
          {"host", job.host},
          {"cluster", job.request.cluster},
          {"folder", job.folder}};
}

int list_jobs(bool as_json) {
  const std::vector<BatchJob> jobs = batch_jobs();
  if (as_json) {
    auto all = ordered_json::array();
    for (const BatchJob& job : jobs) all.push_back(json_of(job));
    print_json(all);
    return 0;
  }
  if (jobs.empty()) {
    print("no jobs; `lockstep submit JOB` submits one\n");
    return 0;
  }
  size_t width = 4;
  for (const BatchJob& job : jobs) width = std::max(width, printable(job.name).size());
  std::string text = fmt::format("{:>6}  {:<{}}  {:<9}  {:<20}  {}\n", "number", "name", width,
                                 "state", "since (UTC)", "reason");
  for (const BatchJob& job : jobs) {
    std::string line =
        fmt::format("{:>6}  {:<{}}  {:<9}  {:<20}  {}", job.number, printable(job.name), width,
                    to_string(job.state.status), job.state.time, printable(job.state.reason));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  print(text);
  return 0;
}

int show_job(const BatchJob& job, bool as_json) {
  if (as_json) {
    print_json(json_of(job));
    return 0;
  }
  std::vector<std::pair<std::string, std::string>> rows{{"number", std::to_string(job.number)},
                                                        {"name", job.name},
                                                        {"state", to_string(job.state.status)}};
  if (!job.state.reason.empty()) rows.emplace_back("reason", job.state.reason);
  rows.insert(rows.end(),
              {{"since", job.state.time}, {"submitted", job.submitted}, {"host", job.host}});
  if (!job.request.cluster.empty()) rows.emplace_back("cluster", job.request.cluster);
  rows.emplace_back("folder", job.folder);
  print_table(rows);
  return 0;
}

int show_progress(const BatchJob& job, bool as_json) {
  const BatchProgress progress = progress_of(job);
  if (as_json) {
    print_json({{"number", job.number},
                {"state", to_string(job.state.status)},
                {"max_epochs", progress.last_epoch},
                {"iteration", progress.iteration},
                {"validation", progress.validation}});
    return 0;
  }
  std::vector<std::pair<std::string, std::string>> rows{{"state", to_string(job.state.status)}};
  if (progress.iteration.is_object()) {
    rows.emplace_back("epoch", fmt::format("{} of {}", number_text(progress.iteration, "epoch"),
                                           progress.last_epoch));
    rows.emplace_back("iteration", number_text(progress.iteration, "iteration"));
    rows.emplace_back("loss", number_text(progress.iteration, "loss"));
  }
  if (progress.validation.is_object()) {
    rows.emplace_back("validation loss", number_text(progress.validation, "validation_loss"));
    rows.emplace_back("validation accuracy",
                      number_text(progress.validation, "validation_accuracy", true));
  }
  print_table(rows);
  return 0;
}

// The exit code that tells how a job ended.
int exit_code_of(const BatchState& state) {
  switch (state.status) {
    case BatchStatus::finished:
      return 0;
    case BatchStatus::failed:
      return exit_failure;
    default:
      return exit_stopped;
  }
}

int wait_for_job(int64_t number, double seconds) {
  constexpr double forever = 1e9;
  const BatchState state = wait_for_batch_job(number, seconds > 0 ? seconds : forever);
  if (!has_ended(state.status)) {
    throw Timeout(fmt::format("[jobs] job {} is still {} after {} seconds", number,
                              to_string(state.status), seconds));
  }
  print(to_string(state.status) + (state.reason.empty() ? "" : ": " + printable(state.reason)) +
        "\n");
  return exit_code_of(state);
}

// Has the workers of a job of Slurm start on all its nodes.
void use_nodes_of_slurm(const BatchJob& job, TrainArguments& training) {
  if (job.request.cluster.empty() || current_slurm_job().empty()) return;
  const ClusterProfile& profile = job.profile;
  if (profile.nodes == 1) {
    if (profile.workers > 1) training.workers = static_cast<int>(profile.workers);
    return;
  }
  training.hosts = slurm_training_hosts(profile.workers_per_node());
  training.host_launch = slurm_host_launch();
  if (!profile.address.empty()) {
    training.settings.push_back("training.host_address=" + ordered_json(profile.address).dump());
  }
}

int work_on_job(int64_t number, int ready) {
  catch_stop_signals();
  return run_batch_job(number, {.train =
                                    [](const BatchJob& job) {
                                      TrainArguments training;
                                      training.job = job.file("job.json");
                                      training.out = job.run_folder();
                                      training.resume = true;
                                      training.initial_model = job.request.initial_model;
                                      use_nodes_of_slurm(job, training);
                                      return train_command(training);
                                    },
                                .stop_wanted = stop_wanted,
                                .request_stop = [] { ::kill(::getpid(), SIGTERM); },
                                .ready = ready});
}

int64_t job_number(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) {
    throw UsageError("\"" + printable(text) + "\" is not the number of a job",
                     "lockstep jobs list shows the numbers");
  }
  return number;
}

int act_on_job(const JobsArguments& a, int64_t number) {
  if (a.action == "show") return show_job(batch_job(number), a.json);
  if (a.action == "progress") return show_progress(batch_job(number), a.json);
  if (a.action == "wait") return wait_for_job(number, a.timeout);
  if (a.action == "run") return work_on_job(number, a.ready_descriptor);
  if (a.action == "diary") {
    const std::string diary = batch_job(number).file("diary.txt");
    if (local_files().exists(diary)) print(read_text(local_files(), diary));
  }
  if (a.action == "fetch") fetch_batch_job(number, a.out);
  if (a.action == "cancel") cancel_batch_job(number);
  if (a.action == "resume") resume_batch_job(number);
  if (a.action == "rm") remove_batch_job(number);
  return 0;
}

const char* const job_actions[] = {"list",  "show",   "wait",   "diary", "progress",
                                   "fetch", "cancel", "resume", "rm",    "run"};

std::string action_problem(const std::string& action) {
  for (const char* known : job_actions) {
    if (action == known) return "";
  }
  return "\"" + action + "\" is no action of `lockstep jobs`";
}

int jobs_command(const JobsArguments& a) {
  const auto refuse = [&](bool wrong, const std::string& text) {
    if (wrong) throw UsageError(text, "lockstep jobs --help describes the actions");
  };
  const bool list = a.action == "list";
  refuse(list && !a.numbers.empty(), "`lockstep jobs list` takes no number");
  refuse(!list && a.numbers.empty(), "`lockstep jobs " + a.action + "` needs the number of a job");
  refuse((a.action == "fetch") == a.out.empty(), "--out and `lockstep jobs fetch` need each other");
  refuse(a.action == "fetch" && a.numbers.size() > 1, "`lockstep jobs fetch` takes one number");
  refuse(a.timeout != 0 && a.action != "wait", "--timeout is for `lockstep jobs wait`");
  if (list) return list_jobs(a.json);
  int code = 0;
  for (const std::string& number : a.numbers) {
    code = std::max(code, act_on_job(a, job_number(number)));
  }
  return code;
}

}  // namespace

void add_submit(Commands& commands) {
  auto a = std::make_shared<SubmitArguments>();
  Subcommand sub = commands.add(
      "submit", "Train in the background: a batch job that outlives the terminal",
      "Prints the number of the job alone on standard output. The job is fixed now: later changes "
      "of the job file, the executable or the environment have no effect. Jobs run one after "
      "another, in the order of their numbers. `lockstep jobs` shows, waits for, fetches and "
      "cancels them, also from another terminal. The receipt is that of `lockstep train`.",
      {{"lockstep submit examples/jobs/digits.toml", "prints a number, such as 1"},
       {"lockstep submit job.toml --workers 4 --at-once", "beside the jobs that run"},
       {"lockstep submit job.toml --cluster lab", "train on the nodes of a cluster"}},
      [a] { return submit_command(*a); });
  sub.add_option("job", a->job, "Job file (TOML, or a run's job.json)").required().type_name("JOB");
  sub.add_option("--set", a->settings,
                 "Change a field or variable of the job (any number of times)")
      .one_value_each()
      .type_name("KEY=VALUE");
  add_threads(sub, a->threads);
  sub.add_option("--workers", a->workers,
                 "Worker processes, each with --threads threads (default: none)")
      .type_name("N")
      .range(1, 1024);
  sub.add_option("--device", a->device, "cpu, cuda, cuda:N, or auto: a GPU if there is one")
      .type_name("DEVICE");
  sub.add_option("--initial-model", a->initial_model,
                 "Start from the values of this model, run or checkpoint")
      .type_name("MODEL")
      .not_empty();
  sub.add_option("--cluster", a->cluster, "Profile of the cluster that trains (lockstep cluster)")
      .type_name("NAME")
      .not_empty()
      .excludes(sub.option("--threads"))
      .excludes(sub.option("--workers"))
      .excludes(sub.add_flag("--at-once", a->at_once, "Do not wait for the jobs before this one"));
}

void add_jobs(Commands& commands) {
  auto a = std::make_shared<JobsArguments>();
  Subcommand sub = commands.add(
      "jobs", "Batch jobs: list, show, wait, fetch, cancel, resume, remove",
      "Actions, each for jobs that `lockstep submit` made:\n\n"
      "  list      all jobs with their states\n"
      "  show      one job\n"
      "  wait      until it has ended; exit code 0 if it finished, 1 if it failed, 130 if it was "
      "cancelled\n"
      "  diary     what its training printed\n"
      "  progress  its newest iteration and validation\n"
      "  fetch     copy its run to --out; as often as wanted\n"
      "  cancel    end it after a checkpoint\n"
      "  resume    continue a job that failed or was cancelled\n"
      "  rm        remove a job that has ended, with its run\n"
      "  run       work on the job in this process (submit starts it so)\n\n"
      "States: queued, running, finished, failed (with the reason), cancelled. A job whose process "
      "was killed, or whose machine was restarted, has failed and can be resumed.",
      {{"lockstep jobs list", "a table"},
       {"lockstep jobs wait 3 --timeout 60", "wait at most a minute"},
       {"lockstep jobs fetch 3 --out runs/a", "copy the run of job 3"}},
      [a] { return jobs_command(*a); });
  sub.add_option("action", a->action, "What to do")
      .required()
      .type_name("list|show|wait|diary|progress|fetch|cancel|resume|rm|run")
      .check(action_problem);
  sub.add_option("numbers", a->numbers, "Numbers of jobs").type_name("NUMBER");
  sub.add_option("--out", a->out, "fetch: the folder for the run; it must not exist")
      .type_name("DIR")
      .not_empty();
  sub.add_option("--timeout", a->timeout, "wait: the most seconds to wait (default: no limit)")
      .type_name("SECONDS")
      .not_negative();
  sub.add_option("--ready-descriptor", a->ready_descriptor,
                 "run: a descriptor that gets a byte once the job is locked")
      .type_name("N")
      .range(3, 1024);
  sub.add_flag("--json", a->json, "list, show, progress: print JSON");
}

}  // namespace lockstep::command
