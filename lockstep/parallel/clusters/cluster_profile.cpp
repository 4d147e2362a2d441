#include "lockstep/parallel/clusters/cluster_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/user_folder.h"
#include "lockstep/base/suggest.h"
#include "lockstep/base/toml/toml_tree.h"

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

[[noreturn]] void refuse_field(const std::string& where, const std::string& field,
                               const std::string& what, const std::string& hint) {
  throw InvalidArgument("[" + where + "] " + field + ": " + what, hint);
}

bool is_variable(const std::string& text) {
  const size_t equals = text.find('=');
  return equals != std::string::npos && equals > 0 && text.find('\n') == std::string::npos &&
         std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(equals), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_';
         });
}

// A word of a command line that begins with "-" would be an option.
bool is_plain_word(const std::string& text) {
  return !text.starts_with("-") && text.find_first_of(" \t\r\n") == std::string::npos;
}

void read_profile_fields(ClusterProfile& profile, const nlohmann::json& tree,
                         const std::string& where) {
  FieldReader reader(tree, where);
  profile.visit(reader);
  reader.finish();
  for (const std::string& option : profile.options) {
    if (option.starts_with("-") && option.find('\n') == std::string::npos) continue;
    refuse_field(where, "options", "\"" + option + "\" is no option of sbatch",
                 "for example --mem=4G");
  }
  for (const std::string& variable : profile.environment) {
    if (is_variable(variable)) continue;
    refuse_field(where, "environment", "\"" + variable + "\" sets no variable",
                 "for example NCCL_SOCKET_IFNAME=ib0");
  }
  for (const auto& [field, value] :
       {std::pair<const char*, const std::string&>{"login", profile.login},
        {"partition", profile.partition},
        {"time_limit", profile.time_limit},
        {"address", profile.address},
        {"ports", profile.ports}}) {
    if (!is_plain_word(value))
      refuse_field(where, field, "\"" + value + "\" is no single word", "");
  }
  profile.workers_per_node();
}

}  // namespace

void ClusterProfile::visit(FieldVisitor& v) {
  v.text("scheduler", scheduler, "the engine that starts jobs; local: this machine",
         {"slurm", "local"});
  v.text("login", login, "\"user@host\": the scheduler's commands run there; \"\": here");
  v.text("partition", partition, "partition of the cluster; \"\": the scheduler's default");
  v.integer("workers", workers, "worker processes of a job, on all nodes together",
            {.min = 1, .max = 100'000});
  v.integer("nodes", nodes, "nodes of a job; each has the same number of workers",
            {.min = 1, .max = 100'000});
  v.integer("threads", threads, "compute threads of each worker", {.min = 1, .max = 1024});
  v.text("device", device, "device of the workers", {"cpu", "cuda", "auto"});
  v.text("time_limit", time_limit, "limit of a job's time, as sbatch --time takes it");
  v.texts("options", options, "more options of sbatch, such as --mem=4G");
  v.texts("environment", environment, "variables of the workers, such as NCCL_SOCKET_IFNAME=ib0");
  v.texts("attach", attach, "files that every job gets");
  v.text("executable", executable,
         "the executable on the nodes: \"shared\" (this one under its path), \"shipped\" (a copy "
         "in the job's folder), or a path there");
  v.text("folder", folder, "folder of the jobs on the cluster; \"\": the user's");
  v.text("address", address,
         "address or network interface of this machine for the nodes; \"\": by route");
  v.text("ports", ports, "range of ports, such as 20000-20100; \"\": any");
}

int64_t ClusterProfile::workers_per_node() const {
  if (workers % nodes == 0) return workers / nodes;
  throw InvalidArgument("[cluster] " + std::to_string(workers) +
                            " workers cannot be divided among " + std::to_string(nodes) + " nodes",
                        "every node has the same number of workers");
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
  read_profile_fields(profile, parse_toml(read_text(local_files(), path), "[cluster] " + path).tree,
                      path);
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
  read_profile_fields(checked, parse_toml(text, "[cluster] " + name).tree, "cluster " + name);
  make_folders(local_files(), cluster_profiles_folder());
  write_atomically(local_files(), path, text);
}

void remove_cluster_profile(const std::string& name) {
  local_files().remove(existing_profile_path(name));
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
