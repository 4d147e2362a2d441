// Groups of workers that exchange bytes. Collectives move data and never add.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/bytes.h"
#include "lockstep/base/time_limit.h"

namespace lockstep {

// All members must call the same collectives in the same order, each from one thread. Every
// collective has a limit; then it throws Timeout, which names the missing members. Throws
// WorkerLost after abort(), and InvalidArgument for sizes (in bytes) that do not match. After
// Timeout or WorkerLost the group is unusable. With one member, the collectives copy the member's
// own data.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Returns when all members have called it.
  virtual void barrier(const TimeLimit& limit) = 0;
  // Sends member r's `mine` of counts[r] bytes to all members, concatenated in order of ranks.
  // `counts` must be the same in all members.
  void all_gather(std::span<const std::byte> mine, std::span<const size_t> counts,
                  std::span<std::byte> all, const TimeLimit& limit);
  // Sends to[r] bytes of `mine` to member r and receives from[r] bytes from member r into `all`,
  // both concatenated in order of ranks.
  void all_to_all(std::span<const std::byte> mine, std::span<const size_t> to,
                  std::span<std::byte> all, std::span<const size_t> from, const TimeLimit& limit);
  // Copies `data` of member `root` to all members.
  void broadcast(std::span<std::byte> data, int root, const TimeLimit& limit);
  // Any number of bytes from each member, by rank.
  std::vector<Bytes> gather_each(std::span<const std::byte> mine, const TimeLimit& limit);
  // Ends the group for all members. Thread-safe.
  virtual void abort() = 0;
  // Whether the group was ended, as far as this member can see. Thread-safe.
  virtual bool ended() const = 0;
  // The last collectives with their sequence numbers, the newest last.
  virtual std::string history() const = 0;

 protected:
  // Throws InvalidArgument unless 0 <= rank < size.
  static void check_member(int rank, int size);
  static size_t total(std::span<const size_t> counts);
  // "worker 4, worker 7"; "rank 2" for a member without a name.
  static std::string names_of(const std::vector<int>& ranks, const std::vector<std::string>& names);

 private:
  // Implementations of the collectives above. The sizes have been checked.
  virtual void gather(std::span<const std::byte> mine, std::span<const size_t> counts,
                      std::span<std::byte> all, const TimeLimit& limit) = 0;
  virtual void exchange(std::span<const std::byte> mine, std::span<const size_t> to,
                        std::span<std::byte> all, std::span<const size_t> from,
                        const TimeLimit& limit) = 0;
  virtual void send_from(std::span<std::byte> data, int root, const TimeLimit& limit) = 0;
};

}  // namespace lockstep
