#include "lockstep/base/os/memory_room.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct Limit {
  uint64_t bytes = 0, used = 0;
  std::string name, command;
};

// Set before other threads start.
std::string& option_name() {
  static std::string name;
  return name;
}

std::optional<uint64_t> limit_of(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return std::nullopt;
  if (limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

// Bytes that count towards the limit: the address space (RLIMIT_AS), or data and stacks.
uint64_t used_of(int resource) {
  std::ifstream file("/proc/self/statm");
  uint64_t all = 0, ignored = 0, data = 0;
  file >> all >> ignored >> ignored >> ignored >> ignored >> data;
  return (resource == RLIMIT_AS ? all : data) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::vector<Limit> limits() {
  std::vector<Limit> all;
  if (const auto bytes = limit_of(RLIMIT_AS)) {
    all.push_back({*bytes, used_of(RLIMIT_AS), "address space", "ulimit -v"});
  }
  if (const auto bytes = limit_of(RLIMIT_DATA)) {
    const bool option = !option_name().empty();
    all.push_back({*bytes, used_of(RLIMIT_DATA), "own data", option ? option_name() : "ulimit -d"});
  }
  return all;
}

uint64_t mib(uint64_t bytes) { return (bytes + (uint64_t{1} << 20) - 1) >> 20; }

std::string text_of(const std::vector<Limit>& all) {
  std::string text;
  for (const Limit& l : all) {
    text += fmt::format("{}its {} is limited to {} MiB ({}), of which {} are in use",
                        text.empty() ? "" : "; ", l.name, mib(l.bytes), l.command, mib(l.used));
  }
  return text;
}

std::string hint_of(const std::vector<Limit>& all) {
  std::string names;
  for (const Limit& l : all) names += (names.empty() ? "" : ", or ") + l.command;
  return names.empty() ? "" : "raise the limit (" + names + "), or use fewer threads";
}

}  // namespace

void limit_own_data(uint64_t bytes, const std::string& name, uint64_t least) {
  const uint64_t used = used_of(RLIMIT_DATA);
  if (bytes < used + least) {
    throw Error(
        fmt::format("[memory] {} = {} is too small: a process needs {} MiB before it has a "
                    "network, and {} more for its work",
                    name, bytes >> 20, mib(used), mib(least)),
        fmt::format("{} must be at least {}; large networks need more", name, mib(used + least)));
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_max < bytes) return;  // already tighter
  limit = {bytes, bytes};
  if (setrlimit(RLIMIT_DATA, &limit) == 0) option_name() = name;
}

void check_memory_limit(size_t bytes) {
  if (!limit_of(RLIMIT_AS) && !limit_of(RLIMIT_DATA)) return;
  void* const probe =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (probe != MAP_FAILED) {
    munmap(probe, bytes);
    return;
  }
  const auto all = limits();
  throw OutOfMemory(
      fmt::format("[memory] this process needs {} MiB more: {}", mib(bytes), text_of(all)),
      hint_of(all));
}

std::string out_of_memory_text() {
  const std::string limited = text_of(limits());
  return "there is not enough memory" + (limited.empty() ? "" : ": " + limited);
}

std::string out_of_memory_hint() { return hint_of(limits()); }

}  // namespace lockstep
