#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/lockstep/command.h"
#include "apps/lockstep/stop_signals.h"
#include "apps/lockstep/train.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cluster/slurm/cluster_hosts.h"
#include "lockstep/report/pages/sweep_page.h"
#include "lockstep/report/sweep_display.h"
#include "lockstep/report/terminal.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/runs/store/run_store.h"
#include "lockstep/runs/sweeps/job_sweep.h"
#include "lockstep/storage/network_wait.h"
#include "lockstep/storage/object_store.h"

namespace lockstep::command {
namespace {

struct SweepArguments {
  std::string job, out, host_launch, host_address, cluster;
  std::vector<std::string> settings, hosts;
  int workers = 0;
  int64_t stop_trial = 0;
  bool resume = false, rerun_failed = false, no_lending = false, not_recorded = false, json = false,
       quiet = false;
};

std::string score(const JobSweepStart& start, double value) {
  if (!std::isfinite(value)) return "-";
  return start.metric == "validation.accuracy" ? percent(value) : fmt::format("{:.5g}", value);
}

std::string train_command_of(const SweepArguments& a, const JobSweepResult& result) {
  std::string line = "lockstep train " + shell_word(a.job.empty() ? result.job : a.job);
  for (const std::string& setting : result.settings) line += " --set " + shell_word(setting);
  return line;
}

void print_trials(const JobSweepResult& result) {
  const JobSweepStart& start = result.start;
  std::vector<std::vector<std::string>> rows{{"trial", "rank", "state", "epochs", start.metric}};
  for (const SweepParameter& p : start.options.parameters) rows.front().push_back(p.name);
  for (const TrialRow& row : result.rows) {
    std::string value = score(start, row.value);
    if (start.options.repeats > 1 && std::isfinite(row.spread)) {
      value += " +- " + score(start, row.spread);
    }
    rows.push_back({std::to_string(row.trial), row.rank > 0 ? std::to_string(row.rank) : "-",
                    row.state, std::to_string(row.epochs), value});
    for (const std::string& parameter : row.parameters) {
      rows.back().push_back(parameter.empty() ? "-" : printable(parameter));
    }
  }
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  print(text);
}

void print_end(const SweepArguments& a, const JobSweepResult& result) {
  print_trials(result);
  print("\n");
  std::string importance;
  for (const auto& [name, share] : result.importance) {
    if (!std::isfinite(share)) continue;
    importance += fmt::format("{}{} {:.0f} %", importance.empty() ? "" : ", ", name, 100 * share);
  }
  std::vector<std::pair<std::string, std::string>> rows;
  if (result.best == 0) {
    rows.emplace_back("best trial", "none: all have failed");
  } else {
    double value = std::nan("");
    for (const TrialRow& row : result.rows) {
      if (row.trial == result.best) value = row.value;
    }
    rows.emplace_back("best trial", fmt::format("{}, {} {}", result.best, result.start.metric,
                                                score(result.start, value)));
    if (result.test) {
      const bool classes = std::isfinite(result.test->accuracy);
      rows.emplace_back(classes ? "test accuracy" : "test loss",
                        fmt::format("{} of {} {}",
                                    classes ? percent(result.test->accuracy)
                                            : fmt::format("{:.5g}", result.test->loss),
                                    result.test->observations, result.test->examples));
    }
    if (!importance.empty()) rows.emplace_back("importance", importance);
    rows.emplace_back("model", join_path(a.out, run_model_name));
    rows.emplace_back("again", train_command_of(a, result));
  }
  print_table(rows);
}

nlohmann::ordered_json summary_of(const SweepArguments& a, const JobSweepResult& result) {
  nlohmann::ordered_json trials = nlohmann::ordered_json::array();
  const auto number = [](double value) {
    return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  for (const TrialRow& row : result.rows) {
    trials.push_back({{"trial", row.trial},
                      {"rank", row.rank},
                      {"state", row.state},
                      {"epochs", row.epochs},
                      {"iterations", row.iterations},
                      {"value", number(row.value)}});
  }
  nlohmann::ordered_json summary{{"finished", result.finished},
                                 {"metric", result.start.metric},
                                 {"trials", trials},
                                 {"best", result.best},
                                 {"folder", a.out}};
  if (result.best > 0) {
    summary["model"] = join_path(a.out, run_model_name);
    summary["command"] = train_command_of(a, result);
  }
  if (result.test) {
    summary["test_loss"] = number(result.test->loss);
    summary["test_accuracy"] = number(result.test->accuracy);
  }
  return summary;
}

std::string how_to_continue(const SweepArguments& a) {
  std::string line = "lockstep sweep";
  if (!a.job.empty()) line += " " + shell_word(a.job);
  line += " --out " + shell_word(a.out);
  if (a.workers > 0) line += " --workers " + std::to_string(a.workers);
  for (size_t i = 0; i < a.hosts.size(); ++i) {
    line += (i == 0 ? " --hosts " : ",") + shell_word(a.hosts[i]);
  }
  if (!a.host_launch.empty()) line += " --host-launch " + shell_word(a.host_launch);
  if (!a.host_address.empty()) line += " --host-address " + shell_word(a.host_address);
  if (!a.cluster.empty()) line += " --cluster " + shell_word(a.cluster);
  return line + " --resume";
}

// A report that cannot be written does not make the sweep fail.
void write_report_of_sweep(const std::string& folder) {
  try {
    write_sweep_report(folder);
  } catch (const Error& e) {
    std::fprintf(stderr, "note: no report was written: %s\n", printable(e.what()).c_str());
  }
}

// Prints notices when there is no progress output (--quiet).
class SweepNotices : public SweepObserver {
 public:
  void notice(const std::string& text) override {
    std::fprintf(stderr, "note: %s\n", printable(text).c_str());
  }
};

// Has the trainings computed by the workers of a cluster's profile.
void use_cluster(const std::string& cluster, JobSweepOptions& options) {
  const ClusterLayout layout = cluster_layout(cluster);
  options.hosts = layout.hosts;
  options.host_launch = layout.launch;
  options.host_address = layout.address;
  if (layout.hosts.empty() && options.workers == 0) {
    options.workers = static_cast<int>(layout.workers);
  }
  if (!layout.hosts.empty()) options.host_threads = layout.threads;
  // A sweep that is continued keeps its device.
  if (!options.resume) add_device_setting(layout.device, options.settings);
}

// Why trials have failed: the most frequent reason, with the first of its trials.
std::string reasons_of(const JobSweepResult& result) {
  std::map<std::string, std::pair<int64_t, int64_t>> counts;  // of trials, and the first of them
  for (const TrialRow& row : result.rows) {
    auto& [count, first] = counts.try_emplace(row.reason, 0, row.trial).first->second;
    ++count;
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
        return a.second.first != b.second.first ? a.second.first < b.second.first
                                                : a.second.second > b.second.second;
      });
  if (most == counts.end()) return "";
  const auto& [reason, found] = *most;
  return fmt::format("{} of them: {} (trial {}); trials.csv has the reason of each", found.first,
                     reason, found.second);
}

int sweep_command(SweepArguments& a) {
  if (storage::is_address(a.out)) {
    throw Unsupported(
        "[sweep] " + printable(a.out) +
            " cannot be the folder of a sweep: its workers append to files there, and "
            "objects in a store are only written whole",
        "use a local folder, and copy the finished sweep with `lockstep upload`");
  }
  if (a.stop_trial > 0) {
    if (!local_files().exists(join_path(a.out, sweep_job_name))) {
      throw InvalidArgument("[sweep] " + a.out + " contains no sweep");
    }
    request_trial_stop(a.out, a.stop_trial);
    std::fprintf(stderr, "trial %lld will be stopped\n", static_cast<long long>(a.stop_trial));
    return 0;
  }
  if (a.job.empty() && !a.resume) throw UsageError("JOB is missing", "name a job file");
  JobSweepOptions options{.job = a.job, .settings = a.settings, .workers = a.workers};
  if (a.out.empty()) {
    const std::string name = read_job(local_files(), a.job, a.settings).name;
    a.out = make_numbered_folder("runs/" + name);
  }
  options.folder = a.out;
  options.resume = a.resume;
  options.rerun_failed = a.rerun_failed;
  options.lend = !a.no_lending;
  options.hosts = a.hosts;
  options.host_launch = a.host_launch;
  options.host_address = a.host_address;
  if (!a.cluster.empty()) use_cluster(a.cluster, options);
  if (!a.not_recorded) options.store = default_store_folder();
  options.interrupted = stop_wanted;
  SweepDisplay display(
      [](std::string_view text) {
        // A failed write is ignored.
        std::fwrite(text.data(), 1, text.size(), stderr);
        std::fflush(stderr);
      },
      {.terminal = is_terminal(stderr), .width = [] { return columns_of(stderr, 80); }});
  SweepNotices notices;
  options.observers.push_back(a.quiet ? static_cast<SweepObserver*>(&notices) : &display);
  catch_stop_signals();
  const storage::StopRetries stop_retries(stop_wanted);
  JobSweepResult result;
  try {
    result = run_job_sweep(options, [&](const JobSweepStart& start) {
      if (!a.quiet) display.start(start);
    });
  } catch (...) {
    display.finish();
    throw;
  }
  display.finish();
  if (result.finished) write_report_of_sweep(a.out);
  if (!result.finished) {
    std::fprintf(stderr,
                 "stopped: the running trials have saved their state\nhint: continue with: %s\n",
                 how_to_continue(a).c_str());
  }
  if (a.json) {
    print_json(summary_of(a, result));
  } else if (result.finished) {
    print_end(a, result);
  }
  if (!result.finished) return exit_stopped;
  if (result.best > 0) return 0;
  print_error(fmt::format("[sweep] no trial has a result: all {} have failed or were stopped",
                          result.rows.size()),
              reasons_of(result));
  return exit_failure;
}

}  // namespace

void add_sweep(Commands& commands) {
  auto a = std::make_shared<SweepArguments>();
  Subcommand sub = commands.add(
      "sweep", "Hyperparameter search: find the best of many variants of a job",
      "The table [sweep] of the job file names the parameters that vary and the method "
      "(`lockstep reference sweep`). Trials that are worse than others at a rung are pruned. The "
      "trials, which of them are pruned and which is the best do not depend on the number of "
      "workers, on their speed or loss, or on interruptions.\n\n"
      "The folder receives trials.csv with all trials, the folder of each trial's run in trials/, "
      "the record of all decisions (sweep.jsonl), and at the end the best network "
      "(model.safetensors), which is evaluated on the test data, and a report (report.html).\n\n"
      "Ctrl-C lets the running trials save their state; --resume continues the sweep, also after a "
      "crash. With --resume, --set sweep.trials=N or --set max_epochs=N extends it: nothing that "
      "is "
      "known is computed again.",
      {{"lockstep sweep examples/jobs/digits_sweep.toml --out runs/sweep", "nine trials"},
       {"lockstep sweep job.toml --out runs/sweep --workers 4", "four trials at once"},
       {"lockstep sweep job.toml --out runs/sweep --hosts 10.0.0.2:4,10.0.0.3:4", "on two hosts"},
       {"lockstep sweep job.toml --out runs/sweep --cluster lab", "on the nodes of a cluster"},
       {"lockstep sweep --out runs/sweep --resume", "continue"},
       {"lockstep sweep --out runs/sweep --resume --set sweep.trials=40", "with more trials"},
       {"lockstep sweep --out runs/sweep --stop-trial 7", "from another terminal"}},
      [a] { return sweep_command(*a); });
  sub.add_option("job", a->job, "Job file with a table [sweep]").type_name("JOB");
  sub.add_option("--set", a->settings, "Change a field or variable of the job (repeatable)")
      .one_value_each()
      .type_name("KEY=VALUE");
  Option out =
      sub.add_option("--out", a->out, "Folder for the sweep (default: runs/<job>-<number>)")
          .type_name("DIR")
          .not_empty();
  sub.add_option(
         "--workers", a->workers,
         "Concurrent trials, each in its own process (default: one for each processor; with "
         "--hosts: one for each worker)")
      .type_name("N")
      .range(1, 1024);
  Option hosts =
      sub.add_option("--hosts", a->hosts,
                     "Hosts and numbers of workers, such as 10.0.0.2:4,localhost:2 (by ssh); idle "
                     "workers join the trainings of other trials")
          .type_name("HOSTS")
          .separated_by_commas();
  sub.add_option(
         "--host-launch", a->host_launch,
         "Command that runs a program on a host, where {host} stands for its name (default: ssh)")
      .type_name("COMMAND")
      .needs(hosts);
  sub.add_option("--host-address", a->host_address,
                 "Address at which the hosts reach this machine (default: by route)")
      .type_name("ADDRESS")
      .needs(hosts);
  sub.add_option("--cluster", a->cluster,
                 "Profile of a cluster whose nodes compute (lockstep cluster)")
      .type_name("NAME")
      .not_empty()
      .excludes(hosts);
  Option resume = sub.add_flag("--resume", a->resume, "Continue the sweep in --out");
  resume.needs(out);
  sub.add_flag("--rerun-failed", a->rerun_failed,
               "Run trials again that diverged or could not be built")
      .needs(resume);
  sub.add_option("--stop-trial", a->stop_trial,
                 "Stop this trial of the sweep that another process runs in --out")
      .type_name("N")
      .range(1, 100'000)
      .needs(out)
      .excludes(resume);
  sub.add_flag("--no-lending", a->no_lending, "Idle workers do not help other trials");
  sub.add_flag("--json", a->json, "Print the result as one JSON object on the last line");
  sub.add_flag("--quiet", a->quiet, "Print no progress");
  sub.add_flag("--not-recorded", a->not_recorded,
               "Leave the trials out of the run store (`lockstep runs`)");
}

}  // namespace lockstep::command
