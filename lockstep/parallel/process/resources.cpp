#include "lockstep/parallel/process/resources.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/os/memory_room.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Measured on Linux and rounded up. A client's own descriptors, and those for each worker and host.
constexpr int64_t kOwnDescriptors = 40, kDescriptorsEach = 8, kDescriptorsOfAHost = 16;
// Its connection, and for a moment the one by which it asked.
constexpr int64_t kDescriptorsOfAJoiningHost = 2;
// A worker's own descriptors.
constexpr int64_t kWorkerDescriptors = 40;
// A client's threads; a worker's threads other than those that compute.
constexpr int64_t kOwnThreads = 12, kWorkerThreads = 8;
// A client's memory for its threads and channels.
constexpr size_t kOwnMemory = size_t{160} << 20;

int64_t open_descriptors() {
  std::error_code none;
  int64_t count = 0;
  for (auto at = fs::directory_iterator("/proc/self/fd", none); at != fs::directory_iterator();
       at.increment(none)) {
    ++count;
  }
  return count;
}

void check_descriptors(const ResourceNeed& need) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const int64_t more = kOwnDescriptors + kDescriptorsEach * need.workers +
                       kDescriptorsOfAHost * need.hosts + kDescriptorsOfAJoiningHost * need.joining;
  const int64_t wanted = std::max(open_descriptors() + more, kWorkerDescriptors);
  if (static_cast<int64_t>(limit.rlim_cur) >= wanted) return;
  const int hosts = need.hosts + need.joining;
  const std::string of_hosts = hosts == 0 ? "" : fmt::format(" here and {} other hosts", hosts);
  throw Error(fmt::format("[workers] {} workers{} need {} open descriptors, the limit is {} "
                          "(ulimit -n)",
                          need.workers, of_hosts, wanted, limit.rlim_cur),
              fmt::format("raise it (ulimit -n {}), or use fewer workers", wanted));
}

// The value of a line "Name:\tvalue" in a file of /proc.
std::string field(const std::string& file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name + ":", 0) != 0) continue;
    const size_t at = line.find_first_not_of(" \t", name.size() + 1);
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

int64_t number(const std::string& text, int base = 10) {
  try {
    return static_cast<int64_t>(std::stoull(text, nullptr, base));
  } catch (const std::exception&) {
    return 0;
  }
}

// Whether the kernel exempts this process from the process limit.
bool may_exceed_processes() {
  constexpr int kSysAdmin = 21, kSysResource = 24;
  const int64_t capable = number(field("/proc/self/status", "CapEff"), 16);
  return getuid() == 0 || (capable >> kSysAdmin & 1) != 0 || (capable >> kSysResource & 1) != 0;
}

// Threads of all processes of this user.
int64_t threads_of_user() {
  std::error_code none;
  int64_t count = 0;
  for (auto at = fs::directory_iterator("/proc", none); at != fs::directory_iterator();
       at.increment(none)) {
    const std::string name = at->path().filename().string();
    if (std::isdigit(static_cast<unsigned char>(name[0])) == 0) continue;
    const std::string status = at->path().string() + "/status";
    if (number(field(status, "Uid")) != static_cast<int64_t>(getuid())) continue;
    count += number(field(status, "Threads"));
  }
  return count;
}

void check_processes(int64_t more, int workers) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  if (may_exceed_processes()) return;
  const int64_t used = threads_of_user();
  if (used + more <= static_cast<int64_t>(limit.rlim_cur)) return;
  throw Error(fmt::format("[workers] {} workers need {} more processes and threads, the limit is "
                          "{} for this user (ulimit -u), of which {} are in use",
                          workers, more, limit.rlim_cur, used),
              fmt::format("raise it (ulimit -u {}), or use fewer workers or threads", used + more));
}

// This process's group in a hierarchy; "" if there is none.
std::string group_of(const std::string& controller) {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    if ("," + line.substr(first + 1, second - first - 1) + "," == "," + controller + ",") {
      return line.substr(second + 1);
    }
  }
  return "";
}

// Checks the group itself and its parents, each with its own limit.
void check_group(const fs::path& top, const std::string& group, int64_t more, int workers) {
  for (fs::path at = group;; at = at.parent_path()) {
    const std::string folder = top.string() + (at == "/" ? "" : at.string());
    std::string most;
    int64_t used = 0;
    std::ifstream(folder + "/pids.max") >> most;
    std::ifstream(folder + "/pids.current") >> used;
    if (!most.empty() && most != "max" && used + more > number(most)) {
      throw Error(fmt::format("[workers] {} workers need {} more processes and threads, the "
                              "control group allows {} (pids.max), of which {} are in use",
                              workers, more, most, used),
                  "raise it (" + folder + "/pids.max), or use fewer workers or threads");
    }
    if (!at.has_relative_path()) return;
  }
}

}  // namespace

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void check_resources(const ResourceNeed& need) {
  check_descriptors(need);
  const int64_t more =
      kOwnThreads + need.workers * (kWorkerThreads + static_cast<int64_t>(need.threads));
  check_processes(more, need.workers);
  check_group("/sys/fs/cgroup/pids", group_of("pids"), more, need.workers);
  check_group("/sys/fs/cgroup", group_of(""), more, need.workers);
  check_memory_limit(kOwnMemory);
}

}  // namespace lockstep
