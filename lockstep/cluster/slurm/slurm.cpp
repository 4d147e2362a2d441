#include "lockstep/cluster/slurm/slurm.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/variable.h"
#include "lockstep/cluster/profiles/profile_checks.h"
#include "lockstep/cluster/slurm/tool.h"

namespace lockstep {
namespace {

constexpr double answer_limit = 30;  // seconds
constexpr const char* answer_hint = "is Slurm installed here, and does its controller run? (sinfo)";

std::vector<std::string> partition_option(const ClusterProfile& profile) {
  if (profile.partition.empty()) return {};
  return {"--partition=" + profile.partition};
}

// The processors of a node.
std::string cpus_option(const ClusterProfile& profile) {
  return "--cpus-per-task=" + std::to_string(profile.workers_per_node() * profile.threads);
}

// The options of the script and of the profile, and the environment.
std::string script_head(const ClusterProfile& profile, std::vector<std::string> options,
                        const std::vector<std::pair<std::string, std::string>>& environment) {
  refuse_secrets(environment);
  for (const std::string& option : options) {
    if (option.find_first_of(" \t\r\n\"'\\") == std::string::npos) continue;
    throw InvalidArgument("[cluster] Slurm cannot use " + option,
                          "use folders without blanks and quotes in their paths");
  }
  for (const std::string& option : partition_option(profile)) options.push_back(option);
  if (!profile.time_limit.empty()) options.push_back("--time=" + profile.time_limit);
  options.insert(options.end(), profile.options.begin(), profile.options.end());
  std::string text = "#!/bin/sh\n";
  for (const std::string& option : options) text += "#SBATCH " + option + "\n";
  for (const auto& [name, value] : environment) {
    text += "export " + name + "=" + shell_quoted(value) + "\n";
  }
  return text;
}

}  // namespace

void refuse_secrets(const std::vector<std::pair<std::string, std::string>>& environment) {
  for (const auto& [name, value] : environment) {
    if (!holds_credential(name, value)) continue;
    throw InvalidArgument(
        "[cluster] environment: " + name + " seems to be a secret, which Slurm would store",
        "give it to the nodes in a file, such as ~/.aws/credentials, or by their role");
  }
}

void check_slurm_path(const std::string& path) {
  if (path.find_first_of(" \t\r\n%\"'\\") == std::string::npos) return;
  throw InvalidArgument("[cluster] Slurm cannot use the path " + path,
                        "give the profile a folder without blanks, quotes and % in its path");
}

std::string slurm_script(const ClusterProfile& profile, const SlurmScript& script) {
  check_slurm_path(script.output);
  std::vector<std::string> options{"--job-name=" + script.name,
                                   "--output=" + script.output,
                                   "--open-mode=append",
                                   "--requeue",
                                   "--no-kill",
                                   "--signal=B:USR2@120",
                                   "--nodes=" + std::to_string(profile.nodes),
                                   "--ntasks-per-node=1",
                                   cpus_option(profile)};
  return script_head(profile, std::move(options), script.environment) + "exec " + script.command +
         "\n";
}

std::string slurm_holder_script(const ClusterProfile& profile, const std::string& name,
                                int seconds) {
  return script_head(profile,
                     {"--job-name=" + name, "--output=/dev/null", "--no-requeue",
                      "--nodes=" + std::to_string(profile.nodes), "--ntasks-per-node=1",
                      cpus_option(profile)},
                     {}) +
         "exec sleep " + std::to_string(seconds) + "\n";
}

std::string slurm_hosts_script(const ClusterProfile& profile, const SlurmHosts& hosts) {
  std::string indexes, command;
  for (const int64_t index : hosts.indexes) {
    indexes += (indexes.empty() ? "" : ",") + std::to_string(index);
  }
  for (const std::string& word : hosts.command) command += " " + shell_quoted(word);
  const std::string cpus = cpus_option(profile);
  return script_head(profile,
                     {"--job-name=" + hosts.name, "--array=" + indexes, "--output=" + hosts.output,
                      "--open-mode=append", "--requeue", "--no-kill", "--signal=USR2@120",
                      "--nodes=1", "--ntasks=1", cpus},
                     hosts.environment) +
         "exec srun --kill-on-bad-exit=0 --ntasks=1 " + cpus + command +
         " \"$SLURM_ARRAY_TASK_ID\" " + std::to_string(hosts.size) + "\n";
}

bool SlurmState::is_alive() const {
  constexpr std::array alive{"PENDING",   "CONFIGURING", "RUNNING",      "COMPLETING",
                             "SUSPENDED", "REQUEUED",    "REQUEUE_HOLD", "REQUEUE_FED",
                             "RESIZING",  "SIGNALING",   "SPECIAL_EXIT", "STAGE_OUT",
                             "STOPPED",   "PREEMPTED",   "RESV_DEL_HOLD"};
  return std::find(alive.begin(), alive.end(), state) != alive.end();
}

bool SlurmState::is_held_after_launch() const {
  return state == "PENDING" && reason.starts_with("launch failed");
}

std::string Slurm::output_of(const std::vector<std::string>& command, double seconds,
                             const std::string& input) const {
  return output_of_tool({.command = command, .login = login_, .input = input, .seconds = seconds},
                        answer_hint);
}

std::string Slurm::submit(const std::string& script) const {
  // "123" or "123;cluster"
  const std::string printed = output_of({"sbatch", "--parsable"}, answer_limit, script);
  const std::string last = printed.substr(printed.rfind('\n') + 1);
  return last.substr(0, last.find(';'));
}

void Slurm::cancel(const std::vector<std::string>& jobs) const {
  std::vector<std::string> words{"scancel"};
  words.insert(words.end(), jobs.begin(), jobs.end());
  output_of(words, answer_limit);
}

std::map<std::string, SlurmState> Slurm::states(const std::vector<std::string>& options) const {
  std::vector<std::string> words{"squeue", "--noheader", "--states=all", "--format=%i|%T|%r"};
  words.insert(words.end(), options.begin(), options.end());
  std::istringstream lines(output_of(words, answer_limit));
  std::map<std::string, SlurmState> all;
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find('|');
    const size_t second = first == std::string::npos ? first : line.find('|', first + 1);
    if (second == std::string::npos) continue;
    all[line.substr(0, first)] = {line.substr(first + 1, second - first - 1),
                                  line.substr(second + 1)};
  }
  return all;
}

std::map<std::string, SlurmState> Slurm::own_jobs() const { return states({"--me"}); }

std::vector<SlurmElement> Slurm::elements(const std::string& name) const {
  std::vector<SlurmElement> all;
  for (auto& [job, state] : states({"--array", "--name=" + name})) {
    const size_t below = job.find('_');
    if (below == std::string::npos) continue;
    all.push_back({job, std::atoll(job.c_str() + below + 1), std::move(state)});
  }
  return all;
}

void Slurm::cancel_all(const std::string& name) const {
  output_of({"scancel", "--name=" + name}, answer_limit);
}

std::vector<SlurmNode> Slurm::nodes(const ClusterProfile& profile) const {
  std::vector<std::string> words{"sinfo", "--noheader", "--Node", "--format=%N %o"};
  for (const std::string& option : partition_option(profile)) words.push_back(option);
  std::istringstream lines(output_of(words, answer_limit));
  std::vector<SlurmNode> all;
  for (SlurmNode node; lines >> node.name >> node.address;) all.push_back(node);
  return all;
}

double Slurm::time_left(const std::string& job) const {
  // "2-03:04:05", "3:04:05", "4:05" or a word
  const std::string text =
      output_of({"squeue", "--noheader", "--format=%L", "--jobs=" + job}, answer_limit);
  if (text.find_first_not_of("0123456789:-") != std::string::npos || text.empty()) {
    return std::numeric_limits<double>::infinity();
  }
  const size_t dash = text.find('-');
  const double days = dash == std::string::npos ? 0 : std::stod(text.substr(0, dash));
  double seconds = 0;
  std::istringstream parts(dash == std::string::npos ? text : text.substr(dash + 1));
  for (std::string part; std::getline(parts, part, ':');) {
    seconds = 60 * seconds + (part.empty() ? 0 : std::stod(part));
  }
  return 86'400 * days + seconds;
}

void Slurm::requeue(const std::string& job) const {
  output_of({"scontrol", "requeue", job}, answer_limit);
}

void Slurm::release(const std::string& job) const {
  output_of({"scontrol", "release", job}, answer_limit);
}

std::vector<std::string> Slurm::node_names(const std::string& list) const {
  std::istringstream lines(output_of({"scontrol", "show", "hostnames", list}, answer_limit));
  std::vector<std::string> names;
  for (std::string name; std::getline(lines, name);) names.push_back(name);
  return names;
}

std::string Slurm::version() const { return output_of({"sinfo", "--version"}, answer_limit); }

std::string current_slurm_job() { return variable("SLURM_JOB_ID"); }

std::vector<std::string> slurm_training_hosts(int64_t workers_per_node) {
  const char* const list = std::getenv("SLURM_JOB_NODELIST");
  const char* const here = std::getenv("SLURMD_NODENAME");
  if (list == nullptr || here == nullptr) {
    throw InvalidArgument("[slurm] this process is not in a job of Slurm");
  }
  const std::string workers = ":" + std::to_string(workers_per_node);
  std::vector<std::string> hosts{"localhost" + workers};
  for (const std::string& name : Slurm().node_names(list)) {
    if (name != here) hosts.push_back(name + workers);
  }
  return hosts;
}

std::string slurm_host_launch() {
  // Since Slurm 22.05 a step does not take this number from its job.
  const char* const cpus = std::getenv("SLURM_CPUS_PER_TASK");
  return std::string("srun --overlap --kill-on-bad-exit=0 --nodelist={host} --nodes=1 --ntasks=1") +
         (cpus ? std::string(" --cpus-per-task=") + cpus : "");
}

}  // namespace lockstep
