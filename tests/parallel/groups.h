// Helpers for tests of groups: one function runs on every member.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/parallel/comm/composite_group.h"
#include "lockstep/parallel/comm/host_group.h"
#include "lockstep/parallel/comm/local_group.h"
#include "tests/base/waiting.h"
#include "tests/data/support.h"
#include "tests/parallel/network.h"

namespace lockstep::testing {

// Numbers in shared memory by which forked processes and their parent synchronize; initially 0.
class Board {
 public:
  Board() {
    void* const page =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw Error("[test] no memory for a board");
    numbers_ = static_cast<std::atomic<int>*>(page);
  }
  ~Board() { munmap(numbers_, kBytes); }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  std::atomic<int>& operator[](int i) const { return numbers_[i]; }

  // Whether the process whose id is at `i` begins to wait for an event.
  bool comes_to_wait(int i) const {
    return await([&] { return numbers_[i] != 0; }) &&
           testing::comes_to_wait(numbers_[i], numbers_[i]);
  }
  // Whether that process is stopped.
  bool is_stopped(int i) const { return state(i) == 'T'; }
  bool has_ended(int i) const { return state(i) == 'Z' || state(i) == kGone; }

 private:
  static constexpr char kUnknown = '?', kGone = 0;
  char state(int i) const {
    const pid_t process = numbers_[i];
    return process == 0 ? kUnknown : state_of(process);
  }

  static constexpr size_t kBytes = 4096;
  std::atomic<int>* numbers_ = nullptr;
};

// Prints the error that ended a member.
inline void tell_end(int rank) {
  try {
    throw;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "member %d: %s\n", rank, e.what());
  } catch (...) {
    std::fprintf(stderr, "member %d: no exception of the standard\n", rank);
  }
}

// Runs body on every member of a group of threads. Returns how many threw.
inline int on_threads(const LocalGroupOptions& options,
                      const std::function<void(LocalGroup&)>& body) {
  auto members = LocalGroup::of_threads(options);
  std::vector<std::thread> threads;
  std::vector<int> failed(members.size(), 0);
  for (size_t r = 0; r < members.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        body(*members[r]);
      } catch (...) {
        tell_end(static_cast<int>(r));
        failed[r] = 1;
      }
    });
  }
  int count = 0;
  for (size_t r = 0; r < members.size(); ++r) {
    threads[r].join();
    count += failed[r];
  }
  return count;
}

// Number of these processes that fail.
inline int failures(const std::vector<pid_t>& children) {
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed += status != 0;
  }
  return failed;
}

// Runs body(rank) in forked processes, which exit with 1 if it throws. Returns how many failed.
inline int on_forks(int size, const std::function<void(int)>& body) {
  std::vector<pid_t> children;
  for (int r = 0; r < size; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      int status = 1;
      try {
        body(r);
        status = 0;
      } catch (...) {
        tell_end(r);
      }
      _exit(status);
    }
    children.push_back(child);
  }
  return failures(children);
}

// Same, in processes that share the group's memory.
inline int on_processes(const LocalGroupOptions& options,
                        const std::function<void(LocalGroup&)>& body) {
  SharedMemory arena("lockstep-test");
  const SharedRegion memory = arena.map(arena.reserve(LocalGroup::bytes(options)));
  return on_forks(options.size, [&](int rank) {
    LocalGroup group(memory, rank, options);
    body(group);
  });
}

// A rendezvous by files in a folder.
class FolderRendezvous final : public Rendezvous {
 public:
  FolderRendezvous(int rank, std::string folder) : rank_(rank), folder_(std::move(folder)) {}
  std::map<int, Bytes> exchange(const std::map<int, Bytes>& own, const TimeLimit& limit) override {
    std::map<int, Bytes> theirs;
    for (const auto& [member, entry] : own) {
      write_atomically(local_files(), path(rank_, member), entry);
    }
    for (const auto& [member, entry] : own) {
      while (!local_files().exists(path(member, rank_))) {
        if (limit.reached()) throw Timeout("[test] a member does not come");
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      theirs[member] = local_files().read(path(member, rank_));
    }
    return theirs;
  }

 private:
  std::string path(int from, int to) const {
    return folder_ + "/" + std::to_string(from) + "-" + std::to_string(to);
  }
  const int rank_;
  const std::string folder_;
};

// Runs body on members connected by TCP, as forked processes; in network namespaces if `network`.
inline int on_hosts(int size, const std::function<void(HostGroup&)>& body,
                    const std::function<void(HostGroupOptions&)>& change = {},
                    bool network = false) {
  const TemporaryFolder folder;
  const auto member = [&](int rank) {
    HostGroupOptions options{.rank = rank,
                             .size = size,
                             .address = network ? address_of(rank) : "127.0.0.1",
                             .rendezvous = std::make_shared<FolderRendezvous>(rank, folder.path),
                             .generation = 3,
                             .secret = "secret"};
    if (change) change(options);
    HostGroup group(options, TimeLimit(20));
    body(group);
    group.barrier(TimeLimit(20));  // no member leaves while others still receive
  };
  return network ? on_network(size, member) : on_forks(size, member);
}

// Runs members on several hosts with several members each: shared memory within a host, TCP between
// hosts. Returns the number of hosts with failures.
inline int on_hosts_of_processes(const std::vector<int>& members,
                                 const std::function<void(CompositeGroup&)>& body,
                                 bool network = false,
                                 const std::function<void(HostGroupOptions&)>& change = {}) {
  const TemporaryFolder folder;
  SharedMemory arena("lockstep-test");
  std::vector<SharedRegion> memory;
  for (const int count : members) {
    memory.push_back(arena.map(arena.reserve(LocalGroup::bytes({.size = count}))));
  }
  const auto member = [&](int host, int place) {
    const auto h = static_cast<size_t>(host);
    std::unique_ptr<Group> hosts;
    if (place == 0) {
      HostGroupOptions options{.rank = host,
                               .size = static_cast<int>(members.size()),
                               .address = network ? address_of(host) : "127.0.0.1",
                               .rendezvous = std::make_shared<FolderRendezvous>(host, folder.path),
                               .secret = "secret"};
      if (change) change(options);
      hosts = std::make_unique<HostGroup>(options, TimeLimit(20));
    }
    const LocalGroupOptions local{.size = members[h]};
    CompositeGroup group(std::make_unique<LocalGroup>(memory[h], place, local), std::move(hosts),
                         {.members = members, .host = host});
    body(group);
    group.barrier(TimeLimit(20));
  };
  const auto run_host = [&](int host) {
    const int count = members[static_cast<size_t>(host)];
    if (on_forks(count, [&](int place) { member(host, place); }) > 0) throw Error("[test] failed");
  };
  const auto hosts = static_cast<int>(members.size());
  return network ? on_network(hosts, run_host) : on_forks(hosts, run_host);
}

}  // namespace lockstep::testing
