#include "lockstep/train/iteration/devices/device_links.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/os/addresses.h"

namespace lockstep {
namespace {

using Clock = TimeLimit::Clock;

// An exchange often takes less than a millisecond, so waiting threads poll without sleeping at
// first.
constexpr std::chrono::microseconds kSpin{500}, kSleep{50};
// Seconds until it is known whether the end of a worker caused a failure.
constexpr double kKnown = 2;
constexpr char kInterface[] = "NCCL_SOCKET_IFNAME";
Mutex environment_mutex;  // guards the variable kInterface
constexpr char kNotTogether[] = "[group] devices did not connect in time";

std::vector<std::string> gather_texts(Group& group, const std::string& mine,
                                      const TimeLimit& limit) {
  std::vector<std::string> all;
  for (const Bytes& text : group.gather_each(std::as_bytes(std::span(mine)), limit)) {
    all.emplace_back(reinterpret_cast<const char*>(text.data()), text.size());
  }
  return all;
}

// Calls the function and returns the text of its error, or "".
template <class F>
std::string try_to(F&& body) {
  try {
    body();
    return {};
  } catch (const WorkerLost&) {
    throw;  // the group has ended
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace

LinksWithin::LinksWithin(const std::string& address) : alone_(environment_mutex) {
  if (getenv(kInterface) != nullptr) return;
  const std::string name = interface_of(address.empty() ? "127.0.0.1" : address);
  set_ = setenv(kInterface, ("=" + name).c_str(), 0) == 0;  // "=": exactly this interface
}

LinksWithin::~LinksWithin() {
  if (set_) unsetenv(kInterface);
}

std::unique_ptr<DeviceLinks> DeviceLinks::between(Group& group, Device device, double patience,
                                                  const TimeLimit& limit, std::string& why) {
  const std::shared_ptr<DeviceGroups> groups = device_groups_of(device);
  std::string identity;
  try_to([&] { identity = groups ? groups->identity() : ""; });
  std::vector<std::string> devices = gather_texts(group, identity, limit);
  std::sort(devices.begin(), devices.end());
  if (devices.front().empty()) {
    why = "not all of them have links from GPU to GPU (NCCL)";
  } else if (std::adjacent_find(devices.begin(), devices.end()) != devices.end()) {
    why = "workers share a GPU";
  }
  if (!why.empty()) return nullptr;

  std::string key, failure;
  if (group.rank() == 0) failure = try_to([&] { key = groups->make_key(); });
  key = gather_texts(group, key, limit)[0];
  std::unique_ptr<DeviceLinks> links;
  if (!key.empty()) {
    failure = try_to([&] {
      links.reset(
          new DeviceLinks(group, memory_of(device), groups->join(key, group.rank(), group.size())));
      links->wait(DeviceGroup::Progress::done, TimeLimit(patience));
    });
  }
  if (!failure.empty()) links.reset();
  // A member that failed knows the cause better than a member that waited for it.
  for (const std::string& text : gather_texts(group, failure, limit)) {
    if (why.empty() || (!text.empty() && why == kNotTogether)) why = text;
  }
  if (!why.empty() || key.empty()) links.reset();
  return links;
}

void DeviceLinks::exchange(std::span<const DeviceTransfer> sends,
                           std::span<const DeviceTransfer> receives, const TimeLimit& limit) {
  if (sends.empty() && receives.empty()) return;
  guarded([&] {
    group_->exchange(sends, receives, memory_.default_stream());
    wait(DeviceGroup::Progress::queued, limit);
  });
}

void DeviceLinks::finish(const TimeLimit& limit) {
  guarded([&] { wait(DeviceGroup::Progress::done, limit); });
}

void DeviceLinks::wait(DeviceGroup::Progress wanted, const TimeLimit& limit) {
  const auto spin_until = Clock::now() + kSpin;
  while (group_->progress(memory_.default_stream()) < wanted) {
    if (members_.ended())
      throw WorkerLost("[group] the group was ended during an exchange between devices");
    if (limit.reached()) throw Timeout(kNotTogether);
    if (Clock::now() > spin_until) std::this_thread::sleep_for(kSleep);
  }
}

// After a failure the links cannot be used any more.
template <class F>
void DeviceLinks::guarded(F&& body) {
  try {
    body();
    return;
  } catch (const WorkerLost&) {
    group_->abort();
    throw;
  } catch (const Timeout&) {
    group_->abort();
    throw;
  } catch (const Error& e) {
    group_->abort();
    for (const TimeLimit known(kKnown); !members_.ended() && !known.reached();) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    throw WorkerLost(std::string("[group] an exchange between devices failed: ") + e.what());
  }
}

}  // namespace lockstep
