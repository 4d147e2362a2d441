#include "apps/lockstep/batch/slurm_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>
#include <utility>

#include "apps/lockstep/stop_signals.h"
#include "lockstep/base/error.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/cluster/slurm/slurm.h"
#include "lockstep/cluster/slurm/tool.h"

namespace lockstep::command {
namespace {

constexpr double silence_limit = 10;  // seconds
constexpr auto look_pause = std::chrono::milliseconds(300);
constexpr int holder_seconds = 900;  // a job that is not cancelled ends by itself
// Begins the lines by which nodes answer.
constexpr const char* answer_mark = "lockstep-node ";
// The variables of this process that the nodes get.
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

std::string output_of_call(const std::vector<std::string>& command) {
  return output_of_tool({.command = command, .stop_wanted = stop_wanted}, "");
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

}  // namespace

std::string comma_list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

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
                          "the partitions of this cluster: " + comma_list(nodes.partitions));
  }
  const std::string counted = fmt::format("{} of {} nodes of {} can work", nodes.usable.size(),
                                          nodes.usable.size() + nodes.unusable.size(), name);
  if (!enough(nodes)) {
    throw Error(
        fmt::format("[cluster] {}, the profile asks for {}: {}", counted, profile.nodes,
                    nodes.unusable.empty() ? "there are no more" : comma_list(nodes.unusable)),
        nodes.unusable.empty() ? "" : "scontrol show node NAME tells more");
  }
  return counted;
}

NodeHolder::~NodeHolder() {
  try {
    cancel();
  } catch (const std::exception&) {  // it ends by itself
  }
}

void NodeHolder::submit(const ClusterProfile& profile) {
  number_ = Slurm().submit(slurm_holder_script(profile, "lockstep-validate", holder_seconds));
}

std::vector<std::string> NodeHolder::wait_until_it_runs(double patience) {
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

void NodeHolder::cancel() {
  const std::string number = std::exchange(number_, "");
  if (!number.empty()) Slurm().cancel({number});
}

std::vector<std::string> NodeHolder::step(size_t nodes) const {
  return {"srun",
          "--quiet",
          "--jobid=" + number_,
          "--overlap",
          "--kill-on-bad-exit=0",
          fmt::format("--nodes={}", nodes),
          fmt::format("--ntasks={}", nodes),
          passed_on};
}

std::vector<NodeAnswer> NodeHolder::ask(const std::vector<std::string>& nodes,
                                        const std::vector<std::string>& program) const {
  std::vector<std::string> command = step(nodes.size());
  command.push_back("--ntasks-per-node=1");
  // Its output becomes lines with the node's name and the exit code. srun mixes longer ones (above
  // 1,024 bytes) with those of other nodes.
  command.insert(command.end(),
                 {"/bin/sh", "-c",
                  "text=$(\"$@\" 2>&1); code=$?; "
                  "{ printf %s \"$text\" | tr '\\n' ' ' | fold -b -w 800; echo; } | "
                  "while IFS= read -r line; do printf '%s%s %s %s\\n' '" +
                      std::string(answer_mark) + "' \"$SLURMD_NODENAME\" $code \"$line\"; done",
                  "sh"});
  command.insert(command.end(), program.begin(), program.end());
  const ToolResult result =
      run_tool({.command = command, .seconds = slurm_node_limit, .stop_wanted = stop_wanted});
  std::vector<NodeAnswer> answers;
  std::string rest;
  for (const std::string& line : lines_of(result.output)) {
    if (!line.starts_with(answer_mark)) {
      rest += (rest.empty() ? "" : " ") + line;
      continue;
    }
    std::istringstream words(line.substr(std::string(answer_mark).size()));
    std::string node, chunk;
    int code = 0;
    words >> node >> code;
    words.get();  // the blank before the chunk
    std::getline(words, chunk);
    auto answer = std::find_if(answers.begin(), answers.end(),
                               [&](const NodeAnswer& a) { return a.node == node; });
    if (answer == answers.end()) {
      answer = answers.insert(answers.end(), NodeAnswer{.node = node, .text = {}, .code = code});
    }
    answer->text += chunk;
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

}  // namespace lockstep::command
