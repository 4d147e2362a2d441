// Groups of threads, or of processes of one host: through memory that all members see.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/shared_memory.h"
#include "lockstep/parallel/comm/group.h"

namespace lockstep {

struct LocalGroupOptions {
  int size = 1;
  // Of each member's window, see LocalGroup::window().
  size_t window_bytes = 0;
  // Members that wait look at the memory for a moment before they sleep: where each has a core of
  // its own.
  bool spin = false;
  // What errors call the members; "rank 0", "rank 1", ... where there are none.
  std::vector<std::string> names = {};
};

// One member of a group whose memory they share. No lock is ever held: a member that dies stops
// the others at most until their limit, or until anybody calls abort(). Waiting members sleep
// (futex).
class LocalGroup final : public Group {
 public:
  // Bytes of memory that a group takes; of these, those at the front that tell where its members
  // are.
  static size_t bytes(const LocalGroupOptions& options);
  static size_t head_bytes(const LocalGroupOptions& options);

  // `memory`: bytes() of zeros that all members see, and none of another group.
  LocalGroup(SharedRegion memory, int rank, const LocalGroupOptions& options);
  ~LocalGroup() override;
  // A group of threads: one member for each. Each is for one thread.
  static std::vector<std::unique_ptr<LocalGroup>> of_threads(const LocalGroupOptions& options);

  int rank() const override;
  int size() const override;
  void barrier(const TimeLimit& limit) override;
  void abort() override;
  bool ended() const override;
  std::string history() const override;

  // Memory that `rank` writes and all read: what was written before a barrier is seen after it.
  std::byte* window(int rank) const;

  // For whoever sees the memory without being a member: ends the group.
  static void abort(const SharedRegion& memory);
  // Whether somebody has.
  static bool aborted(const SharedRegion& memory);
  // A word beside them, 0 at first, for whoever uses the group.
  static std::atomic<uint32_t>& note(const SharedRegion& memory);
  // The members that the others wait for.
  static std::vector<int> missing(const SharedRegion& memory, const LocalGroupOptions& options);
  // "worker 2 has not come to barrier number 17"; "" for none. Not of the member `excused`.
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
