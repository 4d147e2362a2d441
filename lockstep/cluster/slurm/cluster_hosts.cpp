#include "lockstep/cluster/slurm/cluster_hosts.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/cluster/remote/agent_process.h"
#include "lockstep/cluster/slurm/hosts_folder.h"
#include "lockstep/cluster/slurm/node_executable.h"
#include "lockstep/cluster/slurm/slurm.h"
#include "lockstep/cluster/slurm/tool.h"

namespace lockstep {
namespace {

constexpr std::string_view launch_word = "cluster ";
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

std::vector<int64_t> indexes_to(int64_t size) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < size; ++i) all.push_back(i);
  return all;
}

// The script of the hosts of a pool with this folder, which listens at `address`.
std::string script_of(const ClusterProfile& profile, const std::string& folder,
                      const std::string& address, const std::vector<int64_t>& indexes,
                      int64_t size) {
  return slurm_hosts_script(profile, {.name = hosts_job_name(folder),
                                      .output = join_path(folder, host_output_name("%a")),
                                      .command = {node_executable(profile, folder), host_argument,
                                                  address, join_path(folder, hosts_key_name)},
                                      .indexes = indexes,
                                      .size = size,
                                      .environment = {}});
}

}  // namespace

ClusterLayout cluster_layout(const std::string& cluster) {
  const ClusterProfile profile = read_cluster_profile(cluster);
  ClusterLayout layout{.hosts = {},
                       .launch = {},
                       .address = profile.address,
                       .workers = profile.workers,
                       .threads = profile.threads,
                       .device = profile.device,
                       .attach = profile.attach};
  if (profile.scheduler == "local") return layout;
  if (static_cast<size_t>(profile.nodes) > most_hosts) {
    throw InvalidArgument("[cluster] " + cluster + ": at most 4,096 nodes can work together");
  }
  layout.launch = std::string(launch_word) + cluster;
  const std::string name = cluster_profile_name_of(cluster);
  for (int64_t i = 1; i <= profile.nodes; ++i) {
    layout.hosts.push_back(name + "-" + std::to_string(i) + ":" +
                           std::to_string(profile.workers_per_node()));
  }
  return layout;
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
      : cluster(c),
        profile(p),
        slurm(p.login),
        size(n),
        folder(p),
        name(hosts_job_name(folder.path())),
        hosts(static_cast<size_t>(n)) {}

  const std::string cluster;
  const ClusterProfile profile;
  const Slurm slurm;
  const int64_t size;
  const JobKey key = JobKey::fresh();
  HostsFolder folder;
  const std::string name;             // of the jobs in Slurm
  std::string address;                // "": nothing was begun
  std::atomic<int> shared = 0;        // number of shared files
  const TimeLimit quiet{quiet_time};  // from the constructor, not long before begin()

  Mutex mutex;
  ConditionVariable changed;
  std::vector<Host> hosts LOCKSTEP_GUARDED_BY(mutex);
  std::set<std::string> given_up LOCKSTEP_GUARDED_BY(mutex);  // jobs that were cancelled
  std::string silence LOCKSTEP_GUARDED_BY(mutex);             // why Slurm does not answer
  bool ended LOCKSTEP_GUARDED_BY(mutex) = false;
  std::thread thread;

  void submit(const std::vector<int64_t>& indexes) LOCKSTEP_EXCLUDES(mutex) {
    const std::string script = script_of(profile, folder.path(), address, indexes, size);
    write_atomically(local_files(), folder.file(hosts_script_name), script);
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
    const bool held = host.state.is_held_after_launch();
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
    const std::string printed = last_line_of(folder.file(host_output_name(std::to_string(index))));
    host.problem = what + (printed.empty() ? std::string() : ": " + printed);
    host.expected = false;
  }
};

ClusterHosts::ClusterHosts(const std::string& cluster, const ClusterProfile& profile, int64_t size)
    : state_(std::make_unique<State>(cluster, profile, size)) {}

ClusterHosts::~ClusterHosts() { end(); }

const JobKey& ClusterHosts::key() const { return state_->key; }

// Each file gets a folder of its own, so that it keeps its name.
std::string ClusterHosts::share(const std::string& path) {
  State& s = *state_;
  const std::string folder = s.folder.file("file-" + std::to_string(++s.shared));
  const std::string copy = join_path(folder, std::filesystem::path(path).filename().string());
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (!error) std::filesystem::copy(path, copy, std::filesystem::copy_options::recursive, error);
  if (error) {
    throw FileError("[cluster] cannot copy " + path + " to " + copy + ": " + error.message());
  }
  return copy;
}

namespace {

// Without an address the pool listens at the loopback, which other machines cannot reach.
void check_address(const Slurm& slurm, const ClusterProfile& profile, const std::string& cluster) {
  if (!profile.address.empty()) return;
  for (const auto& [node, there] : slurm.nodes(profile)) {
    if (there.starts_with("127.") || there == "localhost" || there == "::1") continue;
    throw InvalidArgument("[cluster] the profile \"" + cluster +
                              "\" has no address, at which node " + node + " (NodeAddr " + there +
                              ") could reach this machine",
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
    s.folder.clean_up_after_others(s.slurm);
  } catch (const Error&) {  // another pool does it later
  }
  JobKey members = s.key;
  members.server_secret.clear();
  write_key_file(s.folder.file(hosts_key_name), members);
  check_shared(s.profile, s.folder.file(hosts_key_name));
  ship_executable(s.profile, s.folder.path());
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

void ClusterHosts::joined(int64_t index) {
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
         " hosts have joined (" + text + ")";
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
  s.folder.leave(cancelled);
}

std::string cluster_hosts_script(const std::string& cluster) {
  const ClusterProfile profile = read_cluster_profile(cluster);
  const std::string address = profile.address.empty() ? "127.0.0.1" : profile.address;
  return script_of(profile, join_path(hosts_folder_of(profile), "NAME"), address + ":PORT",
                   indexes_to(profile.nodes), profile.nodes);
}

std::shared_ptr<HostStarter> make_host_starter(detail::ProcessPoolOptions& options) {
  if (!options.launch.starts_with(launch_word)) return nullptr;
  const std::string cluster = options.launch.substr(launch_word.size());
  const ClusterProfile profile = read_cluster_profile(cluster);
  int64_t size = 0;
  for (const detail::PoolHost& host : options.hosts) size += host.name.empty() ? 0 : 1;
  if (profile.scheduler == "local" || size == 0) {
    throw InvalidArgument("[cluster] \"" + cluster + "\" starts no hosts");
  }
  for (auto& variable : profile.variables()) options.environment.push_back(std::move(variable));
  if (options.address.empty()) options.address = profile.address;
  options.ports = profile.ports;
  return std::make_shared<ClusterHosts>(cluster, profile, size);
}

}  // namespace lockstep
