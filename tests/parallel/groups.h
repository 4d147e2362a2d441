// Groups as tests use them: one function for every member.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/parallel/comm/local_group.h"

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

// The same on forked processes that share the memory. A member that throws exits with 1.
inline int on_processes(const LocalGroupOptions& options,
                        const std::function<void(LocalGroup&)>& body) {
  SharedMemory arena("lockstep-test");
  const SharedRegion memory = arena.map(arena.reserve(LocalGroup::bytes(options)));
  std::vector<pid_t> children;
  for (int r = 0; r < options.size; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      int status = 1;
      try {
        LocalGroup group(memory, r, options);
        body(group);
        status = 0;
      } catch (...) {
      }
      _exit(status);
    }
    children.push_back(child);
  }
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed += status != 0;
  }
  return failed;
}

}  // namespace lockstep::testing
