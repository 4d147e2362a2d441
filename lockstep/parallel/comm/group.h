// Groups of workers that exchange bytes: collectives move data, they never add.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/process/serialize.h"

namespace lockstep {

// The members call the same collectives in the same order, each from one thread. Every collective
// has a limit: Timeout then names the members that are missing; WorkerLost where abort() was
// called; InvalidArgument for sizes (in bytes) that do not fit together. After the former two the
// group is of no more use. A group of one is the identity.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Returns when all have called it.
  virtual void barrier(const TimeLimit& limit) = 0;
  // Member r's `mine` of counts[r] bytes goes to everyone, one behind the other in order of ranks.
  // `counts` are the same for all.
  void all_gather(std::span<const std::byte> mine, std::span<const size_t> counts,
                  std::span<std::byte> all, const TimeLimit& limit);
  // Of `mine`, to[r] bytes go to member r, one behind the other; from member r come from[r] bytes.
  void all_to_all(std::span<const std::byte> mine, std::span<const size_t> to,
                  std::span<std::byte> all, std::span<const size_t> from, const TimeLimit& limit);
  // `data` of member `root` becomes everyone's.
  void broadcast(std::span<std::byte> data, int root, const TimeLimit& limit);
  // Bytes of any number from each, by rank.
  std::vector<Bytes> gather_each(std::span<const std::byte> mine, const TimeLimit& limit);
  // Ends the group for everybody. Thread-safe.
  virtual void abort() = 0;
  // Whether somebody has, as far as this member can see. Thread-safe.
  virtual bool ended() const = 0;
  // The last collectives with their sequence numbers, the newest last.
  virtual std::string history() const = 0;

 protected:
  // Throws InvalidArgument unless 0 <= rank < size.
  static void check_member(int rank, int size);
  static size_t total(std::span<const size_t> counts);
  // "worker 4, worker 7"; "rank 2" where there is no name.
  static std::string names_of(const std::vector<int>& ranks, const std::vector<std::string>& names);

 private:
  // The collectives above, with sizes that fit together.
  virtual void gather(std::span<const std::byte> mine, std::span<const size_t> counts,
                      std::span<std::byte> all, const TimeLimit& limit) = 0;
  virtual void exchange(std::span<const std::byte> mine, std::span<const size_t> to,
                        std::span<std::byte> all, std::span<const size_t> from,
                        const TimeLimit& limit) = 0;
  virtual void send_from(std::span<std::byte> data, int root, const TimeLimit& limit) = 0;
};

}  // namespace lockstep
