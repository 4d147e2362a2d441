// Collectives of a large group of hosts, in two steps (two_steps.h): members pass on the bytes of
// others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/comm/two_steps.h"

namespace lockstep {

// Bytes for another member or from it, in a buffer.
struct MemberBytes {
  int rank = 0;
  size_t offset = 0, bytes = 0;
};

// The bytes of all members, at their offsets in an array in order of ranks.
std::vector<MemberBytes> bytes_by_rank(std::span<const size_t> counts);

// Of one member. Implements the collectives of Group, and throws what `move` throws; then the group
// is unusable. One thread at a time.
class TwoStepCollectives {
 public:
  // Sends parts of one buffer to members and receives parts of another one from members, all of
  // them neighbors. `step` distinguishes the messages of one collective.
  using Move = std::function<void(
      std::span<const std::byte> mine, const std::vector<MemberBytes>& to, std::span<std::byte> all,
      const std::vector<MemberBytes>& from, uint64_t step, const TimeLimit& limit)>;
  static constexpr uint64_t kMessages = 3;  // steps are below it

  TwoStepCollectives(const TwoSteps& steps, int rank, Move move);

  // The bytes for this member itself are already in place. Throws Error for sizes that no member
  // can mean, and InvalidArgument if members have different sizes.
  void exchange(std::span<const std::byte> mine, const std::vector<MemberBytes>& to,
                std::span<std::byte> all, const std::vector<MemberBytes>& from,
                const TimeLimit& limit) const;
  void gather(std::span<const std::byte> mine, std::span<const size_t> counts,
              std::span<std::byte> all, const TimeLimit& limit) const;
  void send_from(std::span<std::byte> data, int root, const TimeLimit& limit) const;

 private:
  // The ranks at a distance of the first or of the second step.
  int nearer(int near) const { return steps_.at(rank_, near); }
  int further(int multiple) const { return steps_.at(rank_, multiple * steps_.stride()); }
  // Sizes by both distances, the second step's in a row.
  size_t index(int near, int multiple) const {
    return static_cast<size_t>(near) * static_cast<size_t>(steps_.multiples()) +
           static_cast<size_t>(multiple);
  }
  std::vector<uint64_t> sizes_to_pass(const std::vector<uint64_t>& sizes,
                                      const TimeLimit& limit) const;

  const TwoSteps steps_;
  const int rank_;
  const Move move_;
};

}  // namespace lockstep
