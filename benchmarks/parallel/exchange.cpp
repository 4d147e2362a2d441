// The time of one exchange between worker processes when none is late: the sum of one array of each
// member by the fixed tree, from a barrier until every member has the whole sum. Members either
// spin, with a core for each, or sleep (futex). For comparison the same by messages, as between
// hosts, over TCP on the loopback. Medians.
//
// usage: exchange [--members N] [--floats N] [--sums N]
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/threads/cores.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/parallel/comm/host_group.h"
#include "lockstep/parallel/reduce/group_sum.h"
#include "lockstep/parallel/reduce/partition.h"

namespace {

using namespace lockstep;

struct Settings {
  int members = 2;
  size_t floats = 0;  // 0: the sizes of the table
  int sums = 2000;
};

void take_core(int number) {
  const std::vector<int> cores = all_cores();
  run_on({cores[static_cast<size_t>(number) % cores.size()]});
}

// Seconds that one member takes.
template <class AnyGroup>
double measure(AnyGroup& group, const GroupSumOptions& options, int sums) {
  ThreadPool pool(1);
  GroupSum sum(group, pool, options);
  const std::vector<double> even(static_cast<size_t>(group.size()), 1.0);
  const auto schedule =
      std::make_shared<SumSchedule>(partition_shards(options.most_leaves, even));
  const std::vector<float> values(options.count, 0.5f);
  std::vector<double> seconds;
  for (int i = 0; i < sums; ++i) {
    sum.begin(schedule);
    sum.add(group.rank(), values.data());
    group.barrier(TimeLimit(30));
    const auto before = std::chrono::steady_clock::now();
    sum.finish(TimeLimit(30));
    const auto after = std::chrono::steady_clock::now();
    seconds.push_back(std::chrono::duration<double>(after - before).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + sums / 2, seconds.end());
  return seconds[static_cast<size_t>(sums / 2)];
}

// A rendezvous of the members in a folder.
class Folder final : public Rendezvous {
 public:
  Folder(int rank, std::string path) : rank_(rank), path_(std::move(path)) {}
  std::map<int, Bytes> exchange(const std::map<int, Bytes>& own, const TimeLimit& limit) override {
    std::map<int, Bytes> theirs;
    for (const auto& [member, entry] : own) {
      write_atomically(local_files(), file_of(rank_, member), entry);
    }
    for (const auto& [member, entry] : own) {
      while (!local_files().exists(file_of(member, rank_))) {
        if (limit.reached()) throw Timeout("[exchange] a member does not come");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      theirs[member] = local_files().read(file_of(member, rank_));
    }
    return theirs;
  }

 private:
  std::string file_of(int from, int to) const {
    return path_ + "/" + std::to_string(from) + "-" + std::to_string(to);
  }
  const int rank_;
  const std::string path_;
};

enum class Way { spinning, sleeping, messages };

// Starts a process for each member and returns the seconds of the first one.
double measure(const Settings& settings, size_t floats, Way way) {
  const bool spin = way == Way::spinning;
  std::string folder = (std::filesystem::temp_directory_path() / "exchange_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw Error("[exchange] no folder");
  const GroupSumOptions sum{.count = floats, .most_leaves = settings.members};
  const LocalGroupOptions options{.size = settings.members,
                                  .window_bytes = GroupSum::window_bytes(sum, settings.members),
                                  .spin = spin};
  SharedMemory arena("lockstep-exchange");
  const SharedRegion memory = arena.map(arena.reserve(LocalGroup::bytes(options)));
  const SharedRegion answer = arena.map(arena.reserve(sizeof(double)));
  std::vector<pid_t> children;
  for (int r = 0; r < settings.members; ++r) {
    const pid_t child = fork();
    if (child < 0) throw Error("[exchange] no process could be started");
    if (child == 0) {
      int status = 1;
      try {
        take_core(r);
        double seconds = 0;
        if (way == Way::messages) {
          HostGroupOptions host{.rank = r, .size = settings.members};
          host.rendezvous = std::make_shared<Folder>(r, folder);
          HostGroup group(host, TimeLimit(30));
          seconds = measure<Group>(group, sum, settings.sums);
          group.barrier(TimeLimit(30));  // no member may leave while others still receive
        } else {
          LocalGroup group(memory, r, options);
          seconds = measure(group, sum, settings.sums);
        }
        if (r == 0) std::memcpy(answer.get(), &seconds, sizeof seconds);
        status = 0;
      } catch (const std::exception& e) {
        std::fprintf(stderr, "exchange: %s\n", e.what());
      }
      _exit(status);
    }
    children.push_back(child);
  }
  bool failed = false;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed |= status != 0;
  }
  std::filesystem::remove_all(folder);
  if (failed) throw Error("[exchange] a member failed");
  double seconds = 0;
  std::memcpy(&seconds, answer.get(), sizeof seconds);
  return seconds;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Settings settings;
    for (int i = 1; i + 1 < argc; i += 2) {
      const std::string name = argv[i];
      const int value = std::atoi(argv[i + 1]);
      if (value < 1) throw InvalidArgument("[exchange] " + name + " needs a number of at least 1");
      if (name == "--members") settings.members = value;
      if (name == "--floats") settings.floats = static_cast<size_t>(value);
      if (name == "--sums") settings.sums = value;
    }
    std::vector<size_t> sizes{25000, 270000, 1100000};
    if (settings.floats > 0) sizes = {settings.floats};
    std::printf("%9s  %8s  %12s  %12s  %12s\n", "floats", "members", "spinning, us", "sleeping, us",
                "messages, us");
    for (const size_t floats : sizes) {
      // Without a core for each member, spinning members would delay each other.
      const bool cores = settings.members <= available_cores();
      std::printf("%9zu  %8d  ", floats, settings.members);
      if (cores) {
        std::printf("%12.1f  ", 1e6 * measure(settings, floats, Way::spinning));
      } else {
        std::printf("%12s  ", "-");
      }
      std::printf("%12.1f  ", 1e6 * measure(settings, floats, Way::sleeping));
      std::printf("%12.1f\n", 1e6 * measure(settings, floats, Way::messages));
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "exchange: %s\n", e.what());
    return 1;
  }
}
