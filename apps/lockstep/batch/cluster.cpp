// The subcommand cluster.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/parallel/clusters/cluster_profile.h"
#include "lockstep/parallel/clusters/slurm.h"

namespace lockstep::command {
namespace {

struct ClusterArguments {
  std::string action, name;
  ClusterProfile profile;
};

int list_clusters() {
  const std::vector<std::string> names = cluster_profile_names();
  if (names.empty()) {
    print("no profiles; `lockstep cluster add NAME` makes one\n");
    return 0;
  }
  size_t width = 4;
  for (const std::string& name : names) width = std::max(width, name.size());
  std::string text = fmt::format("{:<{}}  {:<9}  {:>5}  {:>7}  {:>7}  {}\n", "name", width,
                                 "scheduler", "nodes", "workers", "threads", "partition");
  for (const std::string& name : names) {
    std::string line;
    try {
      const ClusterProfile p = read_cluster_profile(name);
      line = fmt::format("{:<{}}  {:<9}  {:>5}  {:>7}  {:>7}  {}", name, width, p.scheduler,
                         p.nodes, p.workers, p.threads, printable(p.partition));
    } catch (const Error& error) {  // the other profiles are of use
      line = fmt::format("{:<{}}  {}", name, width, printable(error.what()));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  print(text);
  return 0;
}

// Prints one step of validation. Throws what `body` throws, with the step and advice.
void validate_step(const std::string& step, const std::string& advice,
                   const std::function<std::string()>& body) {
  try {
    print(fmt::format("{:<28}  {}\n", step, printable(body())));
  } catch (const Error& error) {
    print(fmt::format("{:<28}  failed\n", step));
    throw Error(error.what(), error.hint().empty() ? advice : error.hint());
  }
}

// What every node says about itself must agree, apart from its memory. Returns a summary.
std::string compare_nodes(const std::string& output, int64_t nodes) {
  nlohmann::ordered_json first;
  int64_t count = 0;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const auto info = nlohmann::ordered_json::parse(line, nullptr, false);
    if (!info.is_object() || !info.contains("fingerprint")) continue;
    if (++count == 1) {
      first = info;
      continue;
    }
    for (const auto& [name, value] : info["fingerprint"].items()) {
      if (first["fingerprint"].value(name, nlohmann::ordered_json()) == value) continue;
      throw InvalidArgument("[cluster] two nodes differ in " + name + ": " +
                                first["fingerprint"].value(name, "nothing") + " and " +
                                value.get<std::string>(),
                            "choose nodes of one kind: --option=--constraint=...");
    }
  }
  if (count != nodes) {
    throw Error(fmt::format("[cluster] {} of {} nodes answered: {}", count, nodes, output));
  }
  return fmt::format("{} nodes, {}", count, first["processor"].get<std::string>());
}

int validate_cluster(const std::string& name) {
  constexpr double node_limit = 120;  // seconds, the wait for free nodes included
  const ClusterProfile profile = read_cluster_profile(name);
  const std::string executable = std::filesystem::read_symlink("/proc/self/exe").string();
  validate_step("Slurm answers", "install Slurm's commands, or log in where they are",
                [] { return Slurm().version(); });
  std::string output;
  validate_step("nodes run a program", "are that many nodes free? (sinfo)", [&] {
    output = Slurm().run_on_nodes(profile, {executable, "info", "--json"}, node_limit);
    return std::string("yes");
  });
  validate_step("same build and numerics",
                "the executable and its libraries must be the same on all nodes",
                [&] { return compare_nodes(output, profile.nodes); });
  return 0;
}

const char* const cluster_actions[] = {"list", "show", "add", "remove", "validate"};

std::string cluster_action_problem(const std::string& action) {
  for (const char* known : cluster_actions) {
    if (action == known) return "";
  }
  return "\"" + action + "\" is no action of `lockstep cluster`";
}

int cluster_command(const ClusterArguments& a) {
  const auto refuse = [&](bool wrong, const std::string& text) {
    if (wrong) throw UsageError(text, "lockstep cluster --help describes the actions");
  };
  const bool list = a.action == "list";
  refuse(list && !a.name.empty(), "`lockstep cluster list` takes no name");
  refuse(!list && a.name.empty(), "`lockstep cluster " + a.action + "` needs a name");
  if (list) return list_clusters();
  if (a.action == "validate") return validate_cluster(a.name);
  if (a.action == "show") print(cluster_profile_text(read_cluster_profile(a.name)));
  if (a.action == "add") add_cluster_profile(a.name, a.profile);
  if (a.action == "remove") remove_cluster_profile(a.name);
  return 0;
}

}  // namespace

void add_cluster(Commands& commands) {
  auto a = std::make_shared<ClusterArguments>();
  Subcommand sub = commands.add(
      "cluster", "Profiles of clusters: list, show, add, remove, validate",
      "A profile says how batch jobs reach a cluster that Slurm manages. Actions:\n\n"
      "  list      all profiles\n"
      "  show      a profile's file\n"
      "  add       make a profile from the options below\n"
      "  remove    remove a profile\n"
      "  validate  ask Slurm, run a program on all nodes, compare them; each step that fails says "
      "what to do\n\n"
      "`lockstep submit JOB --cluster NAME` trains with a profile. The executable, the data and "
      "the "
      "folder of jobs must lie in a folder that all nodes share.",
      {{"lockstep cluster add lab --workers 8 --nodes 2", "make the profile lab"},
       {"lockstep cluster validate lab", "check it"}},
      [a] { return cluster_command(*a); });
  sub.add_option("action", a->action, "What to do")
      .required()
      .type_name("list|show|add|remove|validate")
      .check(cluster_action_problem);
  sub.add_option("name", a->name, "Name of the profile").type_name("NAME");
  ClusterProfile& p = a->profile;
  sub.add_option("--scheduler", p.scheduler, "add: the engine that starts jobs").type_name("slurm");
  sub.add_option("--partition", p.partition, "add: partition of the cluster")
      .type_name("PARTITION");
  sub.add_option("--workers", p.workers, "add: worker processes of a job (default: 1)")
      .type_name("N");
  sub.add_option("--nodes", p.nodes,
                 "add: nodes of a job, each with the same number of workers (default: 1)")
      .type_name("N");
  sub.add_option("--threads", p.threads, "add: compute threads of each worker (default: 1)")
      .type_name("N");
  sub.add_option("--time-limit", p.time_limit, "add: limit of a job's time, as for sbatch --time")
      .type_name("TIME");
  sub.add_option("--address", p.address,
                 "add: address of the first node in the network of the nodes (default: by route)")
      .type_name("ADDRESS");
  sub.add_option("--option", p.options, "add: another option of sbatch, such as --mem=4G")
      .one_value_each()
      .type_name("OPTION");
}

}  // namespace lockstep::command
