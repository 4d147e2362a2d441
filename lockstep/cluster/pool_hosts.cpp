#include "lockstep/cluster/pool_hosts.h"

#include <utility>

#include "lockstep/cluster/remote/remote_hosts.h"
#include "lockstep/cluster/slurm/cluster_hosts.h"
#include "lockstep/parallel/process/host_support.h"

namespace lockstep {
namespace {

class PoolHosts final : public detail::HostSupport {
 public:
  detail::ClusterPool cluster_pool(const std::string& cluster) const override {
    ClusterLayout layout = cluster_layout(cluster);
    detail::ProcessPoolOptions options{.workers = static_cast<int>(layout.workers),
                                       .threads = static_cast<int>(layout.threads)};
    for (const std::string& host : layout.hosts) {
      const size_t colon = host.rfind(':');
      options.hosts.push_back({host.substr(0, colon), std::stoi(host.substr(colon + 1))});
    }
    options.launch = layout.launch;
    options.address = layout.address;
    return {std::move(options), std::move(layout.attach)};
  }

  std::unique_ptr<detail::RemoteSupervisor> make_supervisor(
      SharedMemory& memory, const SharedRange& bell, detail::ProcessPoolOptions& options,
      detail::SupervisorEvents events) const override {
    std::shared_ptr<HostStarter> starter = make_host_starter(options);
    return std::make_unique<detail::RemoteHosts>(memory, bell, options, std::move(starter),
                                                 std::move(events));
  }
};

}  // namespace

const detail::HostSupport& pool_hosts() {
  static const PoolHosts hosts;
  return hosts;
}

}  // namespace lockstep
