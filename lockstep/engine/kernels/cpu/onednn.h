// Adapts oneDNN. Only this file and onednn.cpp depend on its version: 2.6 (Debian 12) and 3.x
// describe primitives differently, but the primitives do the same.
#pragma once

#include <dnnl.hpp>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/interface/kernel.h"
#include "lockstep/engine/kernels/windows/window.h"

namespace lockstep::kernels::cpu {

// While alive, kernels that this thread creates or runs use one compute thread, as deterministic
// results require. The destructor restores the caller's OpenMP setting.
class SingleThread {
 public:
  SingleThread();
  ~SingleThread();
  SingleThread(const SingleThread&) = delete;
  SingleThread& operator=(const SingleThread&) = delete;

 private:
  int previous_;
};

// Calls `make` and translates oneDNN's exceptions to Unsupported, with `what` in the message. Lack
// of memory becomes std::bad_alloc.
template <class Make>
auto translated(const char* what, Make&& make) {
  try {
    return make();
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory) throw std::bad_alloc();
    throw Unsupported(std::string("[kernels] oneDNN cannot do this ") + what + ": " + e.what());
  }
}

// Whether oneDNN's kernels use this instruction set here. Kernels for AVX2 and AVX-512 also use
// FMA, but oneDNN 2.6 does not ask for it. On a processor that does not report FMA, as under
// hypervisors that hide it, oneDNN is therefore limited to AVX.
bool uses(dnnl_cpu_isa_t set);

dnnl::engine& engine();

// Primitives take their scratchpad from the caller, so that threads can share them.
dnnl::primitive_attr attributes();

// Throws Error unless there is memory for the code that oneDNN generates for a primitive. Without
// memory, oneDNN would end the process.
void check_memory_for_code();
// Makes oneDNN generate the code for products of matrices now, after the same check, instead of at
// the first product.
void prepare_products();

// Primitive descriptor of P, from the arguments that both versions of oneDNN share.
template <class P, class... Args>
typename P::primitive_desc describe(Args&&... args) {
  check_memory_for_code();
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(engine(), std::forward<Args>(args)..., attributes());
#else
  return typename P::primitive_desc(typename P::desc(std::forward<Args>(args)...), attributes(),
                                    engine());
#endif
}

template <class P, class Hint, class... Args>
typename P::primitive_desc describe_backward(const Hint& hint, Args&&... args) {
  check_memory_for_code();
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(engine(), std::forward<Args>(args)..., hint, attributes());
#else
  return typename P::primitive_desc(typename P::desc(std::forward<Args>(args)...), attributes(),
                                    engine(), hint);
#endif
}

#if DNNL_VERSION_MAJOR >= 3
using PoolingForward = dnnl::pooling_forward;
using PoolingBackward = dnnl::pooling_backward;
#else
using PoolingForward = dnnl::pooling_v2_forward;
using PoolingBackward = dnnl::pooling_v2_backward;
#endif

inline dnnl::batch_normalization_forward::primitive_desc describe_batch_normalization(
    dnnl::prop_kind kind, const dnnl::memory::desc& data, float epsilon,
    dnnl::normalization_flags flags) {
#if DNNL_VERSION_MAJOR >= 3
  return describe<dnnl::batch_normalization_forward>(kind, data, data, epsilon, flags);
#else
  return describe<dnnl::batch_normalization_forward>(kind, data, epsilon, flags);
#endif
}

// Convert between Lockstep's specs and oneDNN's descriptors.
dnnl::memory::desc desc_of(const TensorSpec& spec);
TensorSpec spec_of(const dnnl::memory::desc& desc);
// Row-major descriptor of a shape.
dnnl::memory::desc plain_desc(const Shape& shape, DType dtype = DType::f32);
// Descriptor whose layout the primitive chooses.
dnnl::memory::desc any_desc(const Shape& shape, DType dtype = DType::f32);
// Whether the processor has instructions for bf16. Without them oneDNN would emulate bf16, and no
// other kernel supports it.
bool computes_bf16();
// Of f32; of bf16 only if computes_bf16().
dnnl::memory::data_type data_type(DType dtype);
dnnl::memory::dims dims_of(const Shape& shape);
// A window's parameters by axis, with oneDNN's dilation that starts at 0.
struct WindowDims {
  explicit WindowDims(const Window& window);
  dnnl::memory::dims kernel, strides, dilates, pad_begin, pad_end;
};

// Whether oneDNN may leave gradients of weights unwritten when it convolves `image` to `result` in
// bf16 (n x c x space each). Unwritten elements keep whatever the memory held. backward_weights of
// oneDNN 2.6 for AVX-512 BF16 does this in two known cases. In the first case, the result has one
// column, the column stride exceeds 1, and a column of the window meets only padding. This function
// treats rows and depth in the same way, although no failure is known there. In f32, gradients of
// such weights are exactly 0. The second case occurs in three dimensions, if depth is strided and a
// window extends beyond it (seen for 33 channels, depth 4, kernel 3, stride 3, padding 1).
bool leaves_gradients_unwritten(const Window& window, const Shape& image, const Shape& result);

// Whether oneDNN 2.6 cannot compute the gradient of a convolution's weights in bf16: it leaves
// gradients unwritten, or does not finish making the primitive. The second case occurs with AMX for
// windows of 3 columns with stride 1 and results of more than 736 columns and several rows. This
// function treats all windows of several columns in the same way.
bool weights_gradient_fails_in_bf16(const Window& window, const Shape& image, const Shape& result);

// Whether oneDNN's reorder may write beyond its destination. The generic kernel of 2.6 iterates up
// to the source's padded size of a dimension, even if a blocked destination has less padding. Seen
// for weights of 2 filters from blocks of 16 x 16 to blocks of 16 x 2.
bool may_write_beyond(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

// Whether oneDNN's reorder may leave elements of its destination unwritten. If the contiguous runs
// of the destination are long for the first cache, 2.6 changes the order of its loops, and can put
// the loop over the blocks of a dimension inside the loop over the elements of a block. Every block
// is then treated as if it were as short as the last one. Seen for gradients of the weights of an
// inner product after images of more than 8 channels, no multiple of 8, from 6,144 positions on.
bool may_leave_unwritten(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

// The layout changes, one after the other, by which oneDNN writes all elements and all padding of
// the destination: usually one. Otherwise the whole blocks of a dimension are separated from the
// last, partial block, so that no change has both. Only if !may_write_beyond(from, to).
std::vector<std::pair<dnnl::memory::desc, dnnl::memory::desc>> sound_reorders(
    const dnnl::memory::desc& from, const dnnl::memory::desc& to);

// One operand of a primitive: oneDNN's argument number and the Lockstep operand.
struct Argument {
  int name;
  Operand operand;
  // Descriptor to use if the primitive sees the memory as another shape.
  std::optional<dnnl::memory::desc> seen_as = {};
};

// A pass that runs one primitive. The workspace may be one of `reads` or of `writes`.
Pass primitive_pass(const dnnl::primitive& primitive, size_t scratch_bytes,
                    std::vector<Argument> reads, std::vector<Argument> writes);

template <class PrimitiveDesc>
size_t scratch_of(const PrimitiveDesc& pd) {
  return pd.scratchpad_desc().get_size();
}

}  // namespace lockstep::kernels::cpu
