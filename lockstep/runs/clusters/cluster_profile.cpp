#include "lockstep/runs/clusters/cluster_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/user_folder.h"
#include "lockstep/base/suggest.h"
#include "lockstep/runs/jobs/job_source.h"

namespace lockstep {
namespace {

constexpr const char* profile_ending = ".toml";

std::string profile_path(const std::string& name) {
  const bool plain =
      !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '_';
      });
  if (!plain) {
    throw InvalidArgument("[cluster] \"" + name + "\" cannot name a cluster",
                          "use letters, digits, - and _");
  }
  return join_path(cluster_profiles_folder(), name + profile_ending);
}

std::string existing_profile_path(const std::string& name) {
  std::string path = profile_path(name);
  if (local_files().exists(path)) return path;
  const std::vector<std::string> names = cluster_profile_names();
  throw InvalidArgument(
      "[cluster] there is no profile \"" + name + "\"",
      names.empty() ? "lockstep cluster add NAME makes one" : suggest(name, names));
}

void read_profile_fields(ClusterProfile& profile, const nlohmann::json& tree,
                         const std::string& where) {
  FieldReader reader(tree, where);
  profile.visit(reader);
  reader.finish();
  for (const std::string& option : profile.options) {
    if (option.starts_with("-") && option.find('\n') == std::string::npos) continue;
    throw InvalidArgument("[" + where + "] options: \"" + option + "\" is no option of sbatch",
                          "for example --mem=4G");
  }
}

}  // namespace

void ClusterProfile::visit(FieldVisitor& v) {
  v.text("scheduler", scheduler, "the engine that starts jobs", {"slurm"});
  v.text("partition", partition, "partition of the cluster; \"\": the scheduler's default");
  v.integer("nodes", nodes, "nodes of a job", {.min = 1, .max = 100'000});
  v.integer("workers_per_node", workers_per_node, "worker processes on each node",
            {.min = 1, .max = 1024});
  v.integer("threads", threads, "compute threads of each worker", {.min = 1, .max = 1024});
  v.text("time_limit", time_limit, "limit of a job's time, as sbatch --time takes it");
  v.text("address", address,
         "address of the first node in the network of the nodes; \"\": by route");
  v.texts("options", options, "more options of sbatch, such as --mem=4G");
}

std::string cluster_profiles_folder() { return user_folder(UserFolder::settings, "clusters"); }

std::vector<std::string> cluster_profile_names() {
  std::vector<std::string> names;
  const std::string folder = cluster_profiles_folder();
  if (!local_files().is_folder(folder)) return names;
  for (std::string name : local_files().list(folder)) {
    if (!name.ends_with(profile_ending)) continue;
    name.resize(name.size() - std::string(profile_ending).size());
    names.push_back(std::move(name));
  }
  return names;
}

ClusterProfile read_cluster_profile(const std::string& name) {
  const std::string path = existing_profile_path(name);
  ClusterProfile profile;
  read_profile_fields(profile, read_job_source(local_files(), path).tree, path);
  return profile;
}

void add_cluster_profile(const std::string& name, const ClusterProfile& profile) {
  const std::string path = profile_path(name);
  if (local_files().exists(path)) {
    throw InvalidArgument("[cluster] the profile \"" + name + "\" exists",
                          "remove it first: lockstep cluster remove " + name);
  }
  const std::string text = cluster_profile_text(profile);
  ClusterProfile checked;
  read_profile_fields(checked, parse_job_source(text, path).tree, "cluster " + name);
  make_folders(local_files(), cluster_profiles_folder());
  write_atomically(local_files(), path, text);
}

void remove_cluster_profile(const std::string& name) {
  local_files().remove(existing_profile_path(name));
}

std::string cluster_profile_text(const ClusterProfile& profile) {
  const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
  std::string text = "scheduler = " + quoted(profile.scheduler) + "\n" +
                     "nodes = " + std::to_string(profile.nodes) + "\n" +
                     "workers_per_node = " + std::to_string(profile.workers_per_node) + "\n" +
                     "threads = " + std::to_string(profile.threads) + "\n";
  if (!profile.partition.empty()) text += "partition = " + quoted(profile.partition) + "\n";
  if (!profile.time_limit.empty()) text += "time_limit = " + quoted(profile.time_limit) + "\n";
  if (!profile.address.empty()) text += "address = " + quoted(profile.address) + "\n";
  if (!profile.options.empty()) {
    text += "options = " + nlohmann::json(profile.options).dump() + "\n";
  }
  return text;
}

}  // namespace lockstep
