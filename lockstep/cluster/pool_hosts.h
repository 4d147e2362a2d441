// What pools get for workers on other hosts.
#pragma once

namespace lockstep {

namespace detail {
class HostSupport;
}

// Remote agents, and hosts that Slurm starts. It exists as long as the program.
const detail::HostSupport& pool_hosts();

}  // namespace lockstep
