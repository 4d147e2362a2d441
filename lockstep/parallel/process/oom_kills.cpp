#include "lockstep/parallel/process/oom_kills.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "lockstep/base/threads/mutex.h"

namespace lockstep {
namespace {

constexpr double kFresh = 10;  // seconds

Mutex file_mutex;
std::string& file_of_tests() LOCKSTEP_REQUIRES(file_mutex) {
  static std::string file;
  return file;
}

std::string first_readable(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    if (access(file.c_str(), R_OK) == 0) return file;
  }
  return "";
}

// A container that sees only its own part of the hierarchy has that part at the top.
std::string file_of_this_process() {
  std::ifstream groups("/proc/self/cgroup");
  std::string unified;
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string path = line.substr(second + 1);
    std::istringstream controllers(line.substr(first + 1, second - first - 1));
    for (std::string one; std::getline(controllers, one, ',');) {
      if (one != "memory") continue;
      const std::string top = "/sys/fs/cgroup/memory";
      return first_readable({top + path + "/memory.oom_control", top + "/memory.oom_control"});
    }
    if (line.rfind("0::", 0) == 0) unified = path;
  }
  const std::string top = "/sys/fs/cgroup";
  return first_readable({top + unified + "/memory.events", top + "/memory.events"});
}

}  // namespace

void OomKills::set_file(const std::string& file) {
  const MutexLock lock(file_mutex);
  file_of_tests() = file;
}

OomKills::OomKills(const std::string& file) : file_(file) {
  if (file_.empty()) {
    const MutexLock lock(file_mutex);
    file_ = file_of_tests();
  }
  if (file_.empty()) file_ = file_of_this_process();
  seen_ = read();
}

std::optional<int64_t> OomKills::read() const {
  if (file_.empty()) return std::nullopt;
  std::ifstream file(file_);
  std::string name;
  for (int64_t count = 0; file >> name >> count;) {
    if (name == "oom_kill") return count;
  }
  return std::nullopt;
}

void OomKills::look() {
  std::erase_if(fresh_, [](const TimeLimit& limit) { return limit.reached(); });
  const auto now = read();
  if (!now) return;
  for (int64_t i = seen_.value_or(*now); i < *now && fresh_.size() < 1000; ++i) {
    fresh_.emplace_back(kFresh);
  }
  seen_ = now;
}

bool OomKills::take() {
  look();
  if (fresh_.empty()) return false;
  fresh_.pop_front();
  return true;
}

}  // namespace lockstep
