#include "apps/lockstep/batch/slurm_validation.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "apps/lockstep/batch/node_exchange.h"
#include "apps/lockstep/command.h"
#include "apps/lockstep/stop_signals.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/addresses.h"
#include "lockstep/base/os/own_executable.h"
#include "lockstep/base/text.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/clusters/slurm.h"
#include "lockstep/parallel/clusters/tool.h"
#include "lockstep/report/progress.h"
#include "lockstep/runs/batch/batch_job.h"
#include "lockstep/train/state/fingerprint.h"

namespace lockstep::command {
namespace {

using nlohmann::ordered_json;

constexpr double tool_limit = 30, node_limit = 60, silence_limit = 10;  // seconds
constexpr auto look_pause = std::chrono::milliseconds(300);
constexpr int holder_seconds = 900;  // a job that is not cancelled ends by itself
// Begins the lines by which nodes answer.
constexpr const char* answer_mark = "lockstep-node ";
// Of the environment of this process the nodes get no more.
constexpr const char* passed_on = "--export=PATH,HOME,USER,LOGNAME,LANG,TMPDIR,LD_LIBRARY_PATH";

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> words_of(const std::string& line, char separator) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; std::getline(stream, word, separator);) words.push_back(word);
  return words;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

ToolResult call_tool(std::vector<std::string> command, double seconds = tool_limit,
                     const std::string& input = "") {
  return run_tool({.command = std::move(command),
                   .input = input,
                   .seconds = seconds,
                   .stop_wanted = stop_wanted});
}

std::string output_of_call(std::vector<std::string> command, double seconds = tool_limit) {
  const std::string name = command.front();
  const ToolResult result = call_tool(std::move(command), seconds);
  if (!result.succeeded) throw Error("[cluster] " + name + " failed: " + result.output);
  return result.output;
}

bool is_usable(const std::string& state) {
  if (state.ends_with('*')) return false;  // it does not respond
  for (const char* bad : {"down", "drain", "fail", "unknown", "inval", "error", "maint"}) {
    if (state.find(bad) != std::string::npos) return false;
  }
  return true;
}

// The nodes of a profile's partition.
struct PartitionNodes {
  std::vector<std::string> usable, unusable, partitions;
  bool any_silent = false;  // a node does not respond at the moment
};

PartitionNodes nodes_of_partition(const ClusterProfile& profile) {
  PartitionNodes all;
  for (const std::string& line :
       lines_of(output_of_call({"sinfo", "--noheader", "--Node", "--format=%P|%N|%T|%E"}))) {
    const std::vector<std::string> words = words_of(line, '|');
    if (words.size() < 3) continue;
    std::string partition = words[0];
    const bool is_default = partition.ends_with('*');
    if (is_default) partition.pop_back();
    auto& known = all.partitions;
    if (std::find(known.begin(), known.end(), partition) == known.end()) known.push_back(partition);
    if (profile.partition.empty() ? !is_default : partition != profile.partition) continue;
    if (is_usable(words[2])) {
      all.usable.push_back(words[1]);
    } else {
      const bool reasoned = words.size() > 3 && words[3] != "none";
      all.unusable.push_back(words[1] + " is " + words[2] +
                             (reasoned ? " (" + words[3] + ")" : ""));
      all.any_silent = all.any_silent || words[2].ends_with('*');
    }
  }
  return all;
}

// "2 of 3 nodes of the partition debug can work"
std::string count_usable_nodes(const ClusterProfile& profile) {
  const auto enough = [&](const PartitionNodes& nodes) {
    return nodes.usable.size() >= static_cast<size_t>(profile.nodes);
  };
  PartitionNodes nodes = nodes_of_partition(profile);
  // A node that has just come back responds after some seconds.
  for (const TimeLimit limit(silence_limit);
       !enough(nodes) && nodes.any_silent && !limit.reached() && !stop_wanted();) {
    std::this_thread::sleep_for(look_pause);
    nodes = nodes_of_partition(profile);
  }
  const std::string name =
      profile.partition.empty() ? "the default partition" : "the partition " + profile.partition;
  if (nodes.usable.empty() && nodes.unusable.empty()) {
    throw InvalidArgument("[cluster] " + name + " has no nodes",
                          "the partitions of this cluster: " + joined(nodes.partitions));
  }
  const std::string counted = fmt::format("{} of {} nodes of {} can work", nodes.usable.size(),
                                          nodes.usable.size() + nodes.unusable.size(), name);
  if (!enough(nodes)) {
    throw Error(fmt::format("[cluster] {}, the profile asks for {}: {}", counted, profile.nodes,
                            nodes.unusable.empty() ? "there are no more" : joined(nodes.unusable)),
                nodes.unusable.empty() ? "" : "scontrol show node NAME tells more");
  }
  return counted;
}

// A folder that the nodes share, for this validation.
class SharedFolder {
 public:
  explicit SharedFolder(const ClusterProfile& profile) {
    const std::string all = batch_jobs_folder_of(profile);
    make_folders(local_files(), all);
    path_ = join_path(all, "validate-XXXXXX");
    if (::mkdtemp(path_.data()) == nullptr) {
      throw FileError("[cluster] no folder can be made in " + all + ": " +
                      std::system_category().message(errno));
    }
  }
  ~SharedFolder() { remove(); }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  std::string file(const std::string& name) const { return join_path(path_, name); }
  const std::string& path() const { return path_; }
  void remove() noexcept {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    path_.clear();
  }

 private:
  std::string path_;
};

// A job that holds the nodes.
class HolderJob {
 public:
  ~HolderJob() {
    try {
      cancel();
    } catch (const Error&) {  // it ends by itself
    }
  }
  void submit(const ClusterProfile& profile) {
    std::string text = fmt::format(
        "#!/bin/sh\n#SBATCH --job-name=lockstep-validate\n#SBATCH --output=/dev/null\n"
        "#SBATCH --no-requeue\n#SBATCH --nodes={}\n#SBATCH --ntasks-per-node=1\n"
        "#SBATCH --cpus-per-task={}\n",
        profile.nodes, profile.workers_per_node() * profile.threads);
    if (!profile.partition.empty()) text += "#SBATCH --partition=" + profile.partition + "\n";
    if (!profile.time_limit.empty()) text += "#SBATCH --time=" + profile.time_limit + "\n";
    for (const std::string& option : profile.options) text += "#SBATCH " + option + "\n";
    number_ = Slurm().submit(text + fmt::format("exec sleep {}\n", holder_seconds));
  }
  // Returns the names of its nodes.
  std::vector<std::string> wait_until_it_runs(double patience) {
    const TimeLimit limit(patience);
    for (;;) {
      const std::vector<std::string> words = words_of(
          output_of_call({"squeue", "--noheader", "--format=%T|%N|%r", "--jobs=" + number_}), '|');
      const std::string state = words.empty() ? "" : words[0];
      if (state == "RUNNING") return Slurm().node_names(words.at(1));
      if (state != "PENDING" && state != "CONFIGURING") {
        throw Error("[cluster] Slurm's job " + number_ + " ended before it ran" +
                    (state.empty() ? "" : ": " + state));
      }
      if (stop_wanted()) throw Cancelled("[cluster] stopped by a signal");
      if (limit.reached()) {
        throw Timeout(fmt::format("[cluster] Slurm's job {} is still {} after {} seconds ({})",
                                  number_, state, patience, words.size() > 2 ? words[2] : ""));
      }
      std::this_thread::sleep_for(look_pause);
    }
  }
  void cancel() {
    const std::string number = std::exchange(number_, "");
    if (!number.empty()) Slurm().cancel({number});
  }
  const std::string& number() const { return number_; }
  // A command that runs one program on each of the job's nodes.
  std::vector<std::string> on_nodes(size_t nodes) const {
    return {"srun",
            "--quiet",
            "--jobid=" + number_,
            "--overlap",
            "--kill-on-bad-exit=0",
            fmt::format("--nodes={}", nodes),
            fmt::format("--ntasks={}", nodes),
            "--ntasks-per-node=1",
            passed_on};
  }

 private:
  std::string number_;
};

struct NodeAnswer {
  std::string node, text;
  int code = 0;
};

// Runs a program once on each node. Throws if a node does not answer.
std::vector<NodeAnswer> ask_nodes(const HolderJob& job, const std::vector<std::string>& nodes,
                                  const std::vector<std::string>& program) {
  std::vector<std::string> command = job.on_nodes(nodes.size());
  // Its output becomes one line with the node's name and the exit code.
  command.insert(
      command.end(),
      {"/bin/sh", "-c",
       "text=$(\"$@\" 2>&1); code=$?; printf '%s%s %s %s\\n' '" + std::string(answer_mark) +
           "' \"$SLURMD_NODENAME\" $code \"$(printf %s \"$text\" | tr '\\n' ' ')\"",
       "sh"});
  command.insert(command.end(), program.begin(), program.end());
  const ToolResult result = call_tool(command, node_limit);
  std::vector<NodeAnswer> answers;
  std::string rest;
  for (const std::string& line : lines_of(result.output)) {
    if (!line.starts_with(answer_mark)) {
      rest += (rest.empty() ? "" : " ") + line;
      continue;
    }
    std::istringstream words(line.substr(std::string(answer_mark).size()));
    NodeAnswer answer;
    words >> answer.node >> answer.code;
    std::getline(words >> std::ws, answer.text);
    answers.push_back(std::move(answer));
  }
  std::sort(answers.begin(), answers.end(),
            [](const NodeAnswer& a, const NodeAnswer& b) { return a.node < b.node; });
  std::string silent;
  for (const std::string& node : nodes) {
    if (std::none_of(answers.begin(), answers.end(),
                     [&](const NodeAnswer& a) { return a.node == node; })) {
      silent += (silent.empty() ? "" : ", ") + node;
    }
  }
  if (!silent.empty()) throw Error("[cluster] no answer from " + silent + ": " + rest);
  return answers;
}

// "n1, n3: reason; n2: other reason"
std::string by_reason(const std::map<std::string, std::vector<std::string>>& nodes) {
  std::string text;
  for (const auto& [reason, names] : nodes) {
    text += (text.empty() ? "" : "; ") + joined(names) + ": " + reason;
  }
  return text;
}

void refuse_failed_nodes(const std::vector<NodeAnswer>& answers, const std::string& what) {
  std::map<std::string, std::vector<std::string>> failed;
  size_t count = 0;
  for (const NodeAnswer& answer : answers) {
    if (answer.code == 0) continue;
    ++count;
    failed[answer.text.substr(0, 200)].push_back(answer.node);
  }
  if (count == 0) return;
  throw Error(fmt::format("[cluster] {} of {} nodes {}: {}", count, answers.size(), what,
                          by_reason(failed)));
}

std::map<std::string, ordered_json> infos_of(const std::vector<NodeAnswer>& answers) {
  std::map<std::string, ordered_json> infos;
  for (const NodeAnswer& answer : answers) {
    // Output of the node's system may stand around it.
    const size_t begin = answer.text.find('{'), end = answer.text.rfind('}');
    ordered_json info;
    if (begin != std::string::npos && end != std::string::npos && begin < end) {
      info = ordered_json::parse(answer.text.substr(begin, end - begin + 1), nullptr, false);
    }
    if (!info.is_object() || !info.contains("fingerprint") || !info.contains("processor")) {
      throw Error("[cluster] " + answer.node +
                  " runs another program than this one: " + answer.text.substr(0, 200));
    }
    infos[answer.node] = std::move(info);
  }
  return infos;
}

std::string text_of(const ordered_json& object, const std::string& name) {
  return object.contains(name) && object[name].is_string() ? object[name].get<std::string>() : "";
}

// Refuses nodes whose values differ.
void compare(const std::map<std::string, ordered_json>& infos, const std::string& what,
             const std::string& hint,
             const std::function<std::string(const ordered_json&)>& value) {
  std::map<std::string, std::vector<std::string>> nodes;
  for (const auto& [node, info] : infos) nodes[value(info)].push_back(node);
  if (nodes.size() < 2) return;
  throw InvalidArgument(
      fmt::format("[cluster] the nodes have {} {}: {}", nodes.size(), what, by_reason(nodes)),
      hint);
}

// Returns the model of the processors.
std::string compare_nodes(const std::map<std::string, ordered_json>& infos,
                          const std::string& device) {
  std::string own_build;
  for (const FingerprintEntry& entry : numerics_fingerprint()) {
    if (entry.name == "build") own_build = entry.value;
  }
  std::vector<std::string> other;
  for (const auto& [node, info] : infos) {
    if (text_of(info["fingerprint"], "build") != own_build) other.push_back(node);
  }
  if (!other.empty()) {
    throw InvalidArgument(
        "[cluster] the executable on " + joined(other) + " is another build than this one",
        "install the same file there");
  }
  compare(infos, "models of processors", "choose nodes of one model: --option=--constraint=NAME",
          [](const ordered_json& info) { return text_of(info, "processor"); });
  for (const auto& [name, value] : infos.begin()->second["fingerprint"].items()) {
    compare(infos, "values of " + name, "choose nodes of one kind: --option=--constraint=NAME",
            [&](const ordered_json& info) { return text_of(info["fingerprint"], name); });
  }
  for (const auto& [node, info] : infos) {
    if (device != "cuda") break;
    const auto& gpus = info["gpus"];
    const bool any = std::any_of(gpus["devices"].begin(), gpus["devices"].end(),
                                 [](const auto& gpu) { return gpu.value("usable", false); });
    if (!any) {
      throw InvalidArgument(
          "[cluster] " + node + " has no GPU that can be used: " + text_of(gpus, "reason"),
          "ask for GPUs: --option=--gpus-per-node=1");
    }
  }
  return text_of(infos.begin()->second, "processor");
}

// The executable on the nodes; a shipped one is copied now.
std::string executable_on_nodes(const ClusterProfile& profile, const SharedFolder& folder) {
  if (profile.executable == "shared") return own_executable();
  if (profile.executable != "shipped") return profile.executable;
  const std::string copy = folder.file("lockstep");
  std::error_code error;
  std::filesystem::copy_file(own_executable_file, copy, error);
  if (error)
    throw FileError("[cluster] cannot copy this executable to " + copy + ": " + error.message());
  return copy;
}

std::string pairs_text(const std::vector<NodePair>& pairs) {
  const auto slowest = std::min_element(
      pairs.begin(), pairs.end(),
      [](const NodePair& a, const NodePair& b) { return a.bandwidth < b.bandwidth; });
  const auto latest =
      std::max_element(pairs.begin(), pairs.end(),
                       [](const NodePair& a, const NodePair& b) { return a.latency < b.latency; });
  return fmt::format(
      "lowest bandwidth {:.2f} GB/s ({} and {}), highest latency {:.0f} us ({} and {})",
      slowest->bandwidth / 1e9, slowest->first, slowest->second, latest->latency * 1e6,
      latest->first, latest->second);
}

// The program that starts another executable than this one: the pool names this one first.
std::string write_starter(const SharedFolder& folder, const std::string& executable) {
  const std::string path = folder.file("start");
  write_atomically(local_files(), path,
                   "#!/bin/sh\nshift\nexec " + shell_quoted(executable) + " \"$@\"\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

void exchange_between_nodes(const ClusterProfile& profile, const HolderJob& job,
                            const std::vector<std::string>& nodes, const SharedFolder& folder,
                            const std::string& executable, ValidationSteps& steps) {
  // Keys must not go through srun's standard input, which Slurm does not encrypt.
  ::setenv("LOCKSTEP_KEY_FOLDER", folder.path().c_str(), 1);
  if (!profile.ports.empty()) ::setenv("LOCKSTEP_PORTS", profile.ports.c_str(), 1);
  NodeExchangeOptions options{
      .nodes = nodes,
      .launch = "srun --quiet --jobid=" + job.number() +
                " --overlap --kill-on-bad-exit=0 --nodes=1 --ntasks=1 --nodelist={host} " +
                passed_on + " " + write_starter(folder, executable),
      .address = profile.address,
      .environment = {},
      .limit = node_limit,
      .stop_wanted = stop_wanted};
  for (const std::string& variable : profile.environment) {
    const size_t equals = variable.find('=');
    options.environment.emplace_back(variable.substr(0, equals), variable.substr(equals + 1));
  }
  std::unique_ptr<NodeExchange> exchange;
  steps.step("workers join",
             "the nodes must reach this machine: --address names its interface or address in their "
             "network, --ports the ports that are open",
             [&] {
               exchange = std::make_unique<NodeExchange>(options);
               return exchange->wait_for_all();
             });
  if (nodes.size() == 1) return;
  steps.step("connect each pair",
             "the nodes must reach each other by TCP: LOCKSTEP_INTERFACE=NAME in the profile's "
             "environment names the interface, --ports the ports that are open",
             [&] { return fmt::format("{} pairs", exchange->connect_pairs()); });
  steps.step("exchange", "another program or faulty hardware is in the way", [&] {
    return fmt::format("{} MiB on each node, compared", exchange->exchange() >> 20);
  });
  steps.step("bandwidth, latency", "", [&] {
    const std::vector<NodePair> pairs = exchange->measure_pairs();
    auto& measured = steps.facts()["pairs"] = ordered_json::array();
    for (const NodePair& pair : pairs) {
      measured.push_back({{"nodes", {pair.first, pair.second}},
                          {"bytes_per_second", pair.bandwidth},
                          {"latency_seconds", pair.latency}});
    }
    return pairs_text(pairs);
  });
}

}  // namespace

void validate_slurm(const ClusterProfile& profile, double patience, ValidationSteps& steps) {
  steps.step("reach the scheduler",
             "install Slurm's commands here, or give the profile a login node: --login user@host",
             [] { return Slurm().version(); });
  steps.step("nodes", "choose another partition, or fewer nodes",
             [&] { return count_usable_nodes(profile); });
  HolderJob job;
  std::vector<std::string> nodes;
  steps.step("submit", "correct the profile's partition, time_limit or options", [&] {
    job.submit(profile);
    return "Slurm's job " + job.number();
  });
  steps.step("get nodes", "wait longer (--patience), or ask for less; squeue shows who waits", [&] {
    nodes = job.wait_until_it_runs(patience);
    return joined(nodes);
  });
  SharedFolder folder(profile);
  std::string executable;
  steps.step("shared folder", "the folder of jobs must be the same on all nodes: --folder DIR",
             [&] {
               write_atomically(local_files(), folder.file("seen"), "seen");
               refuse_failed_nodes(ask_nodes(job, nodes, {"cat", folder.file("seen")}),
                                   "do not see " + folder.path());
               return folder.path();
             });
  std::vector<NodeAnswer> answers;
  steps.step("start on each node",
             "the executable must be on all nodes: in a shared folder, or with --executable "
             "shipped, with the libraries that it needs",
             [&] {
               executable = executable_on_nodes(profile, folder);
               answers = ask_nodes(job, nodes, {executable, "info", "--json"});
               refuse_failed_nodes(answers, "cannot run " + executable);
               return executable;
             });
  steps.step("same build and numerics", "", [&] {
    const auto infos = infos_of(answers);
    auto& facts = steps.facts()["nodes"] = ordered_json::array();
    for (const auto& [node, info] : infos) {
      facts.push_back({{"node", node}, {"processor", info["processor"]}});
    }
    return fmt::format("{} nodes, {}", infos.size(), compare_nodes(infos, profile.device));
  });
  exchange_between_nodes(profile, job, nodes, folder, executable, steps);
  steps.step("clean up", "scancel ends what is left", [&] {
    job.cancel();
    folder.remove();
    return "job cancelled, files removed";
  });
}

}  // namespace lockstep::command
