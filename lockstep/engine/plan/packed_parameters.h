// Copies of parameters in the layouts and types that plans want.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/engine/kernels/kernel.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// The parameters, all on one device, stay row-major (what the digest covers, what is saved, what
// the solver updates); kernels read copies in whatever layout they like, made once an iteration and
// shared by all threads. Layouts are asked for while plans are compiled (one thread); pack() may
// then be called for different parameters from several threads. On a device other than the CPU
// copies are made by its default queue.
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

 private:
  struct Copy {
    TensorSpec spec;
    Memory memory;
    Memory scratch;
    kernels::BoundPass make;
  };
  Device device_;
  std::vector<Tensor> parameters_;
  std::vector<std::vector<Copy>> copies_;
};

}  // namespace lockstep
