// Groups of threads, or of processes of one host, that communicate through shared memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/os/shared_memory.h"
#include "lockstep/parallel/comm/group.h"

namespace lockstep {

struct LocalGroupOptions {
  int size = 1;
  // Size of each member's window, see LocalGroup::window().
  size_t window_bytes = 0;
  // Waiting members poll the memory for a moment before they sleep. Useful if each member has a
  // core to itself.
  bool spin = false;
  // Member names for error messages; if empty: "rank 0", "rank 1", ...
  std::vector<std::string> names = {};
};

// One member of a group in shared memory. No locks: a member that dies delays the others at most
// until their limit, or until abort() is called. Waiting members sleep (futex).
class LocalGroup final : public Group {
 public:
  // Memory size of a group, and the size of its front part, which holds the state of the members.
  static size_t bytes(const LocalGroupOptions& options);
  static size_t head_bytes(const LocalGroupOptions& options);

  // `memory`: bytes() of zeros, shared by all members and used by no other group.
  LocalGroup(SharedRegion memory, int rank, const LocalGroupOptions& options);
  ~LocalGroup() override;
  // A group of threads: one member object for each thread.
  static std::vector<std::unique_ptr<LocalGroup>> of_threads(const LocalGroupOptions& options);

  int rank() const override;
  int size() const override;
  void barrier(const TimeLimit& limit) override;
  void abort() override;
  bool ended() const override;
  std::string history() const override;

  // Shared memory of member `rank`. Usually it writes and all members read. Data that was written
  // before a barrier is visible after it.
  std::byte* window(int rank) const;
  // Size of each window.
  size_t window_bytes() const;

  // Ends the group. For processes that map the memory without being members.
  static void abort(const SharedRegion& memory);
  // Whether the group was ended.
  static bool aborted(const SharedRegion& memory);
  // A word for the users of the group, initially 0.
  static std::atomic<uint32_t>& note(const SharedRegion& memory);
  // The members that the others wait for.
  static std::vector<int> missing(const SharedRegion& memory, const LocalGroupOptions& options);
  // "worker 2 has not arrived at barrier number 17"; "" if none is missing. Ignores the member
  // `excused`.
  static std::string describe_missing(const SharedRegion& memory, const LocalGroupOptions& options,
                                      int excused = -1);

 private:
  void gather(std::span<const std::byte> mine, std::span<const size_t> counts,
              std::span<std::byte> all, const TimeLimit& limit) override;
  void exchange(std::span<const std::byte> mine, std::span<const size_t> to,
                std::span<std::byte> all, std::span<const size_t> from,
                const TimeLimit& limit) override;
  void send_from(std::span<std::byte> data, int root, const TimeLimit& limit) override;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
