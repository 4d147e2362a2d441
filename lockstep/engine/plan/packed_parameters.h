// Copies of parameters in the layouts and types that plans need.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/base/digest.h"
#include "lockstep/base/numeric/index_range.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/kernels/interface/kernel.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// The parameters are on one device and stay row-major: digests cover this form, files store it and
// the solver updates it. Kernels read copies in the layouts they need. The copies are made once per
// iteration and shared by all threads. address() is thread-safe. Several threads may call pack()
// for different parameters while no thread reads copies. On a device other than the CPU, the
// default stream makes the copies.
class PackedParameters {
 public:
  // `parameters`: row-major f32 tensors whose memory must stay valid. Throws InvalidArgument if
  // they are on several devices.
  explicit PackedParameters(std::vector<Tensor> parameters);
  ~PackedParameters();

  int count() const { return static_cast<int>(parameters_.size()); }
  // The device of the parameters; the CPU if there are none.
  Device device() const { return device_; }
  // Returns the address of parameter number `parameter` in layout `spec`, filled with its current
  // elements. `spec` may have another shape with the same elements.
  void* address(int parameter, const TensorSpec& spec);
  // Makes all copies of one parameter (of all parameters) again from the current elements.
  void pack(int parameter) const LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS;
  void pack_all() const;
  // pack_all() on another stream of the device: one pass for each copy that exists now, bound to
  // the stream. number_of_copies() grows when there are more.
  std::vector<kernels::BoundPass> packing(void* stream) const;
  size_t number_of_copies() const;
  // How many elements belong to a part that pack() below can make alone, on the CPU: 1 if there are
  // no copies, 0 if only all elements can be packed together.
  int64_t part(int parameter) const LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS;
  // Makes whole parts of all copies again. All parts must be made, each once. Several threads may
  // make different parts.
  void pack(int parameter, const IndexRange& elements) const LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS;

  // Returns the digest of each parameter's current elements, which are copied to the host first.
  std::vector<Digest> digests() const;
  // Like pack_all(), but on the CPU only for parameters that have changed since their copies were
  // made. `digests`: the current digests. Thread-safe while no thread changes the parameters, also
  // while other threads read copies.
  void refresh(const std::vector<Digest>& digests);
  // The same for one parameter on the CPU, so that several threads can divide the parameters.
  void refresh(int parameter);

 private:
  struct Copy {
    TensorSpec spec;
    Memory memory;
    Memory scratch;
    kernels::BoundPass make;
  };
  void refresh(size_t p, const Digest& present) LOCKSTEP_NO_THREAD_SAFETY_ANALYSIS;

  Device device_;
  std::vector<Tensor> parameters_;
  // Held by address() and refresh() of all parameters. pack() and refresh() of one parameter are
  // not checked: several threads call them at the same time, for different parameters and while no
  // thread calls the others.
  mutable Mutex mutex_;
  std::vector<std::vector<Copy>> copies_ LOCKSTEP_GUARDED_BY(mutex_);
  // Digest of the elements that the copies were made from, if refresh() made them.
  mutable std::vector<std::optional<Digest>> made_from_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
