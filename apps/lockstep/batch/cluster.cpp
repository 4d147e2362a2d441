// The subcommand cluster.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/lockstep/batch/cluster_cloud.h"
#include "apps/lockstep/batch/cluster_validation.h"
#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cluster/profiles/cluster_profile.h"

namespace lockstep::command {
namespace {

using nlohmann::ordered_json;

struct ClusterArguments {
  std::string action, first, second;  // what stands after the action
  ClusterProfile profile;
  CloudArguments cloud;
  double patience = 120;
  bool json = false;
};

ordered_json fields_json(ClusterProfile profile) {
  auto fields = ordered_json::object();
  FieldWriter writer(fields);
  profile.visit(writer);
  return fields;
}

int list_clusters(bool as_json) {
  const std::vector<std::string> names = cluster_profile_names();
  const std::string chosen = default_cluster_profile();
  size_t width = 4;
  for (const std::string& name : names) width = std::max(width, name.size());
  auto all = ordered_json::array();
  std::string text =
      fmt::format("{:<{}}  {:<7}  {:<9}  {:>5}  {:>7}  {:>7}  {:<9}  {}\n", "name", width,
                  "default", "scheduler", "nodes", "workers", "threads", "partition", "login");
  for (const std::string& name : names) {
    std::string line;
    try {
      const ClusterProfile p = read_cluster_profile(name);
      all.push_back({{"name", name}, {"default", name == chosen}, {"profile", fields_json(p)}});
      line = fmt::format("{:<{}}  {:<7}  {:<9}  {:>5}  {:>7}  {:>7}  {:<9}  {}", name, width,
                         name == chosen ? "yes" : "", p.scheduler, p.nodes, p.workers, p.threads,
                         printable(p.partition), printable(p.login));
    } catch (const Error& error) {  // the other profiles can be used
      all.push_back({{"name", name}, {"default", name == chosen}, {"error", error.what()}});
      line = fmt::format("{:<{}}  {}", name, width, printable(error.what()));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  as_json ? print_json(all) : print(text);
  return 0;
}

int show_cluster(const std::string& name, bool as_json) {
  const ClusterProfile profile = read_cluster_profile(name);
  as_json ? print_json(fields_json(profile)) : print(cluster_profile_text(profile));
  return 0;
}

int add_named_cluster(const std::string& name, ClusterProfile profile) {
  for (std::string& file : profile.attach) {
    if (!file.empty()) file = std::filesystem::absolute(file).lexically_normal().string();
  }
  add_cluster_profile(name, profile);
  return 0;
}

// A file may come from anyone: what it makes this machine send, and what it makes others run.
void show_imported(const std::string& name, const ClusterProfile& p) {
  std::string attached;
  for (const std::string& file : p.attach) attached += (attached.empty() ? "" : ", ") + file;
  const bool is_path = p.executable != "shared" && p.executable != "shipped";
  print_table({{"profile", name},
               {"login", p.login.empty() ? "none: the scheduler's commands run here"
                                         : p.login + ": ssh runs the scheduler's commands there"},
               {"executable", is_path ? p.executable + ": this file runs on the nodes"
                                      : p.executable + ": this lockstep runs on the nodes"},
               {"attach", attached.empty() ? "nothing"
                                           : attached + ": copied for every batch job and pool"}});
}

int import_cluster(const std::string& file, const std::string& name) {
  const std::string wanted = name.empty() ? std::filesystem::path(file).stem().string() : name;
  const std::vector<std::string> names = cluster_profile_names();
  // "local" exists without a file, which may be imported.
  if (wanted != local_cluster_name &&
      std::find(names.begin(), names.end(), wanted) != names.end()) {
    throw InvalidArgument(
        "[cluster] the profile \"" + wanted + "\" already exists",
        "give another name: lockstep cluster import " + shell_word(file) + " NAME");
  }
  // The file's name need not end as a profile's does.
  const ClusterProfile profile = read_cluster_profile_file(file);
  add_cluster_profile(wanted, profile);
  show_imported(wanted, profile);
  return 0;
}

int default_cluster(const std::string& name) {
  if (name.empty()) {
    print(default_cluster_profile() + "\n");
  } else {
    set_default_cluster_profile(name);
  }
  return 0;
}

struct ClusterAction {
  const char* name;
  int least, most;  // number of words after it
  const char* words;
};
constexpr ClusterAction cluster_actions[] = {{"list", 0, 0, "nothing"},
                                             {"show", 1, 1, "the name of a profile"},
                                             {"add", 1, 1, "a name for the profile"},
                                             {"validate", 0, 1, "at most the name of a profile"},
                                             {"default", 0, 1, "at most the name of a profile"},
                                             {"export", 1, 2, "the name of a profile, and a file"},
                                             {"import", 1, 2, "a file, and a name for the profile"},
                                             {"remove", 1, 1, "the name of a profile"},
                                             {"aws-config", 0, 1, "at most a name"},
                                             {"jobset", 0, 1, "at most a name"}};

std::string cluster_action_problem(const std::string& action) {
  for (const ClusterAction& known : cluster_actions) {
    if (action == known.name) return "";
  }
  return "\"" + action + "\" is not an action of `lockstep cluster`";
}

void check_words_of(const ClusterArguments& a) {
  const int words = (a.first.empty() ? 0 : 1) + (a.second.empty() ? 0 : 1);
  for (const ClusterAction& action : cluster_actions) {
    if (a.action != action.name || (words >= action.least && words <= action.most)) continue;
    throw UsageError("`lockstep cluster " + a.action + "` takes " + action.words,
                     "lockstep cluster --help describes the actions");
  }
}

int cluster_command(const ClusterArguments& a) {
  check_words_of(a);
  if (act_on_cloud(a.action, a.first, a.cloud)) return 0;
  if (a.action == "list") return list_clusters(a.json);
  if (a.action == "show") return show_cluster(a.first, a.json);
  if (a.action == "add") return add_named_cluster(a.first, a.profile);
  if (a.action == "default") return default_cluster(a.first);
  if (a.action == "import") return import_cluster(a.first, a.second);
  if (a.action == "export") {
    export_cluster_profile(a.first, a.second.empty() ? a.first + ".toml" : a.second);
  } else if (a.action == "remove") {
    remove_cluster_profile(a.first);
  } else {
    return validate_cluster({.name = a.first.empty() ? default_cluster_profile() : a.first,
                             .patience = a.patience,
                             .json = a.json});
  }
  return 0;
}

void add_profile_options(Subcommand& sub, ClusterProfile& p) {
  sub.add_option("--scheduler", p.scheduler,
                 "add: what starts jobs: Slurm, or this machine (default: slurm)")
      .type_name("slurm|local");
  sub.add_option("--login", p.login, "add: login node, which ssh reaches without a password")
      .type_name("USER@HOST");
  sub.add_option("--partition", p.partition, "add: partition of the cluster")
      .type_name("PARTITION");
  sub.add_option("--workers", p.workers, "add: worker processes of a job (default: 1)")
      .type_name("N");
  sub.add_option("--nodes", p.nodes,
                 "add: nodes of a job, each with the same number of workers (default: 1)")
      .type_name("N");
  sub.add_option("--threads", p.threads, "add: compute threads of each worker (default: 1)")
      .type_name("N");
  sub.add_option("--device", p.device, "add: device of the workers (default: cpu)")
      .type_name("cpu|cuda|auto");
  sub.add_option("--time-limit", p.time_limit, "add: limit of a job's time, as for sbatch --time")
      .type_name("TIME");
  sub.add_option("--option", p.options, "add: another option of sbatch, such as --mem=4G")
      .one_value_each()
      .type_name("OPTION");
  sub.add_option("--environment", p.environment,
                 "add: a variable of the workers, such as NCCL_SOCKET_IFNAME=ib0")
      .one_value_each()
      .type_name("NAME=VALUE");
  sub.add_option("--attach", p.attach,
                 "add: a file or folder that every batch job and every pool gets")
      .one_value_each()
      .type_name("FILE");
  sub.add_option("--executable", p.executable,
                 "add: on the nodes: shared (the same path), shipped, or a path (default: shared)")
      .type_name("shared|shipped|PATH");
  sub.add_option(
         "--folder", p.folder,
         "add: folder on the cluster that all nodes share, for batch jobs and for the hosts of "
         "trainings (default: the user's)")
      .type_name("DIR");
  sub.add_option(
         "--address", p.address,
         "add: address or network interface at which the nodes reach this machine (default: "
         "the loopback, in batch jobs by route)")
      .type_name("ADDRESS");
  sub.add_option("--ports", p.ports,
                 "add: range of ports to listen at, such as 20000-20100 (default: any)")
      .type_name("FIRST-LAST");
}

}  // namespace

void add_cluster(Commands& commands) {
  auto a = std::make_shared<ClusterArguments>();
  Subcommand sub = commands.add(
      "cluster", "Profiles of clusters: list, show, add, validate, default, export, import, remove",
      "A profile says how batch jobs and trainings reach a cluster. Actions:\n\n"
      "  list                the profiles\n"
      "  show NAME           a profile's fields\n"
      "  add NAME            make a profile by the options that begin with add:\n"
      "  validate [NAME]     try it step by step; a step that fails says what to do\n"
      "  default [NAME]      choose the profile that `default` stands for, or show its name\n"
      "  export NAME [FILE]  write a profile to a new file (default: NAME.toml)\n"
      "  import FILE [NAME]  make a profile from such a file, and print what it attaches and runs\n"
      "  remove NAME         remove a profile\n"
      "  aws-config [NAME]   print the configuration of a Slurm cluster for AWS ParallelCluster 3\n"
      "  jobset [NAME]       print a manifest for Kubernetes: a training as a JobSet\n\n"
      "The profile `local` is this machine; it always exists. `lockstep reference clusters` "
      "describes the fields. The path of a profile's file (with the ending .toml) can stand for "
      "its "
      "name, and `default` stands for the default profile.",
      {{"lockstep cluster add lab --scheduler slurm --workers 4 --partition debug",
        "make the profile lab"},
       {"lockstep cluster validate lab", "try it"},
       {"lockstep cluster default lab", "make lab the default"},
       {"lockstep cluster export lab lab.toml", "a file for colleagues"}},
      [a] { return cluster_command(*a); });
  sub.add_option("action", a->action, "What to do")
      .required()
      .type_name("list|show|add|validate|default|export|import|remove|aws-config|jobset")
      .check(cluster_action_problem);
  sub.add_option("name", a->first, "Name of the profile; import: the file").type_name("FILE|NAME");
  sub.add_option("other", a->second, "export: the file; import: the name").type_name("FILE|NAME");
  add_profile_options(sub, a->profile);
  add_cloud_options(sub, a->cloud);
  sub.add_option("--patience", a->patience,
                 "validate: seconds to wait for free nodes (default: 120)")
      .type_name("SECONDS")
      .not_negative();
  sub.add_flag("--json", a->json, "list, show, validate: print JSON");
}

}  // namespace lockstep::command
