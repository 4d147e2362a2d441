// The groups that workers of a training form: of one host, through memory that they share; of
// several, by their hosts' first members, who find each other by way of the client.
#pragma once

#include <memory>

#include "lockstep/base/os/shared_memory.h"
#include "lockstep/parallel/comm/group.h"
#include "lockstep/parallel/comm/host_group.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/train/workers/worker_messages.h"

namespace lockstep {

// A member, as the order says; `memory` is its host's LocalGroup's, whose note is 1 while the first
// member there waits for other hosts. `place`: of hosts' first members, where there are several
// hosts. Throws as HostGroup does.
std::unique_ptr<Group> make_worker_group(const FormOrder& order, const SharedRegion& memory,
                                         std::shared_ptr<MeetingPlace> place);

}  // namespace lockstep
