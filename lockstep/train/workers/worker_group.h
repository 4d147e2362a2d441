// The groups that workers of a training form. Workers of one host share memory. Over several hosts,
// the first members of the hosts connect through the client.
#pragma once

#include <memory>

#include "lockstep/base/os/shared_memory.h"
#include "lockstep/parallel/comm/group.h"
#include "lockstep/parallel/comm/host_group.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/train/workers/worker_messages.h"

namespace lockstep {

// Makes a member as the order and the group's description say. `memory` is that of its host's
// LocalGroup, whose note is 1 while the first member there waits for other hosts. `rendezvous`: for
// the first member of each host, if there are several hosts. Throws what HostGroup throws.
std::unique_ptr<Group> make_worker_group(const FormOrder& order, const GroupOfWorkers& group,
                                         const SharedRegion& memory,
                                         std::shared_ptr<Rendezvous> rendezvous);

}  // namespace lockstep
