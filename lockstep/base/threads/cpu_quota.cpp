#include "lockstep/base/threads/cpu_quota.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

bool lists(const std::string& words, std::string_view word) {
  std::istringstream list(words);
  for (std::string one; std::getline(list, one, ',');) {
    if (one == word) return true;
  }
  return false;
}

// The control groups of a process: their paths in the hierarchy of version 2, and in the one of
// version 1 that divides processor time.
struct Groups {
  std::optional<std::string> unified, cpu;
};

// Lines "number:controllers:path".
Groups groups_of_process(const std::string& root) {
  Groups groups;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (line.starts_with("0::")) groups.unified = line.substr(second + 1);
    if (lists(controllers, "cpu")) groups.cpu = line.substr(second + 1);
  }
  return groups;
}

// A hierarchy is mounted at `point`, from its group `top` on.
struct Mount {
  std::string top, point, type, options;
};

// Lines "36 35 98:0 top point options [fields] - type source options".
std::vector<Mount> mounts(const std::string& root) {
  std::vector<Mount> all;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string skipped, word;
    Mount mount;
    words >> skipped >> skipped >> skipped >> mount.top >> mount.point;
    while (words >> word && word != "-") {
    }
    words >> mount.type >> skipped >> mount.options;
    if (mount.type == "cgroup2" || mount.type == "cgroup") all.push_back(mount);
  }
  return all;
}

// The folder of a group, and how many folders of the hierarchy are above it. In a container without
// its own name space of groups, the path begins with that of the mounted group.
std::pair<std::string, int> folder_of(const Mount& mount, const std::string& group) {
  const std::string top = mount.top == "/" ? "" : mount.top;
  const bool below = group.starts_with(top + "/") && group.find("/..") == std::string::npos;
  std::string path = below ? group.substr(top.size()) : "";
  while (path.ends_with('/')) path.pop_back();
  return {mount.point + path, static_cast<int>(std::count(path.begin(), path.end(), '/'))};
}

// "max 100000" or "250000 100000".
std::optional<double> quota_of_version_2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

// -1: no quota.
std::optional<double> quota_of_version_1(const std::string& folder) {
  double quota = 0, period = 0;
  if (!(std::ifstream(folder + "/cpu.cfs_quota_us") >> quota) || quota <= 0) return std::nullopt;
  if (!(std::ifstream(folder + "/cpu.cfs_period_us") >> period) || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace

std::optional<double> cpu_quota(const std::string& root) {
  const Groups groups = groups_of_process(root);
  std::optional<double> least;
  for (const Mount& mount : mounts(root)) {
    const bool unified = mount.type == "cgroup2";
    if (!unified && !lists(mount.options, "cpu")) continue;
    const std::optional<std::string>& group = unified ? groups.unified : groups.cpu;
    if (!group) continue;
    auto [folder, above] = folder_of(mount, *group);
    for (; above >= 0; --above) {
      const auto quota =
          unified ? quota_of_version_2(root + folder) : quota_of_version_1(root + folder);
      if (quota) least = std::min(*quota, least.value_or(*quota));
      folder.erase(folder.rfind('/'));
    }
  }
  return least;
}

int cores_within(int cores, std::optional<double> quota) {
  const double most = std::max(1, cores);
  return static_cast<int>(std::clamp(std::ceil(quota.value_or(most)), 1.0, most));
}

}  // namespace lockstep
