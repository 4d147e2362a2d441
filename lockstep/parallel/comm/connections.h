// The connections of a member of a HostGroup, by Gloo.
#pragma once

#include <gloo/context.h>

#include <memory>
#include <set>

#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/comm/host_group.h"

namespace lockstep {

// Gloo's own way to connect is a full mesh, in which every member publishes the addresses of all
// its connections. Here members are connected to their neighbors, in order of ranks, which avoids
// circles of waiting members.
class Connections final : public gloo::Context {
 public:
  using gloo::Context::Context;

  // Throws what Gloo throws, what the rendezvous throws, and DataError for an invalid address.
  void connect(const std::set<int>& neighbors, Rendezvous& rendezvous,
               std::shared_ptr<gloo::transport::Device> device, const TimeLimit& limit);
  // After connect(): whether this is one of the connections. Thread-safe.
  bool has(const gloo::transport::Pair* connection) const;

 private:
  std::set<const gloo::transport::Pair*> connections_;
};

}  // namespace lockstep
