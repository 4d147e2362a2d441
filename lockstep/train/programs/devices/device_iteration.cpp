#include "lockstep/train/programs/devices/device_iteration.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {

DeviceIteration::DeviceIteration(Network& network)
    : network_(network),
      device_(network.device()),
      memory_(memory_of(device_)),
      stream_(device_),
      sending_(device_) {}

// Recordings and memory stay until the work is done.
DeviceIteration::~DeviceIteration() {
  try {
    memory_.synchronize(stream());
  } catch (const std::exception&) {
    // The device is lost. The next call that uses it reports the error.
  }
}

DeviceIteration::Key DeviceIteration::key_of(int64_t observations) const {
  return {observations, network_.packed().number_of_copies()};
}

bool DeviceIteration::can_be_whole(int64_t observations) const {
  if (!possible_ || !memory_.records()) return false;
  const auto found = recordings_.find(key_of(observations));
  return found == recordings_.end() || !found->second.failed();
}

void DeviceIteration::forget() {
  if (recordings_.empty()) return;
  memory_.synchronize(stream());
  recordings_.clear();
}

void DeviceIteration::make_room(Block& block, const ShardStaging& bytes) {
  const auto [sent, returned] = bytes;
  if (!block.sent || block.sent_bytes < sent) {
    block.sent = std::make_unique<Pinned>(memory_, sent);
    block.sent_bytes = sent;
  }
  if (!block.returned || block.returned_bytes < returned) {
    block.returned = std::make_unique<Pinned>(memory_, returned);
    block.returned_bytes = returned;
  }
  if (sent_.bytes() >= sent && returned_.bytes() >= returned) return;
  forget();
  arriving_ = allocate(std::max(sent, sent_.bytes()), device_);
  sent_ = allocate(arriving_.bytes(), device_);
  returned_ = allocate(std::max(returned, returned_.bytes()), device_);
  // Work in the default stream may still use what was returned to the cache.
  memory_.follow(sending_.get(), memory_.default_stream());
}

void DeviceIteration::reserve_for_updater(const ShardStaging& bytes) {
  updater_ = bytes;
  for (Block& block : slots_) make_room(block, bytes);
}

void DeviceIteration::begin(bool whole, int64_t observations, size_t slot, size_t areas,
                            const ShardStaging& area) {
  drop();
  whole_ = whole;
  key_ = key_of(observations);
  slot_ = slot;
  areas_ = areas;
  area_ = area;
  make_room(slots_[slot], bytes());
}

void DeviceIteration::set_area(ShardTask& task, size_t area) const {
  const size_t sent = updater_.sent + area * area_.sent;
  const size_t returned = updater_.returned + area * area_.returned;
  task.sent = slots_[slot_].sent->data() + sent;
  task.returned = slots_[slot_].returned->data() + returned;
  task.sent_there = sent_.as<std::byte>() + sent;
  task.returned_there = returned_.as<std::byte>() + returned;
}

void DeviceIteration::add(std::function<void()> work) {
  if (whole_) {
    work_.push_back(std::move(work));
  } else {
    work();
  }
}

void DeviceIteration::add_to_stream(const std::function<void()>& work) {
  memory_.follow(stream(), memory_.default_stream());
  work();
  memory_.follow(memory_.default_stream(), stream());
}

void DeviceIteration::send_updater_part(size_t slot) const {
  memory_.copy_from_host(sent_.data(), slots_[slot].sent->data(), updater_.sent, stream());
}

void DeviceIteration::return_updater_part(size_t slot) const {
  memory_.copy_to_host(slots_[slot].returned->data(), returned_.data(), updater_.returned,
                       stream());
}

// The bytes arrive in memory of their own, which is free once the iteration before has taken its
// own from there. Then they are copied to where recordings expect them.
void DeviceIteration::send() const {
  const size_t sent = bytes().sent;
  if (sent == 0) return;
  memory_.copy_from_host(arriving_.data(), slots_[slot_].sent->data(), sent, sending_.get());
  memory_.follow(stream(), sending_.get());
  memory_.copy(sent_.data(), arriving_.data(), sent, stream());
  memory_.follow(sending_.get(), stream());
}

void DeviceIteration::launch() {
  memory_.activate();
  memory_.follow(stream(), memory_.default_stream());
  send();
  Recording& recording = recordings_.try_emplace(key_, memory_, stream()).first->second;
  recording.run([&] {
    for (const auto& work : work_) work();
  });
  memory_.copy_to_host(slots_[slot_].returned->data(), returned_.data(), bytes().returned,
                       stream());
  memory_.follow(memory_.default_stream(), stream());
  drop();
}

void DeviceIteration::wait() const {
  memory_.synchronize(sending_.get());
  memory_.synchronize(stream());
}

void DeviceIteration::drop() {
  work_.clear();
  whole_ = false;
}

}  // namespace lockstep
