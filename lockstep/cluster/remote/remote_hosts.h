// The supervisor of a pool's workers on other hosts. Its thread also takes their place at the rings
// that local worker processes would use.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/parallel/process/host_support.h"
#include "lockstep/parallel/process/process_pool_options.h"
#include "lockstep/parallel/process/slot_memory.h"
#include "lockstep/parallel/process/supervisor.h"

namespace lockstep {
class HostStarter;
}

namespace lockstep::detail {

struct RemoteHostsState;

class RemoteHosts final : public RemoteSupervisor {
 public:
  // `bell`: the range of the pool's bell. The memory must outlive it. If there is a starter, it has
  // the hosts started; the launch is then not used. Throws InvalidArgument for invalid hosts.
  RemoteHosts(SharedMemory& memory, const SharedRange& bell, const ProcessPoolOptions& options,
              std::shared_ptr<HostStarter> starter, SupervisorEvents events);
  ~RemoteHosts() override;

  void begin() override;
  void start(const SlotTicket& ticket) override;
  void kill(uint32_t worker, const std::string& reason) override;
  void stop() override;
  void ring(const SharedRange& slot) override;
  void forget(const SharedRange& range) override;
  std::optional<std::string> share(const std::string& path) override;

  int host_of(int slot) const override;
  int local_rank_of(int slot) const override;
  HostStatus status(int host) const override;
  std::string waits_for() const override;
  uint64_t presence(int host) const override;
  uint64_t push(int host, const SharedRange& range) override;
  bool pushed(int host, uint64_t number) const override;
  bool pull(int host, uint64_t presence, const SharedRange& range, double patience) override;
  std::vector<bool> pull_each(const std::vector<Pull>& pulls, double patience) override;
  void watch(int host, const SharedRange& range) override;
  void end_group(int host, const SharedRange& range) override;
  void belongs_to(int host, const SharedRange& range) override;

 private:
  std::unique_ptr<RemoteHostsState> state_;
};

}  // namespace lockstep::detail
