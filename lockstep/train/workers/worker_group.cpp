#include "lockstep/train/workers/worker_group.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/parallel/comm/composite_group.h"
#include "lockstep/parallel/comm/two_steps.h"

namespace lockstep {
namespace {

// Seconds for the first members of all hosts to connect. The client waits longer for an answer.
constexpr double kRendezvousLimit = 8;

}  // namespace

std::unique_ptr<Group> make_worker_group(const FormOrder& order, const GroupOfWorkers& group,
                                         const SharedRegion& memory,
                                         std::shared_ptr<Rendezvous> rendezvous) {
  const auto host = static_cast<size_t>(order.host);
  const int before = std::accumulate(group.members.begin(), group.members.begin() + order.host, 0);
  LocalGroupOptions own{.size = group.members.at(host),
                        .window_bytes = order.window_bytes,
                        .spin = order.spin,
                        .names = {}};
  if (order.workers.size() != static_cast<size_t>(own.size)) {
    throw DataError("[group] the description of the group names other workers of its host");
  }
  for (const uint32_t worker : order.workers) own.names.push_back(name_of_worker(worker));
  const int rank = order.rank - before;
  auto local = std::make_unique<LocalGroup>(memory, rank, own);
  if (group.members.size() == 1) return local;
  CompositeGroupOptions options;
  options.members.assign(group.members.begin(), group.members.end());
  options.host = order.host;
  std::unique_ptr<Group> hosts;
  if (rank == 0) {
    HostGroupOptions all{.rank = order.host,
                         .size = static_cast<int>(group.members.size()),
                         .address = order.address,
                         .rendezvous = std::move(rendezvous),
                         .generation = order.generation,
                         .secret = group.secret};
    for (int i = 0; i < all.size; ++i) all.names.push_back("host " + std::to_string(i + 1));
    const std::set<int> neighbors = TwoSteps(all.size, all.most_direct).neighbors(order.host);
    if (neighbors.size() != order.neighbors.size()) {
      throw DataError("[group] the description of the group names other hosts");
    }
    auto worker = order.neighbors.begin();
    for (const int h : neighbors) {
      all.names[static_cast<size_t>(h)] = name_of_worker(*worker++);
    }
    hosts = std::make_unique<HostGroup>(all, TimeLimit(std::min(group.limit, kRendezvousLimit)));
    options.abroad = &LocalGroup::note(memory);
    options.ended = [memory] { return LocalGroup::aborted(memory); };
  }
  return std::make_unique<CompositeGroup>(std::move(local), std::move(hosts), options);
}

}  // namespace lockstep
