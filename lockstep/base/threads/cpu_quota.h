// The share of the processors that a control group, such as a container's, may use.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

// Processor time in each second of wall time, such as 2.5, that this process may use by the
// quotas of its control group and of all groups above that it can see (cpu.max of version 2,
// cpu.cfs_quota_us of version 1). None without a quota. `root` is the folder that has proc/ and
// sys/
// ("" for "/"). Thread-safe.
std::optional<double> cpu_quota(const std::string& root = {});

// How many of `cores` processors a quota lets a process keep busy, rounded up; at least 1.
// Thread-safe.
int cores_within(int cores, std::optional<double> quota);

}  // namespace lockstep
