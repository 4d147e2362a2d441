// The quota is read from folders that are made as Linux, Docker and Kubernetes make them.
#include "lockstep/base/threads/cpu_quota.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/threads/cores.h"
#include "lockstep/base/threads/thread_pool.h"

namespace lockstep {
namespace {

constexpr const char* kVersion2 =
    "22 1 0:20 / / rw - ext4 /dev/sda rw\n"
    "29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

class CpuQuota : public ::testing::Test {
 protected:
  CpuQuota() {
    std::string pattern = (std::filesystem::temp_directory_path() / "quota.XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~CpuQuota() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::optional<double> quota() const { return cpu_quota(root_); }

  std::string root_;
};

TEST_F(CpuQuota, WithoutFilesThereIsNoQuota) {
  EXPECT_EQ(quota(), std::nullopt);
  write("/proc/self/cgroup", "0::/a\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("/proc/self/mountinfo", kVersion2);
  EXPECT_EQ(quota(), std::nullopt);
  write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  for (const char* nonsense : {"", "\n", "x y", "100000", "0 100000", "100000 0", "-1 100000"}) {
    write("/sys/fs/cgroup/a/cpu.max", nonsense);
    EXPECT_EQ(quota(), std::nullopt) << nonsense;
  }
}

TEST_F(CpuQuota, TheTightestGroupCountsInVersion2) {
  write("/proc/self/cgroup", "0::/pods/pod7/container\n");
  write("/proc/self/mountinfo", kVersion2);
  write("/sys/fs/cgroup/pods/pod7/container/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/pods/pod7/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 2.5);
  write("/sys/fs/cgroup/pods/cpu.max", "800000 100000\n");
  EXPECT_EQ(quota(), 2.5);
  write("/sys/fs/cgroup/pods/pod7/container/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota(), 0.5);
  write("/sys/fs/cgroup/cpu.max", "20000 100000\n");
  EXPECT_EQ(quota(), 0.2);
}

// A group of this process's own name space is the top of what it sees.
TEST_F(CpuQuota, ContainersWithTheirOwnNameSpace) {
  write("/proc/self/cgroup", "0::/\n");
  write("/proc/self/mountinfo", kVersion2);
  write("/sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
  // Of a process that was moved out of it.
  write("/proc/self/cgroup", "0::/../../other\n");
  EXPECT_EQ(quota(), 1.5);
}

// Version 1 in Docker: the container's group is mounted at the top, and the path is the host's.
TEST_F(CpuQuota, Version1) {
  write("/proc/self/cgroup",
        "12:cpuset:/docker/f00d\n4:cpu,cpuacct:/docker/f00d\n2:memory:/docker/f00d\n");
  write("/proc/self/mountinfo",
        "60 59 0:27 /docker/f00d /sys/fs/cgroup/cpuset ro master:9 - cgroup cgroup rw,cpuset\n"
        "61 59 0:28 /docker/f00d /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n");
  const std::string folder = "/sys/fs/cgroup/cpu,cpuacct";
  write(folder + "/cpu.cfs_period_us", "100000\n");
  write(folder + "/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(quota(), std::nullopt);
  write(folder + "/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(quota(), 3);
  // A group below it that the container has made.
  write("/proc/self/cgroup", "4:cpu,cpuacct:/docker/f00d/job\n");
  write(folder + "/job/cpu.cfs_period_us", "50000\n");
  write(folder + "/job/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(quota(), 2);
  // Another group's, which only looks alike.
  write("/proc/self/cgroup", "4:cpu,cpuacct:/docker/f00dead/job\n");
  EXPECT_EQ(quota(), 3);
}

// Both versions at once, as systemd's hybrid layout has them.
TEST_F(CpuQuota, HybridLayout) {
  write("/proc/self/cgroup", "3:cpu,cpuacct:/user.slice\n1:name=systemd:/x\n0::/user.slice/y\n");
  write("/proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  write("/sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.cfs_quota_us", "150000");
  write("/sys/fs/cgroup/cpu,cpuacct/user.slice/cpu.cfs_period_us", "100000");
  EXPECT_EQ(quota(), 1.5);
}

TEST(Cores, TheQuotaLimitsTheirNumber) {
  EXPECT_EQ(cores_within(8, std::nullopt), 8);
  EXPECT_EQ(cores_within(8, 16), 8);
  EXPECT_EQ(cores_within(8, 2.5), 3);
  EXPECT_EQ(cores_within(8, 2), 2);
  EXPECT_EQ(cores_within(8, 0.2), 1);
  EXPECT_EQ(cores_within(1, 4), 1);
  EXPECT_GE(available_cores(), 1);
  EXPECT_EQ(available_cores(), cores_within(static_cast<int>(own_cores().size()), cpu_quota()));
}

}  // namespace
}  // namespace lockstep
