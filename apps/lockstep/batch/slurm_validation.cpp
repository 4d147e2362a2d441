#include "apps/lockstep/batch/slurm_validation.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "apps/lockstep/batch/node_exchange.h"
#include "apps/lockstep/batch/slurm_nodes.h"
#include "apps/lockstep/stop_signals.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file.h"
#include "lockstep/cluster/slurm/node_executable.h"
#include "lockstep/cluster/slurm/slurm.h"
#include "lockstep/cluster/slurm/tool.h"
#include "lockstep/runs/batch/batch_job.h"
#include "lockstep/train/state/fingerprint.h"

namespace lockstep::command {
namespace {

using nlohmann::ordered_json;

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

// "n1, n3: reason; n2: other reason"
std::string by_reason(const std::map<std::string, std::vector<std::string>>& nodes) {
  std::string text;
  for (const auto& [reason, names] : nodes) {
    text += (text.empty() ? "" : "; ") + comma_list(names) + ": " + reason;
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
      info = parse_json_or_discard<ordered_json>(answer.text.substr(begin, end - begin + 1));
    }
    if (!info.is_object() || !info.contains("fingerprint") || !info.contains("processor")) {
      throw Error("[cluster] " + answer.node +
                  " runs another program than this one: " + answer.text.substr(0, 200));
    }
    infos[answer.node] = std::move(info);
  }
  return infos;
}

std::string member_text(const ordered_json& object, const std::string& name) {
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
    if (member_text(info["fingerprint"], "build") != own_build) other.push_back(node);
  }
  if (!other.empty()) {
    throw InvalidArgument(
        "[cluster] the executable on " + comma_list(other) + " is another build than this one",
        "install the same file there");
  }
  compare(infos, "models of processors", "choose nodes of one model: --option=--constraint=NAME",
          [](const ordered_json& info) { return member_text(info, "processor"); });
  for (const auto& item : infos.begin()->second["fingerprint"].items()) {
    const std::string& name = item.key();
    compare(infos, "values of " + name, "choose nodes of one kind: --option=--constraint=NAME",
            [&](const ordered_json& info) { return member_text(info["fingerprint"], name); });
  }
  for (const auto& [node, info] : infos) {
    if (device != "cuda") break;
    const auto& gpus = info["gpus"];
    const bool any = std::any_of(gpus["devices"].begin(), gpus["devices"].end(),
                                 [](const auto& gpu) { return gpu.value("usable", false); });
    if (!any) {
      throw InvalidArgument(
          "[cluster] " + node + " has no GPU that can be used: " + member_text(gpus, "reason"),
          "ask for GPUs: --option=--gpus-per-node=1");
    }
  }
  return member_text(infos.begin()->second, "processor");
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

void exchange_between_nodes(const ClusterProfile& profile, const NodeHolder& job,
                            const std::vector<std::string>& nodes, const SharedFolder& folder,
                            const std::string& executable, ValidationSteps& steps) {
  // Keys must not go through srun's standard input, which Slurm does not encrypt.
  ::setenv("LOCKSTEP_KEY_FOLDER", folder.path().c_str(), 1);
  if (!profile.ports.empty()) ::setenv("LOCKSTEP_PORTS", profile.ports.c_str(), 1);
  std::string launch;
  for (const std::string& word : job.step(1)) launch += word + " ";
  launch += "--nodelist={host} " + write_starter(folder, executable);
  NodeExchangeOptions options{.nodes = nodes,
                              .launch = launch,
                              .address = profile.address,
                              .environment = profile.variables(),
                              .limit = slurm_node_limit,
                              .stop_wanted = stop_wanted};
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
  steps.step("exchange", "the network or the hardware of these nodes is faulty", [&] {
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
  NodeHolder job;
  std::vector<std::string> nodes;
  steps.step("submit", "correct the profile's partition, time_limit or options", [&] {
    job.submit(profile);
    return "Slurm's job " + job.number();
  });
  steps.step("get nodes", "wait longer (--patience), or ask for less; squeue shows the queue", [&] {
    nodes = job.wait_until_it_runs(patience);
    return comma_list(nodes);
  });
  SharedFolder folder(profile);
  std::string executable;
  steps.step("shared folder", "the folder of jobs must be the same on all nodes: --folder DIR",
             [&] {
               check_slurm_path(folder.path());
               write_atomically(local_files(), folder.file("seen"), "seen");
               refuse_failed_nodes(job.ask(nodes, {"cat", folder.file("seen")}),
                                   "do not see " + folder.path());
               return folder.path();
             });
  std::vector<NodeAnswer> answers;
  steps.step("start on each node",
             "the executable must be on all nodes: in a shared folder, or with --executable "
             "shipped, with the libraries that it needs",
             [&] {
               ship_executable(profile, folder.path());
               executable = node_executable(profile, folder.path());
               answers = job.ask(nodes, {executable, "info", "--json"});
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
