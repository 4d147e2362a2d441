#include "apps/lockstep/batch/login_jobs.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "apps/lockstep/batch/validation_steps.h"
#include "apps/lockstep/command.h"
#include "apps/lockstep/stop_signals.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/text.h"
#include "lockstep/cluster/login/login_node.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/storage/object_store.h"
#include "lockstep/train/state/fingerprint.h"

namespace lockstep::command {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

LoginNode login_node(const std::string& cluster) {
  catch_stop_signals("ending");
  return {cluster_profile_name_of(cluster), read_cluster_profile(cluster), stop_wanted};
}

// The files that are sent along, by their names there.
class SentFiles {
 public:
  // Returns its path in the folder of the command there.
  std::string add(const std::string& path) {
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    if (error) throw InvalidArgument("[attach] " + path + ": " + error.message());
    std::string name = fs::absolute(path).lexically_normal().filename().string();
    if (name.empty()) name = real.filename().string();
    for (const auto& [other, from] : files_) {
      if (other != name) continue;
      if (from == real.string()) return "attached/" + name;
      throw InvalidArgument("[attach] two files have the name " + name);
    }
    files_.emplace_back(name, real.string());
    return "attached/" + name;
  }

  // A path of this machine becomes one there if it names an attached file or lies in an attached
  // folder.
  std::string path_there(const std::string& path) const {
    const std::string real = fs::weakly_canonical(path).string();
    for (const auto& [name, from] : files_) {
      if (real == from) return "attached/" + name;
      if (real.starts_with(from + "/")) return "attached/" + name + real.substr(from.size());
    }
    return path;
  }

  const std::vector<std::pair<std::string, std::string>>& files() const { return files_; }

 private:
  std::vector<std::pair<std::string, std::string>> files_;
};

// The job as the login node reads it: settings applied, paths absolute or among the sent files.
std::string job_for_login(const LoginSubmission& s, const SentFiles& sent) {
  const JobText text = read_job_text(local_files(), s.job, s.settings);
  auto tree = parse_json<ordered_json>(text.tree);
  if (!tree.contains("name")) tree["name"] = fs::path(text.file).stem().string();
  const std::function<void(ordered_json&)> replace = [&](ordered_json& value) {
    if (value.is_string() && value.get<std::string>().starts_with("/")) {
      value = sent.path_there(value.get<std::string>());
    } else if (value.is_structured()) {
      for (ordered_json& inner : value) replace(inner);
    }
  };
  if (tree.contains("data")) replace(tree["data"]);
  return tree.dump(2) + "\n";
}

std::string own_build() {
  for (const FingerprintEntry& entry : numerics_fingerprint()) {
    if (entry.name == "build") return entry.value;
  }
  return "";
}

// Returns the processor's model there.
std::string compare_builds(const std::string& output) {
  const size_t begin = output.find('{');
  const auto info = begin == std::string::npos
                        ? ordered_json()
                        : parse_json_or_discard<ordered_json>(output.substr(begin));
  if (!info.is_object() || !info.contains("fingerprint")) {
    throw Error("[cluster] another program answers there: " + output.substr(0, 200));
  }
  if (info["fingerprint"].value("build", "") != own_build()) {
    throw InvalidArgument("[cluster] the executable there is another build than this one");
  }
  return info.value("processor", "");
}

}  // namespace

void tell_of_unfinished_fetch(const std::string& out) {
  std::fprintf(stderr, "note: the remains of an interrupted fetch to %s were removed\n",
               printable(out).c_str());
}

bool has_login(const std::string& cluster) {
  return !cluster.empty() && !read_cluster_profile(cluster).login.empty();
}

int submit_by_login(const LoginSubmission& s) {
  LoginNode node = login_node(s.cluster);
  SentFiles sent;
  std::vector<std::string> arguments{"submit", "@/job.json", "--cluster", node.profile_file()};
  arguments.insert(arguments.end(), s.options.begin(), s.options.end());
  std::vector<std::string> attach = s.attach;
  for (const std::string& file : read_cluster_profile(s.cluster).attach) attach.push_back(file);
  for (const std::string& file : attach) {
    const std::string there = sent.add(file);
    arguments.insert(arguments.end(), {"--attach", "@/" + there});
  }
  if (storage::is_address(s.initial_model)) {
    arguments.insert(arguments.end(), {"--initial-model", s.initial_model});
  } else if (!s.initial_model.empty()) {
    // Attached, because the sent files are removed when the job is submitted.
    const std::string there = sent.add(s.initial_model);
    arguments.insert(arguments.end(), {"--attach", "@/" + there, "--initial-model", "@/" + there});
  }
  const LoginFiles files{.texts = {{"job.json", job_for_login(s, sent)}}, .attached = sent.files()};
  node.ship();
  return node.run_with(files, arguments);
}

int jobs_by_login(const std::string& cluster, const std::vector<std::string>& arguments,
                  const std::string& out) {
  LoginNode node = login_node(cluster);
  node.ship();  // another version of this command may have submitted the jobs
  std::vector<std::string> all{"jobs"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  // As submit_by_login() does, whatever default profile the user has there.
  all.insert(all.end(), {"--cluster", local_cluster_name});
  if (out.empty()) return node.run(all);
  const LoginNode::Fetched fetched = node.fetch(all, out);
  if (fetched.removed_unfinished) tell_of_unfinished_fetch(out);
  return fetched.code;
}

int validate_by_login(const ValidationArguments& a) {
  LoginNode node = login_node(a.name);
  const std::string login = read_cluster_profile(a.name).login;
  ValidationSteps steps(cluster_profile_name_of(a.name), a.json);
  try {
    steps.step("reach the login node", "the profile's login is " + login,
               [&] { return node.host_name(); });
    steps.step("executable there", "", [&] {
      node.ship();
      return compare_builds(node.output_of({"info", "--json"}));
    });
  } catch (const Error&) {
    steps.finish(false);
    throw;
  }
  std::vector<std::string> arguments{"cluster", "validate", node.profile_file(), "--patience",
                                     fmt::format("{}", a.patience)};
  if (a.json) arguments.push_back("--json");
  return node.run_with({}, arguments);
}

}  // namespace lockstep::command
