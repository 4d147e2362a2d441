#include "lockstep/runs/clusters/slurm.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/text.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/process/child_process.h"

namespace lockstep {
namespace {

constexpr double answer_limit = 30;  // seconds
constexpr size_t most_output = size_t{16} << 20;

struct ToolResult {
  bool succeeded = false;
  std::string output;  // and errors, without the last line's end
};

// Variables that Slurm's commands get. Others may hold secrets.
std::vector<std::string> tool_environment() {
  std::vector<std::string> words{"env", "-i"};
  for (const char* name : {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "LD_LIBRARY_PATH",
                           "SLURM_CONF", "SLURM_JOB_ID"}) {
    if (const char* value = std::getenv(name)) words.push_back(std::string(name) + "=" + value);
  }
  return words;
}

// Reads until the end of the file. Returns false at the limit.
bool read_all(int descriptor, const TimeLimit& limit, std::string& text) {
  std::array<char, 4096> piece;
  while (text.size() < most_output) {
    pollfd waiting{descriptor, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, limit.milliseconds_left());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t count = ::read(descriptor, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    text.append(piece.data(), static_cast<size_t>(count));
  }
  return true;
}

ToolResult run_slurm_tool(const std::vector<std::string>& command, double seconds = answer_limit) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error("[slurm] no pipe: " + std::system_category().message(errno));
  }
  const Descriptor ours(ends[0]);
  Descriptor theirs(ends[1]);
  const Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::vector<std::string> words = tool_environment();
  words.insert(words.end(), command.begin(), command.end());
  ChildProcess child({.command = words, .input = nothing.get(), .output = theirs.get()});
  theirs.close();
  const TimeLimit limit(seconds);
  ToolResult result;
  if (!read_all(ours.get(), limit, result.output) || !child.wait(limit)) {
    throw Timeout("[slurm] " + command.front() + " does not answer within " +
                  std::to_string(static_cast<int>(seconds)) + " seconds: " + result.output);
  }
  result.succeeded = child.how() == "exited with status 0";
  while (result.output.ends_with('\n')) result.output.pop_back();
  return result;
}

std::string output_of(const std::vector<std::string>& command, double seconds = answer_limit) {
  ToolResult result = run_slurm_tool(command, seconds);
  if (result.succeeded) return std::move(result.output);
  throw Error("[slurm] " + command.front() + " failed: " + result.output,
              "is Slurm installed here, and does its controller run? (sinfo)");
}

std::vector<std::string> partition_option(const ClusterProfile& profile) {
  if (profile.partition.empty()) return {};
  return {"--partition=" + profile.partition};
}

}  // namespace

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string slurm_script(const ClusterProfile& profile, const SlurmScript& script) {
  std::vector<std::string> options{
      "--job-name=" + script.name,
      "--output=" + script.output,
      "--open-mode=append",
      "--requeue",
      "--no-kill",
      "--signal=B:TERM@120",
      "--nodes=" + std::to_string(profile.nodes),
      "--ntasks-per-node=1",
      "--cpus-per-task=" + std::to_string(profile.workers_per_node * profile.threads)};
  for (const std::string& option : partition_option(profile)) options.push_back(option);
  if (!profile.time_limit.empty()) options.push_back("--time=" + profile.time_limit);
  options.insert(options.end(), profile.options.begin(), profile.options.end());
  std::string text = "#!/bin/sh\n";
  for (const std::string& option : options) text += "#SBATCH " + option + "\n";
  for (const auto& [name, value] : script.environment) {
    text += "export " + name + "=" + shell_quoted(value) + "\n";
  }
  return text + "exec " + script.command + "\n";
}

std::string submit_to_slurm(const std::string& script_file) {
  // "123" or "123;cluster"
  const std::string printed = output_of({"sbatch", "--parsable", script_file});
  const std::string last = printed.substr(printed.rfind('\n') + 1);
  return last.substr(0, last.find(';'));
}

bool SlurmState::is_alive() const {
  constexpr std::array alive{"PENDING",   "CONFIGURING", "RUNNING",      "COMPLETING",
                             "SUSPENDED", "REQUEUED",    "REQUEUE_HOLD", "REQUEUE_FED",
                             "RESIZING",  "SIGNALING",   "SPECIAL_EXIT", "STAGE_OUT",
                             "STOPPED",   "PREEMPTED",   "RESV_DEL_HOLD"};
  return std::find(alive.begin(), alive.end(), state) != alive.end();
}

SlurmState slurm_state(const std::string& slurm_job) {
  const ToolResult result =
      run_slurm_tool({"squeue", "--noheader", "--format=%T|%r", "--jobs=" + slurm_job});
  if (!result.succeeded) {
    if (result.output.find("Invalid job id") != std::string::npos) return {};
    throw Error("[slurm] squeue failed: " + result.output);
  }
  const size_t bar = result.output.find('|');
  if (bar == std::string::npos) return {};
  return {result.output.substr(0, bar), result.output.substr(bar + 1)};
}

void cancel_in_slurm(const std::string& slurm_job) { output_of({"scancel", slurm_job}); }

double time_left_in_slurm(const std::string& slurm_job) {
  // "2-03:04:05", "3:04:05", "4:05" or a word
  const std::string text =
      output_of({"squeue", "--noheader", "--format=%L", "--jobs=" + slurm_job});
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

void requeue_in_slurm(const std::string& slurm_job) {
  output_of({"scontrol", "requeue", slurm_job});
}

std::string current_slurm_job() {
  const char* const job = std::getenv("SLURM_JOB_ID");
  return job ? job : "";
}

std::vector<std::string> slurm_training_hosts(int64_t workers_per_node) {
  const char* const list = std::getenv("SLURM_JOB_NODELIST");
  const char* const here = std::getenv("SLURMD_NODENAME");
  if (list == nullptr || here == nullptr) {
    throw InvalidArgument("[slurm] this process is not in a job of Slurm");
  }
  const std::string workers = ":" + std::to_string(workers_per_node);
  std::vector<std::string> hosts{"localhost" + workers};
  std::istringstream names(output_of({"scontrol", "show", "hostnames", list}));
  for (std::string name; std::getline(names, name);) {
    if (name != here) hosts.push_back(name + workers);
  }
  return hosts;
}

std::string slurm_host_launch() {
  return "srun --overlap --kill-on-bad-exit=0 --nodelist={host} --nodes=1 --ntasks=1";
}

std::string run_on_slurm_nodes(const ClusterProfile& profile,
                               const std::vector<std::string>& command, double seconds) {
  const std::string nodes = std::to_string(profile.nodes);
  std::vector<std::string> words{"srun", "--quiet", "--nodes=" + nodes, "--ntasks=" + nodes,
                                 "--ntasks-per-node=1"};
  for (const std::string& option : partition_option(profile)) words.push_back(option);
  words.insert(words.end(), profile.options.begin(), profile.options.end());
  words.insert(words.end(), command.begin(), command.end());
  return output_of(words, seconds);
}

std::string slurm_version() { return output_of({"sinfo", "--version"}); }

}  // namespace lockstep
