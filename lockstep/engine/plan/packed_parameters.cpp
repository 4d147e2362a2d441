#include "lockstep/engine/plan/packed_parameters.h"

#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/device/poison.h"
#include "lockstep/engine/kernels/backends/tables.h"
#include "lockstep/engine/kernels/interface/pass_threads.h"
#include "lockstep/engine/tensor/part_layout.h"

namespace lockstep {
namespace {

constexpr size_t kLeastShared = 1 << 20;  // bytes: digests of fewer take less than a thread

Digest digest_of(const Tensor& tensor) {
  const Tensor host = tensor.to({});
  return lockstep::digest_of(host.raw(), host.bytes());
}

}  // namespace

PackedParameters::PackedParameters(std::vector<Tensor> parameters)
    : device_(parameters.empty() ? Device{} : parameters.front().device()),
      parameters_(std::move(parameters)),
      copies_(parameters_.size()),
      made_from_(parameters_.size()) {
  for (const auto& tensor : parameters_) {
    if (tensor.device() == device_) continue;
    throw InvalidArgument("[parameters] some are on " + to_string(device_) + ", others on " +
                              to_string(tensor.device()),
                          "move them to one device: tensor.to(device)");
  }
}

PackedParameters::~PackedParameters() = default;

void* PackedParameters::address(int parameter, const TensorSpec& spec) {
  const auto p = static_cast<size_t>(parameter);
  const Tensor& tensor = parameters_[p];
  const TensorSpec plain{spec.shape, DType::f32, nullptr};
  if (spec == plain) return tensor.raw();
  const MutexLock lock(mutex_);
  for (const auto& copy : copies_[p]) {
    if (copy.spec == spec) return copy.memory.data();
  }
  Copy copy;
  copy.spec = spec;
  copy.memory = allocate_zeros(spec.bytes(), device_);
  if (device_.is_cpu()) fill_with_poison(copy.memory.data(), spec.bytes());
  void* stream = nullptr;
  if (!device_.is_cpu()) {
    memory_of(device_).activate();
    stream = memory_of(device_).default_stream();
  }
  const auto pass = kernels::reorder(kernels::table_for(device_), plain, spec);
  copy.scratch = allocate(pass.scratch_bytes, device_);
  void* const from = tensor.raw();
  void* const to = copy.memory.data();
  copy.make = pass.bind({std::span<void* const>(&from, 1), std::span<void* const>(&to, 1),
                         copy.scratch.data(), stream});
  copy.make({});
  copies_[p].push_back(std::move(copy));
  // Older copies may have been made from different elements.
  if (made_from_[p] && *made_from_[p] != digest_of(tensor)) made_from_[p].reset();
  return to;
}

void PackedParameters::pack(int parameter) const {
  if (!device_.is_cpu()) memory_of(device_).activate();
  const auto p = static_cast<size_t>(parameter);
  made_from_[p].reset();
  for (const auto& copy : copies_[p]) copy.make({});
}

int64_t PackedParameters::part(int parameter) const {
  int64_t elements = 1;
  for (const auto& copy : copies_[static_cast<size_t>(parameter)]) {
    const PartLayout* const parts = copy.spec.dtype == DType::f32 ? parts_of(copy.spec) : nullptr;
    if (!parts) return 0;
    elements = std::lcm(elements, parts->part());
  }
  return elements;
}

void PackedParameters::pack(int parameter, const IndexRange& elements) const {
  const auto p = static_cast<size_t>(parameter);
  if (elements.first == 0) made_from_[p].reset();
  for (const auto& copy : copies_[p]) {
    parts_of(copy.spec)->part_from_row_major(parameters_[p].raw(), copy.memory.data(), elements);
  }
}

void PackedParameters::pack_all() const {
  for (int p = 0; p < count(); ++p) pack(p);
}

std::vector<kernels::BoundPass> PackedParameters::packing(void* stream) const {
  const MutexLock lock(mutex_);
  std::vector<kernels::BoundPass> passes;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    for (const auto& copy : copies_[p]) {
      const TensorSpec from{copy.spec.shape, DType::f32, nullptr};
      void* const source = parameters_[p].raw();
      void* const to = copy.memory.data();
      passes.push_back(kernels::reorder(kernels::table_for(device_), from, copy.spec)
                           .bind({std::span<void* const>(&source, 1),
                                  std::span<void* const>(&to, 1), copy.scratch.data(), stream}));
    }
  }
  return passes;
}

size_t PackedParameters::number_of_copies() const {
  const MutexLock lock(mutex_);
  size_t count = 0;
  for (const auto& copies : copies_) count += copies.size();
  return count;
}

std::vector<Digest> PackedParameters::digests() const {
  std::vector<Digest> digests(parameters_.size());
  const int64_t count = std::ssize(parameters_);
  size_t bytes = 0;
  for (const Tensor& tensor : parameters_) bytes += tensor.bytes();
  const bool shared = device_.is_cpu() && bytes >= kLeastShared;
  kernels::share(count, shared ? 1 : count, [&](IndexRange range) {
    for (auto p = static_cast<size_t>(range.first); p < static_cast<size_t>(range.end()); ++p) {
      digests[p] = digest_of(parameters_[p]);
    }
  });
  return digests;
}

void PackedParameters::refresh(const std::vector<Digest>& digests) {
  if (!device_.is_cpu()) {
    pack_all();
    return;
  }
  const MutexLock lock(mutex_);
  for (size_t p = 0; p < parameters_.size(); ++p) refresh(p, digests[p]);
}

void PackedParameters::refresh(int parameter) {
  const auto p = static_cast<size_t>(parameter);
  refresh(p, digest_of(parameters_[p]));
}

void PackedParameters::refresh(size_t p, const Digest& present) {
  if (made_from_[p] && *made_from_[p] == present) return;
  pack(static_cast<int>(p));
  made_from_[p] = present;
}

}  // namespace lockstep
