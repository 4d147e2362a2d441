#include "lockstep/parallel/clusters/cluster_hosts.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/file_lock.h"
#include "lockstep/base/os/own_executable.h"
#include "lockstep/base/os/user_folder.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/clusters/slurm.h"
#include "lockstep/parallel/clusters/tool.h"
#include "lockstep/parallel/remote/agent_process.h"

namespace lockstep {
namespace {

constexpr std::string_view launch_word = "cluster ";
constexpr const char* lock_name = "lock";
constexpr const char* key_name = "key";
constexpr const char* script_name = "hosts.sh";
constexpr const char* owner_name = "owner";
constexpr size_t most_hosts = 4096;
// Seconds between questions to Slurm: while hosts are awaited, and otherwise.
constexpr double look_pause = 1, calm_pause = 5;
// Seconds until a submitted job shows in Slurm's list, and until one that runs has joined. The
// process on the node gives up earlier, so that its output has the reason.
constexpr double show_limit = 10, join_limit = 90;
// Seconds for the job of a host that is lost to end by itself.
constexpr double lost_limit = 4;
// Jobs in a row that may end without their host having joined, and the longest pause between them.
constexpr int most_failures = 4;
constexpr double longest_pause = 8;
// Hosts come at the latest after a week.
constexpr double most_wait = 7 * 86'400;
// A shorter wait is not worth a notice.
constexpr double quiet_time = 1.5;

std::string random_word() {
  constexpr const char* letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device source;
  std::string word;
  for (int i = 0; i < 10; ++i) word += letters[source() % 36];
  return word;
}

std::string hosts_folder(const ClusterProfile& profile) {
  return profile.folder.empty() ? user_folder(UserFolder::state, "hosts")
                                : join_path(profile.folder, "hosts");
}

// The folder of a pool is named as its jobs are.
std::string job_name_of(const std::string& folder) {
  return "lockstep-hosts-" + std::filesystem::path(folder).filename().string();
}

// The machine, login and Slurm of a pool. Only pools with the same ones clean its folder up: locks
// need not reach other machines, and another Slurm does not know the jobs.
std::string owner_of(const ClusterProfile& profile) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const char* const configuration = std::getenv("SLURM_CONF");
  return std::string(host) + " " + profile.login + " " + (configuration ? configuration : "");
}

// The end of what a host has printed, as one line.
std::string last_line_of(const std::string& path) {
  try {
    std::string text = read_text(local_files(), path);
    while (text.ends_with('\n')) text.pop_back();
    text.erase(0, text.rfind('\n') + 1);
    return text.substr(0, 300);
  } catch (const FileError&) {  // it has printed nothing
    return "";
  }
}

std::vector<std::pair<std::string, std::string>> variables_of(const ClusterProfile& profile) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& entry : profile.environment) {
    const size_t at = entry.find('=');
    all.emplace_back(entry.substr(0, at), entry.substr(at + 1));
  }
  return all;
}

std::vector<int64_t> indexes_to(int64_t size) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < size; ++i) all.push_back(i);
  return all;
}

void check_hosts_folder(const std::string& folder) {
  if (folder.find_first_of(" \t\r\n%\"'\\") == std::string::npos) return;
  throw InvalidArgument("[cluster] Slurm cannot use the folder " + folder,
                        "give the profile a folder without blanks, quotes and % in its path");
}

}  // namespace

ClusterPlace cluster_place(const std::string& cluster) {
  const ClusterProfile profile = read_cluster_profile(cluster);
  ClusterPlace place{.hosts = {},
                     .launch = {},
                     .address = profile.address,
                     .workers = profile.workers,
                     .threads = profile.threads,
                     .device = profile.device,
                     .attach = profile.attach};
  if (profile.scheduler == "local") return place;
  if (static_cast<size_t>(profile.nodes) > most_hosts) {
    throw InvalidArgument("[cluster] " + cluster + ": at most 4,096 nodes can work together");
  }
  place.launch = std::string(launch_word) + cluster;
  const std::string name = cluster_profile_name_of(cluster);
  for (int64_t i = 1; i <= profile.nodes; ++i) {
    place.hosts.push_back(name + "-" + std::to_string(i) + ":" +
                          std::to_string(profile.workers_per_node()));
  }
  return place;
}

struct ClusterHosts::State {
  struct Host {
    bool expected = false, present = false;
    std::string job;   // the newest one; "": none yet
    SlurmState state;  // as last seen; "": not seen
    TimeLimit shows{show_limit};
    std::optional<TimeLimit> joins;  // since its job runs, or since it is lost
    TimeLimit next{0};               // time of the next submission
    TimeLimit last{most_wait};       // for it to come
    int failures = 0;                // in a row
    std::string problem;
  };

  State(const std::string& c, const ClusterProfile& p, int64_t n)
      : cluster(c), profile(p), slurm(p.login), size(n), hosts(static_cast<size_t>(n)) {}

  const std::string cluster;
  const ClusterProfile profile;
  const Slurm slurm;
  const int64_t size;
  const JobKey key = JobKey::fresh();
  std::string folder, name, address, executable;
  std::optional<FileLock> lock;
  std::atomic<int> shared = 0;        // number of shared files
  const TimeLimit quiet{quiet_time};  // from the constructor, not long before begin()

  Mutex mutex;
  ConditionVariable changed;
  std::vector<Host> hosts LOCKSTEP_GUARDED_BY(mutex);
  std::set<std::string> given_up LOCKSTEP_GUARDED_BY(mutex);  // jobs that were cancelled
  std::string silence LOCKSTEP_GUARDED_BY(mutex);             // why Slurm does not answer
  bool ended LOCKSTEP_GUARDED_BY(mutex) = false;
  std::thread thread;

  std::string file(const std::string& inside) const { return join_path(folder, inside); }

  SlurmHosts script_for(const std::vector<int64_t>& indexes) const {
    return {.name = name,
            .output = file("host-%a.txt"),
            .command = {executable, host_argument, address, file(key_name)},
            .indexes = indexes,
            .size = size,
            .environment = {}};
  }

  void submit(const std::vector<int64_t>& indexes) LOCKSTEP_EXCLUDES(mutex) {
    const std::string script = slurm_hosts_script(profile, script_for(indexes));
    write_atomically(local_files(), file(script_name), script);
    const std::string array = slurm.submit(script);
    const MutexLock guard(mutex);
    for (const int64_t index : indexes) {
      Host& host = hosts[static_cast<size_t>(index)];
      host.job = array + "_" + std::to_string(index);
      host.state = {};
      host.shows = TimeLimit(show_limit);
      host.joins.reset();
    }
  }

  void watch() {
    for (;;) {
      {
        const MutexLock guard(mutex);
        const bool calm = std::all_of(hosts.begin(), hosts.end(),
                                      [](const Host& host) { return !host.expected; });
        for (const TimeLimit pause(calm ? calm_pause : look_pause); !ended && !pause.reached();) {
          changed.wait_until(mutex, pause);
          if (calm) break;  // a host was lost
        }
        if (ended) return;
      }
      try {
        look();
        const MutexLock guard(mutex);
        silence.clear();
      } catch (const Error& error) {
        const MutexLock guard(mutex);
        silence = error.what();
      }
    }
  }

  // Compares what Slurm knows with what is expected, and submits what is missing.
  void look() LOCKSTEP_EXCLUDES(mutex) {
    const std::vector<SlurmElement> known = slurm.elements(name);
    std::vector<int64_t> missing;
    std::vector<std::string> useless;
    {
      const MutexLock guard(mutex);
      for (int64_t index = 0; index < size; ++index) {
        Host& host = hosts[static_cast<size_t>(index)];
        const SlurmElement* const element = newest(known, index);
        host.state = element ? element->state : SlurmState();
        if (element) host.job = element->job;
        if (!host.expected) continue;
        if (element) {
          follow(host, index, useless);
        } else if (!host.job.empty() && (has_ended(known, host.job) || host.shows.reached())) {
          note_end(host, index, "its jobs in Slurm end before it joins");
        }
        if (host.job.empty() && host.expected && host.next.reached()) missing.push_back(index);
      }
    }
    if (!useless.empty()) slurm.cancel(useless);
    if (!missing.empty()) submit(missing);
  }

  // The host's job that waits or runs, if there is one.
  const SlurmElement* newest(const std::vector<SlurmElement>& known, int64_t index) const
      LOCKSTEP_REQUIRES(mutex) {
    const SlurmElement* found = nullptr;
    for (const SlurmElement& element : known) {
      if (element.index != index || !may_come(element)) continue;
      if (given_up.count(element.job) > 0) continue;
      if (found == nullptr || std::atoll(element.job.c_str()) > std::atoll(found->job.c_str())) {
        found = &element;
      }
    }
    return found;
  }

  // A preempted job that Slurm starts again is pending.
  static bool may_come(const SlurmElement& element) {
    return element.state.is_alive() && element.state.state != "PREEMPTED";
  }

  static bool has_ended(const std::vector<SlurmElement>& known, const std::string& job) {
    return std::any_of(known.begin(), known.end(), [&](const SlurmElement& element) {
      return element.job == job && !may_come(element);
    });
  }

  // A job that runs must join soon. One that was requeued and has to wait for its time is replaced,
  // and so is one that Slurm would never start: it is held because its node failed to launch it.
  void follow(Host& host, int64_t index, std::vector<std::string>& useless)
      LOCKSTEP_REQUIRES(mutex) {
    const bool runs = host.state.state == "RUNNING" || host.state.state == "COMPLETING";
    if (runs && !host.joins) host.joins.emplace(join_limit);
    const bool late = host.joins && host.joins->reached();
    const bool requeued = host.joins && host.state.reason == "BeginTime";
    const bool held =
        host.state.state == "PENDING" && host.state.reason.starts_with("launch failed");
    if (!(runs && late) && !requeued && !held) return;
    given_up.insert(host.job);
    useless.push_back(host.job);
    if (requeued) {
      host.job.clear();
      host.joins.reset();
    } else if (held) {
      note_end(host, index, "Slurm could not start it (" + host.state.reason + ")");
    } else {
      note_end(host, index, "it runs on its node and does not reach " + address);
    }
  }

  // The host's job has ended or is cancelled, and the host has not joined.
  void note_end(Host& host, int64_t index, const std::string& what) LOCKSTEP_REQUIRES(mutex) {
    host.job.clear();
    host.joins.reset();
    ++host.failures;
    host.next = TimeLimit(std::min(longest_pause, 0.5 * (1 << std::min(host.failures, 8)) - 1));
    if (host.failures < most_failures) return;
    const std::string printed = last_line_of(file("host-" + std::to_string(index) + ".txt"));
    host.problem = what + (printed.empty() ? std::string() : ": " + printed);
    host.expected = false;
  }
};

ClusterHosts::ClusterHosts(const std::string& cluster, const ClusterProfile& profile, int64_t size)
    : state_(std::make_unique<State>(cluster, profile, size)) {
  State& s = *state_;
  refuse_secrets(variables_of(profile));
  const std::string all = hosts_folder(profile);
  check_hosts_folder(all);
  make_folders(local_files(), all);
  struct stat status;
  if (::chmod(all.c_str(), 0700) != 0 || ::stat(all.c_str(), &status) != 0 ||
      status.st_uid != ::geteuid()) {
    throw FileError("[cluster] the folder " + all + " belongs to another user",
                    "name one of your own in the profile's `folder`");
  }
  s.folder = join_path(all, random_word());
  s.name = job_name_of(s.folder);
  if (::mkdir(s.folder.c_str(), 0700) != 0) {
    throw FileError("[cluster] cannot make the folder " + s.folder + ": " +
                    std::system_category().message(errno));
  }
  s.lock = FileLock::take(s.file(lock_name));
  if (!s.lock) throw FileError("[cluster] " + s.file(lock_name) + " cannot be locked");
  write_atomically(local_files(), s.file(owner_name), owner_of(profile));
}

ClusterHosts::~ClusterHosts() { end(); }

const JobKey& ClusterHosts::key() const { return state_->key; }

// Each file gets a folder of its own, so that it keeps its name.
std::string ClusterHosts::share(const std::string& path) {
  State& s = *state_;
  const std::string folder = s.file("file-" + std::to_string(++s.shared));
  std::filesystem::create_directory(folder);
  const std::string copy = join_path(folder, std::filesystem::path(path).filename().string());
  std::error_code error;
  std::filesystem::copy(path, copy, std::filesystem::copy_options::recursive, error);
  if (error) {
    throw FileError("[cluster] cannot copy " + path + " to " + copy + ": " + error.message());
  }
  return copy;
}

namespace {

// Cancels the jobs of pools whose process was killed, and removes their folders.
void clean_hosts_folder(const Slurm& slurm, const std::string& all, const std::string& owner) {
  for (const std::string& name : local_files().list(all)) {
    const std::string folder = join_path(all, name);
    const std::string owned = join_path(folder, owner_name);
    if (!local_files().exists(owned) || read_text(local_files(), owned) != owner) continue;
    const std::optional<FileLock> lock = local_files().exists(join_path(folder, lock_name))
                                             ? FileLock::take(join_path(folder, lock_name))
                                             : std::nullopt;
    if (!lock) continue;  // its process lives
    slurm.cancel_all(job_name_of(folder));
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
}

// Without an address the pool listens at the loopback, which other machines cannot reach.
void check_address(const Slurm& slurm, const ClusterProfile& profile, const std::string& cluster) {
  if (!profile.address.empty()) return;
  for (const std::string& node : slurm.node_addresses(profile)) {
    if (node.starts_with("127.") || node == "localhost" || node == "::1") continue;
    throw InvalidArgument("[cluster] the profile \"" + cluster +
                              "\" has no address, at which node " + node +
                              " could reach this machine",
                          "set `address` to this machine's address or network interface there");
  }
}

// With a login the folder must be the same there.
void check_shared(const ClusterProfile& profile, const std::string& file) {
  if (profile.login.empty()) return;
  if (run_tool({.command = {"test", "-r", file}, .login = profile.login}).succeeded) return;
  throw InvalidArgument("[cluster] " + profile.login + " does not see " + folder_of(file),
                        "set `folder` to a folder that this machine shares with the cluster, or "
                        "have the cluster train: lockstep submit");
}

}  // namespace

void ClusterHosts::begin(const std::string& address) {
  State& s = *state_;
  s.address = address;
  check_address(s.slurm, s.profile, s.cluster);
  try {
    clean_hosts_folder(s.slurm, folder_of(s.folder), owner_of(s.profile));
  } catch (const Error&) {  // another pool does it later
  }
  JobKey members = s.key;
  members.server_secret.clear();
  write_key_file(s.file(key_name), members);
  check_shared(s.profile, s.file(key_name));
  s.executable = own_executable();
  if (s.profile.executable == "shipped") {
    const std::string copy = s.file("lockstep");
    std::error_code error;
    std::filesystem::copy_file(own_executable_file, copy, error);
    if (const std::string library = cuda_library_of(s.executable); !error && !library.empty()) {
      std::filesystem::copy_file(library, s.file(cuda_library_name), error);
    }
    if (error) throw FileError("[cluster] " + copy + ": " + error.message());
    s.executable = copy;
  } else if (s.profile.executable != "shared") {
    s.executable = s.profile.executable;
  }
  s.submit(indexes_to(s.size));
  s.thread = quiet_thread([&s] { s.watch(); });
}

void ClusterHosts::expect(int64_t index) {
  const MutexLock guard(state_->mutex);
  State::Host& host = state_->hosts[static_cast<size_t>(index)];
  if (host.present) {  // it was lost
    host.present = false;
    host.joins.emplace(lost_limit);
    host.failures = 0;
  }
  if (!host.problem.empty()) {  // a new attempt
    host.problem.clear();
    host.failures = most_failures - 1;
    host.next = TimeLimit(longest_pause);
  }
  host.expected = true;
  host.last = TimeLimit(most_wait);
  state_->changed.notify_all();
}

void ClusterHosts::came(int64_t index) {
  const MutexLock guard(state_->mutex);
  State::Host& host = state_->hosts[static_cast<size_t>(index)];
  host.expected = false;
  host.present = true;
  host.failures = 0;
  host.joins.reset();
}

std::string ClusterHosts::problem(int64_t index) {
  const MutexLock guard(state_->mutex);
  const State::Host& host = state_->hosts[static_cast<size_t>(index)];
  return host.last.reached() ? "Slurm has not started it within a week" : host.problem;
}

std::string ClusterHosts::waits_for() {
  State& s = *state_;
  const MutexLock guard(s.mutex);
  int64_t there = 0;
  std::set<std::string> reasons;
  for (const State::Host& host : s.hosts) {
    there += host.present;
    if (host.present) continue;
    const bool pending = host.state.state == "PENDING" && host.state.reason != "None";
    reasons.insert(pending                         ? host.state.reason
                   : host.state.state == "RUNNING" ? "starting"
                                                   : "submitted");
  }
  if (there == s.size || !s.quiet.reached()) return "";
  if (!s.silence.empty()) reasons = {"it does not answer"};
  std::string text;
  for (const std::string& reason : reasons) text += (text.empty() ? "" : ", ") + reason;
  return "Slurm: " + std::to_string(there) + " of " + std::to_string(s.size) +
         " hosts have come (" + text + ")";
}

void ClusterHosts::end() {
  State& s = *state_;
  {
    const MutexLock guard(s.mutex);
    if (std::exchange(s.ended, true)) return;
    s.changed.notify_all();
  }
  if (s.thread.joinable()) s.thread.join();
  bool cancelled = s.address.empty();
  try {
    if (!cancelled) s.slurm.cancel_all(s.name);
    cancelled = true;
  } catch (const std::exception&) {
    // The key is removed, so the hosts cannot join; another pool cancels what waits.
  }
  std::error_code ignored;
  std::filesystem::remove(s.file(key_name), ignored);
  if (cancelled) std::filesystem::remove_all(s.folder, ignored);
  s.lock.reset();
}

std::string cluster_hosts_script(const std::string& cluster) {
  const ClusterProfile profile = read_cluster_profile(cluster);
  const std::string folder = join_path(hosts_folder(profile), "NAME");
  check_hosts_folder(folder);
  const bool path = profile.executable != "shared" && profile.executable != "shipped";
  const std::string executable = path                              ? profile.executable
                                 : profile.executable == "shipped" ? join_path(folder, "lockstep")
                                                                   : own_executable();
  return slurm_hosts_script(
      profile, {.name = job_name_of(folder),
                .output = join_path(folder, "host-%a.txt"),
                .command = {executable, host_argument,
                            (profile.address.empty() ? "127.0.0.1" : profile.address) + ":PORT",
                            join_path(folder, key_name)},
                .indexes = indexes_to(profile.nodes),
                .size = profile.nodes,
                .environment = {}});
}

void start_on_cluster(detail::ProcessPoolOptions& options) {
  if (!options.launch.starts_with(launch_word)) return;
  const std::string cluster = options.launch.substr(launch_word.size());
  const ClusterProfile profile = read_cluster_profile(cluster);
  int64_t size = 0;
  for (const detail::PoolHost& host : options.hosts) size += host.name.empty() ? 0 : 1;
  if (profile.scheduler == "local" || size == 0) {
    throw InvalidArgument("[cluster] \"" + cluster + "\" starts no hosts");
  }
  for (auto& variable : variables_of(profile)) options.environment.push_back(std::move(variable));
  if (options.address.empty()) options.address = profile.address;
  options.ports = profile.ports;
  options.starter = std::make_shared<ClusterHosts>(cluster, profile, size);
}

}  // namespace lockstep
