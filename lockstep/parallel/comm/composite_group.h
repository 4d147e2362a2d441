// Groups of several processes on each of several hosts: within a host by its own group, between
// hosts by their first members.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/parallel/comm/group.h"

namespace lockstep {

struct CompositeGroupOptions {
  // Members on each host; host h's ranks follow those of the hosts before it.
  std::vector<int> members;
  int host = 0;  // this one
  // Of a host's first member: 1 while it waits for the other hosts.
  std::atomic<uint32_t>* abroad = nullptr;
  // Of a host's first member, asked by a thread now and then: whether somebody has ended the host's
  // group, so that it shall wait for the other hosts no longer.
  std::function<bool()> ended = {};
};

// One member. Whoever meets an error ends the group for its host and, if it is the host's first
// member, for the others', so that nobody waits for its limit.
class CompositeGroup final : public Group {
 public:
  // `local`: the host's members; `hosts`: of one member a host, for its first member, null for the
  // others. Throws InvalidArgument where sizes and ranks are not those of the options.
  CompositeGroup(std::unique_ptr<Group> local, std::unique_ptr<Group> hosts,
                 const CompositeGroupOptions& options);
  ~CompositeGroup() override;

  int rank() const override;
  int size() const override;
  void barrier(const TimeLimit& limit) override;
  void abort() override;
  bool ended() const override;
  // Of the host's group, and of the hosts' where this member is its host's first.
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
