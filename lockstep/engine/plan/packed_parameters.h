// Copies of parameters in the layouts and types that plans want.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/engine/kernels/kernel.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// The parameters, all on one device, stay row-major (what the digest covers, what is saved, what
// the solver updates); kernels read copies in whatever layout they like, made once an iteration and
// shared by all threads. address() is thread-safe; pack() may be called for different parameters
// from several threads while nobody reads copies. On a device other than the CPU copies are made by
// its default queue.
class PackedParameters {
 public:
  // `parameters`: row-major f32 tensors, whose memory must stay. Throws InvalidArgument when they
  // lie on several devices.
  explicit PackedParameters(std::vector<Tensor> parameters);
  ~PackedParameters();

  int count() const { return static_cast<int>(parameters_.size()); }
  // That of the parameters; the CPU where there are none.
  Device device() const { return device_; }
  // Address of parameter number `parameter` in layout `spec` (which may see the same elements as
  // another shape), filled with its present elements.
  void* address(int parameter, const TensorSpec& spec);
  // Makes all copies of one parameter (of all) anew from its present elements.
  void pack(int parameter) const;
  void pack_all() const;

  // Digest of each parameter's present elements; from a device by way of the host.
  std::vector<Digest> digests() const;
  // pack_all(), but on the CPU only for parameters that are not what their copies were made from.
  // `digests`: the present ones. Thread-safe as long as nobody changes the parameters, also while
  // others read copies.
  void refresh(const std::vector<Digest>& digests);
  // The same of one parameter on the CPU, for which several threads share out the parameters.
  void refresh(int parameter);

 private:
  struct Copy {
    TensorSpec spec;
    Memory memory;
    Memory scratch;
    kernels::BoundPass make;
  };
  void refresh(size_t p, const Digest& present);

  Device device_;
  std::vector<Tensor> parameters_;
  std::vector<std::vector<Copy>> copies_;
  // What the copies of each parameter were made from, where refresh() made them.
  mutable std::vector<std::optional<Digest>> made_from_;
  std::mutex mutex_;  // of address() and refresh()
};

}  // namespace lockstep
