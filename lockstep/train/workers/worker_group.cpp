#include "lockstep/train/workers/worker_group.h"

#include <algorithm>
#include <numeric>

#include "lockstep/parallel/comm/composite_group.h"

namespace lockstep {
namespace {

// Seconds for the first members of all hosts to connect. The client waits longer for an answer.
constexpr double kRendezvousLimit = 8;

}  // namespace

std::unique_ptr<Group> make_worker_group(const FormOrder& order, const SharedRegion& memory,
                                         std::shared_ptr<Rendezvous> rendezvous) {
  const auto host = static_cast<size_t>(order.host);
  const int before = std::accumulate(order.members.begin(), order.members.begin() + order.host, 0);
  LocalGroupOptions own{.size = order.members[host],
                        .window_bytes = order.window_bytes,
                        .spin = order.spin,
                        .names = {}};
  own.names.assign(order.names.begin() + before, order.names.begin() + before + own.size);
  const int rank = order.rank - before;
  auto local = std::make_unique<LocalGroup>(memory, rank, own);
  if (order.members.size() == 1) return local;
  CompositeGroupOptions options;
  options.members.assign(order.members.begin(), order.members.end());
  options.host = order.host;
  std::unique_ptr<Group> hosts;
  if (rank == 0) {
    HostGroupOptions all{.rank = order.host,
                         .size = static_cast<int>(order.members.size()),
                         .address = order.address,
                         .rendezvous = std::move(rendezvous),
                         .generation = order.generation,
                         .secret = order.secret};
    int first = 0;
    for (const int32_t members : order.members) {
      all.names.push_back(order.names[static_cast<size_t>(first)]);
      first += members;
    }
    hosts = std::make_unique<HostGroup>(all, TimeLimit(std::min(order.limit, kRendezvousLimit)));
    options.abroad = &LocalGroup::note(memory);
    options.ended = [memory] { return LocalGroup::aborted(memory); };
  }
  return std::make_unique<CompositeGroup>(std::move(local), std::move(hosts), options);
}

}  // namespace lockstep
