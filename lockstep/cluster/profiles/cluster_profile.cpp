#include "lockstep/cluster/profiles/cluster_profile.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/user_folder.h"
#include "lockstep/base/os/variable.h"
#include "lockstep/base/suggest.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/base/toml/toml_tree.h"
#include "lockstep/cluster/profiles/profile_checks.h"

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
  if (name == default_cluster_word) {
    throw InvalidArgument("[cluster] \"default\" stands for the profile that is the default",
                          "choose another name");
  }
  return join_path(cluster_profiles_folder(), name + profile_ending);
}

[[noreturn]] void refuse_unknown(const std::string& name) {
  throw InvalidArgument(
      "[cluster] there is no profile \"" + name + "\"",
      suggest(name, cluster_profile_names()) + "; lockstep cluster add " + name + " makes one");
}

// A field that this version does not know is refused by name: another version may have written it.
void check_names(const nlohmann::json& tree, const std::string& where) {
  std::vector<std::string> known;
  for (const FieldInfo& field : cluster_profile_fields()) known.push_back(field.name);
  for (const auto& [name, value] : tree.items()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string near = nearest_name(name, known);
    throw InvalidArgument(
        "[" + where + "] " + name + " is not a field of a profile in this version of lockstep",
        near.empty() ? "another version may have written it; `lockstep reference clusters` "
                       "describes the fields"
                     : "did you mean `" + near + "`?");
  }
}

ClusterProfile profile_in(const std::string& text, const std::string& where) {
  const nlohmann::json tree = parse_toml(text, "[cluster] " + where).tree;
  check_names(tree, where);
  ClusterProfile profile;
  FieldReader reader(tree, where);
  profile.visit(reader);
  reader.finish();
  check_cluster_profile(profile, where);
  return profile;
}

// This machine with all processors that this process may use.
ClusterProfile local_profile() {
  ClusterProfile profile;
  profile.scheduler = "local";
  profile.workers = available_cores();
  return profile;
}

// Writes a file that did not exist, whole or not at all.
void write_new_file(const std::string& path, const std::string& text, const std::string& exists,
                    const std::string& hint) {
  const std::string unfinished = path + ".new-" + std::to_string(::getpid());
  write_atomically(local_files(), unfinished, text);
  const int failed = ::link(unfinished.c_str(), path.c_str()) == 0 ? 0 : errno;
  local_files().remove(unfinished);
  if (failed == EEXIST) throw InvalidArgument(exists, hint);
  if (failed != 0) {
    throw FileError("[cluster] cannot write " + path + ": " +
                    std::system_category().message(failed));
  }
  local_files().sync_folder(folder_of(path));
}

std::string default_name_path() { return user_folder(UserFolder::settings, "default_cluster"); }

}  // namespace

void ClusterProfile::visit(FieldVisitor& v) {
  v.text("scheduler", scheduler, "scheduler that starts jobs: Slurm, or this machine (local)",
         {"slurm", "local"});
  v.text(
      "login", login,
      "\"user@host\": the login node, which ssh reaches without a password; \"\": Slurm's commands "
      "run here");
  v.text("partition", partition, "partition of the cluster; \"\": the scheduler's default");
  v.integer("workers", workers, "worker processes of a job, on all nodes together",
            {.min = 1, .max = 100'000});
  v.integer("nodes", nodes, "nodes of a job; each has the same number of workers",
            {.min = 1, .max = 100'000});
  v.integer("threads", threads, "compute threads of each worker", {.min = 1, .max = 1024});
  v.text("device", device, "device of the workers", {"cpu", "cuda", "auto"});
  v.text("time_limit", time_limit,
         "time limit of a job, in the format of sbatch --time; \"\": the partition's");
  v.texts("options", options, "more options of sbatch, such as --mem=4G");
  v.texts("environment", environment,
          "environment variables of the workers, such as NCCL_SOCKET_IFNAME=ib0; credentials are "
          "refused");
  v.texts("attach", attach, "files and folders that every batch job and every pool gets");
  v.text("executable", executable,
         "the executable on the nodes: \"shared\" (this one under its path), \"shipped\" (a copy "
         "in the job's folder), or a path there");
  v.text(
      "folder", folder,
      "folder on the cluster that all nodes share: it holds batch jobs in `jobs`, and the keys and "
      "output of hosts in `hosts`; \"\": the user's (LOCKSTEP_HOME)");
  v.text("address", address,
         "address or network interface at which the nodes reach this machine; \"\": the loopback "
         "alone, in batch jobs by route");
  v.text("ports", ports,
         "range of ports that workers and this machine listen at, such as 20000-20100; \"\": any");
}

int64_t ClusterProfile::workers_per_node() const {
  if (workers % nodes == 0) return workers / nodes;
  throw InvalidArgument("[cluster] " + std::to_string(workers) +
                            " workers cannot be divided among " + std::to_string(nodes) + " nodes",
                        "every node has the same number of workers");
}

std::vector<std::pair<std::string, std::string>> ClusterProfile::variables() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& entry : environment) all.push_back(parse_variable(entry));
  return all;
}

std::string ClusterProfile::folder_for(const std::string& name) const {
  return folder.empty() ? user_folder(UserFolder::state, name) : join_path(folder, name);
}

std::string cluster_profiles_folder() { return user_folder(UserFolder::settings, "clusters"); }

std::vector<std::string> cluster_profile_names() {
  std::vector<std::string> names{local_cluster_name};
  const std::string folder = cluster_profiles_folder();
  if (!local_files().is_folder(folder)) return names;
  for (std::string name : local_files().list(folder)) {
    if (!name.ends_with(profile_ending)) continue;
    name.resize(name.size() - std::string(profile_ending).size());
    if (name != local_cluster_name) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string cluster_profile_name_of(const std::string& name_or_path) {
  if (name_or_path == default_cluster_word) return default_cluster_profile();
  if (!name_or_path.ends_with(profile_ending)) return name_or_path;
  return std::filesystem::path(name_or_path).stem().string();
}

ClusterProfile read_cluster_profile(const std::string& name) {
  if (name == default_cluster_word) return read_cluster_profile(default_cluster_profile());
  if (name.ends_with(profile_ending)) return read_cluster_profile_file(name);
  const std::string path = profile_path(name);
  if (local_files().exists(path)) return profile_in(read_text(local_files(), path), path);
  if (name == local_cluster_name) return local_profile();
  refuse_unknown(name);
}

ClusterProfile read_cluster_profile_file(const std::string& path) {
  return profile_in(read_text(local_files(), path), path);
}

void add_cluster_profile(const std::string& name, const ClusterProfile& profile) {
  const std::string path = profile_path(name);
  const std::string text = cluster_profile_text(profile);
  profile_in(text, "cluster " + name);
  make_folders(local_files(), cluster_profiles_folder());
  write_new_file(path, text, "[cluster] the profile \"" + name + "\" already exists",
                 "choose another name, or remove it first: lockstep cluster remove " + name);
}

void remove_cluster_profile(const std::string& name) {
  const std::string path = profile_path(name);
  if (!local_files().exists(path)) {
    if (name != local_cluster_name) refuse_unknown(name);
    throw InvalidArgument("[cluster] the profile \"local\" is this machine and cannot be removed");
  }
  if (default_cluster_profile() == name) local_files().remove(default_name_path());
  local_files().remove(path);
}

void export_cluster_profile(const std::string& name, const std::string& path) {
  write_new_file(path, cluster_profile_text(read_cluster_profile(name)),
                 "[cluster] " + path + " exists", "name a file that does not exist");
}

std::string default_cluster_profile() {
  const std::string path = default_name_path();
  if (!local_files().exists(path)) return local_cluster_name;
  std::string name = read_text(local_files(), path);
  while (name.ends_with('\n')) name.pop_back();
  profile_path(name);  // its name is plain
  return name;
}

void set_default_cluster_profile(const std::string& name) {
  profile_path(name);
  read_cluster_profile(name);
  const std::string path = default_name_path();
  make_folders(local_files(), folder_of(path));
  write_atomically(local_files(), path, name + "\n");
}

std::vector<FieldInfo> cluster_profile_fields() {
  FieldLister lister;
  ClusterProfile().visit(lister);
  return lister.fields;
}

std::string cluster_profile_text(const ClusterProfile& profile) {
  const auto fields_of = [](ClusterProfile copy) {
    auto fields = nlohmann::ordered_json::object();
    FieldWriter writer(fields);
    copy.visit(writer);
    return fields;
  };
  const auto fields = fields_of(profile), defaults = fields_of({});
  std::string text;
  for (const auto& [name, value] : fields.items()) {
    // Texts, numbers and lists are written alike in JSON and TOML.
    if (name == "scheduler" || name == "workers" || value != defaults[name]) {
      text += name + " = " + value.dump() + "\n";
    }
  }
  return text;
}

}  // namespace lockstep
