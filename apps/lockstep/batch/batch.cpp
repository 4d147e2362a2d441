// The subcommands submit and jobs.
#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/lockstep/batch/batch_progress.h"
#include "apps/lockstep/batch/batch_work.h"
#include "apps/lockstep/batch/login_jobs.h"
#include "apps/lockstep/command.h"
#include "apps/lockstep/train.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/text.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/cluster/profiles/cluster_profile.h"
#include "lockstep/runs/batch/batch_job.h"
#include "lockstep/runs/batch/batch_start.h"
#include "lockstep/runs/run.h"
#include "lockstep/runs/sweeps/job_sweep.h"
#include "lockstep/storage/object_store.h"

namespace lockstep::command {
namespace {

using nlohmann::ordered_json;

struct SubmitArguments {
  std::string job, device, initial_model, cluster;
  std::vector<std::string> settings, attach;
  int threads = 0, workers = 0;
  bool at_once = false, dry_run = false;
};

struct JobsArguments {
  std::string action;
  std::vector<std::string> numbers;
  std::string out, cluster;
  double timeout = 0;
  int ready_descriptor = -1;
  bool json = false, follow = false;
};

// Refuses paths in [data] that do not exist. Otherwise only the diary would show the error.
void check_sweep_data(const ordered_json& tree) {
  const std::function<void(const std::string&, const ordered_json&)> check =
      [&](const std::string& field, const ordered_json& value) {
        if (value.is_array()) {
          for (const ordered_json& entry : value) check(field, entry);
        }
        if (!value.is_string() || !value.get<std::string>().starts_with("/")) return;
        if (!local_files().exists(value.get<std::string>())) {
          throw InvalidArgument("[data] " + field + ": " + value.get<std::string>() +
                                " does not exist");
        }
      };
  if (!tree.contains("data")) return;
  for (const auto& [field, value] : tree["data"].items()) check(field, value);
}

// The settings of a profile for a training.
void add_profile_settings(const SubmitArguments& a, const ClusterProfile& profile,
                          std::vector<std::string>& settings) {
  settings.push_back("training.threads=" + std::to_string(profile.threads));
  if (a.device.empty()) add_device_setting(profile.device, settings);
}

// Prints what Slurm would get.
int64_t show_script(const BatchRequest& request) {
  print(batch_script_for(request));
  return 0;
}

int64_t submit_training(const SubmitArguments& a, const std::vector<std::string>& settings,
                        BatchRequest& request) {
  const Job job = read_job(local_files(), a.job, settings);
  // An error of the job is thrown here. Otherwise only the diary would show it.
  plan_job(job, {.initial_model = request.initial_model, .values = JobValues::sizes_alone});
  request.name = job.name;
  if (a.dry_run) return show_script(request);
  return submit_batch_job(job.resolved().dump(2) + "\n", request);
}

int64_t submit_sweep(const SubmitArguments& a, const std::vector<std::string>& settings,
                     const JobText& text, BatchRequest& request) {
  if (!a.initial_model.empty()) {
    throw UsageError("--initial-model is for trainings, and " + printable(a.job) + " is a sweep");
  }
  check_job_sweep({.job = a.job, .settings = settings, .folder = "run"});
  const auto tree = parse_json<ordered_json>(text.tree);
  check_sweep_data(tree);
  request.kind = BatchKind::sweep;
  request.workers = a.workers;
  request.name = tree.value("name", "sweep");
  if (a.dry_run) return show_script(request);
  return submit_batch_job(tree.dump(2) + "\n", request);
}

// Submits on the login node of the cluster.
int submit_there(const SubmitArguments& a) {
  LoginSubmission submission{.cluster = a.cluster,
                             .job = a.job,
                             .settings = a.settings,
                             .attach = a.attach,
                             .initial_model = a.initial_model};
  if (!a.device.empty()) submission.options = {"--device", a.device};
  if (a.dry_run) submission.options.push_back("--dry-run");
  return submit_by_login(submission);
}

// Without --cluster the user's default profile is used. It is this machine at first, and then "".
std::string cluster_or_default(const std::string& cluster) {
  if (!cluster.empty()) return cluster;
  const std::string chosen = default_cluster_profile();
  return chosen == local_cluster_name ? "" : chosen;
}

SubmitArguments with_default_cluster(SubmitArguments a) {
  const std::string chosen = cluster_or_default(a.cluster);
  if (chosen == a.cluster) return a;
  if (a.threads > 0 || a.workers > 0 || a.at_once) {
    throw UsageError(
        "--threads, --workers and --at-once are for this machine, but the default "
        "profile is " +
            chosen,
        "--cluster local chooses this machine, lockstep cluster default local always");
  }
  a.cluster = chosen;
  return a;
}

// The user may not have looked into a file that stands for a profile.
void tell_what_a_file_attaches(const std::string& cluster) {
  if (!cluster.ends_with(".toml")) return;
  for (const std::string& file : read_cluster_profile(cluster).attach) {
    std::fprintf(stderr, "note: %s attaches %s\n", printable(cluster).c_str(),
                 printable(file).c_str());
  }
}

int submit_command(const SubmitArguments& given) {
  const SubmitArguments a = with_default_cluster(given);
  tell_what_a_file_attaches(a.cluster);
  if (has_login(a.cluster)) return submit_there(a);
  std::vector<std::string> settings = a.settings;
  if (!a.device.empty()) settings.push_back("training.device=\"" + a.device + "\"");
  if (a.threads > 0) settings.push_back("training.threads=" + std::to_string(a.threads));
  if (!a.cluster.empty()) add_profile_settings(a, read_cluster_profile(a.cluster), settings);
  BatchRequest request{.at_once = a.at_once, .cluster = a.cluster, .attach = a.attach};
  if (storage::is_address(a.initial_model)) {
    request.initial_model = a.initial_model;
  } else if (!a.initial_model.empty()) {
    request.initial_model = std::filesystem::absolute(a.initial_model).string();
  }
  if (a.dry_run && (a.cluster.empty() || read_cluster_profile(a.cluster).scheduler == "local")) {
    throw UsageError("--dry-run prints a script for Slurm, and the job would run on this machine",
                     "lockstep train --dry-run estimates the time of a training");
  }
  const JobText text = read_job_text(local_files(), a.job, settings);
  int64_t number = 0;
  if (parse_json<ordered_json>(text.tree).contains("sweep")) {
    number = submit_sweep(a, settings, text, request);
  } else {
    if (a.workers > 0) settings.push_back("training.workers=" + std::to_string(a.workers));
    number = submit_training(a, settings, request);
  }
  if (a.dry_run) return 0;
  const bool is_local = batch_job(batch_jobs_folder(a.cluster), number).is_local();
  if (const std::string note = logout_note(); is_local && !note.empty()) {
    std::fprintf(stderr, "note: %s\n", note.c_str());
  }
  print(std::to_string(number) + "\n");
  return 0;
}

ordered_json json_of(const BatchJob& job) {
  return {{"number", job.number},
          {"kind", to_string(job.request.kind)},
          {"name", job.name},
          {"state", to_string(job.state.status)},
          {"reason", job.state.reason},
          {"submitted", job.submitted},
          {"since", job.state.time},
          {"host", job.host},
          {"cluster", job.request.cluster},
          {"folder", job.folder}};
}

int list_jobs(const std::string& jobs_folder, bool as_json) {
  const BatchJobList list = batch_jobs(jobs_folder);
  const std::vector<BatchJob>& jobs = list.jobs;
  for (const auto& [number, what] : list.damaged) {
    std::fprintf(stderr, "note: job %lld: %s\n", static_cast<long long>(number),
                 printable(what).c_str());
  }
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
  std::string text = fmt::format("{:>6}  {:<{}}  {:<8}  {:<9}  {:<20}  {}\n", "number", "name",
                                 width, "kind", "state", "since (UTC)", "reason");
  for (const BatchJob& job : jobs) {
    std::string line =
        fmt::format("{:>6}  {:<{}}  {:<8}  {:<9}  {:<20}  {}", job.number, printable(job.name),
                    width, to_string(job.request.kind), to_string(job.state.status), job.state.time,
                    printable(job.state.reason));
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
                                                        {"kind", to_string(job.request.kind)},
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

// Waits for all jobs, at most `seconds` in all; 0: without a limit.
int wait_for_jobs(const std::string& all, const std::vector<int64_t>& numbers, double seconds) {
  constexpr double forever = 1e9;
  const TimeLimit limit(seconds > 0 ? seconds : forever);
  int code = 0;
  for (const int64_t number : numbers) {
    const BatchState state = wait_for_batch_job(all, number, limit.left());
    if (!has_ended(state.status)) {
      throw Timeout(fmt::format("[jobs] job {} is still {} after {} seconds", number,
                                to_string(state.status), seconds));
    }
    print((numbers.size() > 1 ? std::to_string(number) + ": " : "") + to_string(state.status) +
          (state.reason.empty() ? "" : ": " + printable(state.reason)) + "\n");
    code = std::max(code, exit_code_of(state));
  }
  return code;
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

// "3" or "3-7"
std::vector<int64_t> job_numbers(const std::vector<std::string>& words) {
  constexpr int64_t most = 100'000;
  std::vector<int64_t> numbers;
  for (const std::string& word : words) {
    const size_t dash = word.find('-', 1);
    const int64_t first = job_number(word.substr(0, dash));
    const int64_t last = dash == std::string::npos ? first : job_number(word.substr(dash + 1));
    if (last < first || last - first >= most) {
      throw UsageError("\"" + printable(word) + "\" is not a range of numbers of jobs");
    }
    for (int64_t number = first; number <= last; ++number) numbers.push_back(number);
  }
  return numbers;
}

void print_diary(const std::string& all, int64_t number) {
  const std::string diary = batch_job(all, number).file("diary.txt");
  if (local_files().exists(diary)) print(read_text(local_files(), diary));
}

int act_on_job(const JobsArguments& a, const std::string& all, int64_t number) {
  if (a.action == "show") return show_job(batch_job(all, number), a.json);
  if (a.action == "progress") return show_batch_progress(all, number, {a.json, a.follow});
  if (a.action == "diary") print_diary(all, number);
  if (a.action == "fetch" && fetch_batch_job(all, number, a.out)) tell_of_unfinished_fetch(a.out);
  if (a.action == "cancel") cancel_batch_job(all, number);
  if (a.action == "resume") resume_batch_job(all, number);
  if (a.action == "rm") remove_batch_job(all, number);
  return 0;
}

// After an error of one job the action goes on with the others. An error of the last one is thrown.
int act_on_jobs(const JobsArguments& a, const std::string& all,
                const std::vector<int64_t>& numbers) {
  int code = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    try {
      code = std::max(code, act_on_job(a, all, numbers[i]));
    } catch (const Error& error) {
      if (i + 1 == numbers.size()) throw;
      print_error(error.what(), error.hint());
      code = exit_failure;
    }
  }
  return code;
}

const char* const job_actions[] = {"list",  "show",   "wait",   "diary", "progress",
                                   "fetch", "cancel", "resume", "rm",    "run"};

std::string action_problem(const std::string& action) {
  for (const char* known : job_actions) {
    if (action == known) return "";
  }
  return "\"" + action + "\" is not an action of `lockstep jobs`";
}

// A number, or the folder of a job.
int run_job_of(const JobsArguments& a) {
  std::string folder = a.numbers.front();
  if (!folder.starts_with("/")) {
    const std::string all = batch_jobs_folder(cluster_or_default(a.cluster));
    folder = batch_job(all, job_number(folder)).folder;
  }
  return work_on_batch_job(folder, a.ready_descriptor);
}

// The arguments for the command on the login node of the cluster, without --out.
std::vector<std::string> words_of(const JobsArguments& a) {
  std::vector<std::string> words{a.action};
  words.insert(words.end(), a.numbers.begin(), a.numbers.end());
  if (a.timeout > 0) words.insert(words.end(), {"--timeout", fmt::format("{}", a.timeout)});
  if (a.json) words.push_back("--json");
  if (a.follow) words.push_back("--follow");
  return words;
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
  refuse(a.follow && a.action != "progress", "--follow is for `lockstep jobs progress`");
  if (a.action == "run") return run_job_of(a);
  // The same profile as in `submit`.
  const std::string cluster = cluster_or_default(a.cluster);
  if (has_login(cluster)) return jobs_by_login(cluster, words_of(a), a.out);
  const std::string all = batch_jobs_folder(cluster);
  if (list) return list_jobs(all, a.json);
  const std::vector<int64_t> numbers = job_numbers(a.numbers);
  return a.action == "wait" ? wait_for_jobs(all, numbers, a.timeout) : act_on_jobs(a, all, numbers);
}

}  // namespace

void add_submit(Commands& commands) {
  auto a = std::make_shared<SubmitArguments>();
  Subcommand sub = commands.add(
      "submit", "Train in the background: a batch job that outlives the terminal",
      "Runs a job file with a table [sweep] as `lockstep sweep` does, and trains any other one. "
      "Prints only the number of the job on standard output. The job is fixed: later changes of "
      "the job file, the executable, the environment or attached files have no effect. Jobs on "
      "this machine run one after another, in the order of their numbers. `lockstep jobs` shows, "
      "waits for, fetches and cancels them, also from another terminal. The receipt is that of "
      "`lockstep train`.",
      {{"lockstep submit examples/jobs/digits.toml", "print the number of the job, such as 1"},
       {"lockstep submit job.toml --workers 4 --at-once", "train while other jobs run"},
       {"lockstep submit job.toml --cluster lab", "train on the nodes of a cluster"},
       {"lockstep submit job.toml --attach images", "train with a copy of the folder images"}},
      [a] { return submit_command(*a); });
  sub.add_option("job", a->job, "Job file (TOML, or a run's job.json)").required().type_name("JOB");
  sub.add_option("--set", a->settings, "Change a field or variable of the job (repeatable)")
      .one_value_each()
      .type_name("KEY=VALUE");
  add_threads(sub, a->threads);
  sub.add_option(
         "--workers", a->workers,
         "Worker processes, each with --threads threads (default: none); of a sweep: concurrent "
         "trials")
      .type_name("N")
      .range(1, 1024);
  sub.add_option("--device", a->device, "cpu, cuda, cuda:N, or auto: a GPU if there is one")
      .type_name("DEVICE");
  sub.add_option("--initial-model", a->initial_model,
                 "Start from the values of this model, run or checkpoint")
      .type_name("MODEL")
      .not_empty();
  sub.add_option("--attach", a->attach,
                 "Copy this file or folder into the job (repeatable); the job reads data "
                 "in it from the copy")
      .one_value_each()
      .type_name("FILE")
      .not_empty();
  sub.add_flag("--dry-run", a->dry_run, "Print the script for Slurm and submit nothing");
  sub.add_option("--cluster", a->cluster,
                 "Profile of the cluster that trains (lockstep cluster; default: the profile that "
                 "`lockstep cluster default` shows)")
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
      "Actions, each for jobs that `lockstep submit` or a program (batch() in C++) made:\n\n"
      "  list      all jobs with their states\n"
      "  show      one job\n"
      "  wait      until they have ended; exit code 0 if all finished, 1 if one failed, 130 if one "
      "was cancelled\n"
      "  diary     what its process printed\n"
      "  progress  its newest iteration and validation, or its trials\n"
      "  fetch     copy its run, or the files of its function, to --out; can be repeated\n"
      "  cancel    end it after a checkpoint\n"
      "  resume    continue a job that failed or was cancelled\n"
      "  rm        remove a job that has ended, with its run\n"
      "  run       work on the job in this process (`submit` starts jobs by this)\n\n"
      "States: queued, running, finished, failed (with the reason), cancelled. A job whose process "
      "was killed, or whose machine was restarted, has failed and can be resumed.",
      {{"lockstep jobs list", "a table"},
       {"lockstep jobs list --cluster lab", "the jobs on the cluster lab"},
       {"lockstep jobs wait 3 --timeout 60", "wait at most a minute"},
       {"lockstep jobs rm 1 4-9", "remove seven jobs"},
       {"lockstep jobs fetch 3 --out runs/a", "copy the run of job 3"}},
      [a] { return jobs_command(*a); });
  sub.add_option("action", a->action, "What to do")
      .required()
      .type_name("list|show|wait|diary|progress|fetch|cancel|resume|rm|run")
      .check(action_problem);
  sub.add_option("numbers", a->numbers, "Numbers of jobs, or ranges such as 3-7")
      .type_name("NUMBER");
  sub.add_option("--out", a->out, "fetch: the folder for the run; it must not exist, or be empty")
      .type_name("DIR")
      .not_empty();
  sub.add_option("--cluster", a->cluster,
                 "Profile of the cluster whose login node or folder has the jobs (default: the "
                 "profile that `lockstep cluster default` shows)")
      .type_name("NAME")
      .not_empty();
  sub.add_option("--timeout", a->timeout, "wait: timeout in seconds (default: none)")
      .type_name("SECONDS")
      .not_negative();
  sub.add_option("--ready-descriptor", a->ready_descriptor,
                 "run: file descriptor to which a byte is written once the job is locked")
      .type_name("N")
      .range(3, 1024);
  sub.add_flag("--follow", a->follow, "progress: print a line for each step until the job ends");
  sub.add_flag("--json", a->json, "list, show, progress: print JSON");
}

}  // namespace lockstep::command
