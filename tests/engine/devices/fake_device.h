// A device for tests: the CPU's kernels behind a GPU's name, as asynchronous and as out of reach as
// a GPU's. Its memory can be touched only by its own work, so that a stray access from the host
// ends the test; work added to a queue is done when somebody waits for it and not before;
// recordings are made and repeated; kernels see the StepInfo in its memory alone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/engine/tensor/device_group.h"

namespace lockstep::devicetest {

class FakeMemory;

struct FakeOptions {
  size_t bytes = size_t{256} << 20;
  bool records = true;
  // In groups: what no other device is called; "": it joins none.
  std::string identity = {};
  // Called when an exchange of a group is under way here, with its number from 1. What it throws is
  // a failure of the group's ways.
  std::function<void(int64_t)> on_exchange = {};
  // Whether nothing arrives any more of what a group sends, from this exchange on.
  std::function<bool(int64_t)> loses = {};
  // Called when a "key" is made and before each "join"; what it throws is why there is none.
  std::function<void(const std::string&)> on_join = {};
};

// Who makes groups for such a device; null: it has no identity.
std::shared_ptr<DeviceGroups> make_fake_groups(const FakeOptions& options);
// Adds work to a queue that is not begun before it is ready.
void add_to(void* queue, std::function<void()> task, std::function<bool()> ready);
// Does what is ready. Whether nothing is left.
bool run_ready(void* queue);

// There while it lives. Tensors on it must be gone before.
class FakeDevice {
 public:
  explicit FakeDevice(int index = 0, const FakeOptions& options = {});
  ~FakeDevice();
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  Device device() const { return device_; }
  operator Device() const { return device_; }

  int recordings() const;
  int replays() const;
  int marks() const;  // that were set
  // Bytes handed out and not released; the cache counts as handed out.
  size_t used() const;
  // Misuse that a real device would punish: releasing a queue with work in it, waiting or
  // allocating while a recording is made.
  std::vector<std::string> misuse() const;

 private:
  Device device_;
  std::shared_ptr<FakeMemory> memory_;
};

}  // namespace lockstep::devicetest
