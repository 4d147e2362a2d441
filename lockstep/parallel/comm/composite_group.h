// Groups with several processes on each of several hosts. Members of one host communicate through
// the host's own group, hosts through their first members.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/parallel/comm/group.h"

namespace lockstep {

struct CompositeGroupOptions {
  // Number of members on each host. The ranks of host h follow those of the hosts before it.
  std::vector<int> members;
  int host = 0;  // index of this host
  // Set by a host's first member: 1 while it waits for the other hosts.
  std::atomic<uint32_t>* abroad = nullptr;
  // For a host's first member, called periodically by a thread: whether the host's group was ended,
  // so that this member must no longer wait for the other hosts.
  std::function<bool()> ended = {};
};

// One member. A member with an error ends the group on its host and, if it is the host's first
// member, the group of the hosts, so that no member has to wait for its limit.
class CompositeGroup final : public Group {
 public:
  // `local`: the members of this host. `hosts`: one member of each host; only for a host's first
  // member, null for the others. Throws InvalidArgument if sizes and ranks do not match the
  // options.
  CompositeGroup(std::unique_ptr<Group> local, std::unique_ptr<Group> hosts,
                 const CompositeGroupOptions& options);
  ~CompositeGroup() override;

  int rank() const override;
  int size() const override;
  void barrier(const TimeLimit& limit) override;
  void abort() override;
  bool ended() const override;
  // The histories of the host's group and, for a host's first member, of the hosts' group.
  std::string history() const override;

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
