// Groups as tests use them: one function for every member.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/parallel/comm/composite_group.h"
#include "lockstep/parallel/comm/host_group.h"
#include "lockstep/parallel/comm/local_group.h"
#include "tests/data/support.h"
#include "tests/parallel/network.h"

namespace lockstep::testing {

// Runs body on every member of a group of threads; returns how many threw.
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

// How many of these processes fail.
inline int failures(const std::vector<pid_t>& children) {
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed += status != 0;
  }
  return failed;
}

// Runs body(rank) in forked processes, which exit with 1 if it throws; returns how many failed.
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
      }
      _exit(status);
    }
    children.push_back(child);
  }
  return failures(children);
}

// The same on processes that share the group's memory.
inline int on_processes(const LocalGroupOptions& options,
                        const std::function<void(LocalGroup&)>& body) {
  SharedMemory arena("lockstep-test");
  const SharedRegion memory = arena.map(arena.reserve(LocalGroup::bytes(options)));
  return on_forks(options.size, [&](int rank) {
    LocalGroup group(memory, rank, options);
    body(group);
  });
}

// A folder where processes leave what others wait for.
class FolderPlace final : public MeetingPlace {
 public:
  explicit FolderPlace(std::string folder) : folder_(std::move(folder)) {}
  void set(const std::string& key, const Bytes& value) override {
    write_atomically(local_files(), path(key), value);
  }
  Bytes get(const std::string& key, const TimeLimit& limit) override {
    while (!local_files().exists(path(key))) {
      if (limit.reached()) throw Timeout("[test] nobody left " + key);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return local_files().read(path(key));
  }

 private:
  std::string path(std::string key) const {
    for (char& c : key) {
      if (c == '/') c = '_';
    }
    return folder_ + "/" + key;
  }
  const std::string folder_;
};

// Members by TCP, as forked processes; in network namespaces where `network` is set.
inline int on_hosts(int size, const std::function<void(HostGroup&)>& body,
                    const std::function<void(HostGroupOptions&)>& change = {},
                    bool network = false) {
  const TemporaryFolder folder;
  const auto member = [&](int rank) {
    HostGroupOptions options{.rank = rank,
                             .size = size,
                             .address = network ? address_of(rank) : "127.0.0.1",
                             .place = std::make_shared<FolderPlace>(folder.path),
                             .generation = 3,
                             .secret = "secret"};
    if (change) change(options);
    HostGroup group(options, TimeLimit(20));
    body(group);
    group.barrier(TimeLimit(20));  // nobody leaves while others still receive
  };
  return network ? on_network(size, member) : on_forks(size, member);
}

// Members on several hosts, several each: shared memory within a host, TCP between them.
// Returns on how many hosts somebody failed.
inline int on_hosts_of_processes(const std::vector<int>& members,
                                 const std::function<void(CompositeGroup&)>& body,
                                 bool network = false) {
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
      const HostGroupOptions options{.rank = host,
                                     .size = static_cast<int>(members.size()),
                                     .address = network ? address_of(host) : "127.0.0.1",
                                     .place = std::make_shared<FolderPlace>(folder.path),
                                     .secret = "secret"};
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
