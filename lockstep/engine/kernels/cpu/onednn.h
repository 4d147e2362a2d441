// The only place that knows which oneDNN this is: 2.6 (Debian 12) and 3.x differ in how primitives
// are described, not in what they do.
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
#include "lockstep/engine/kernels/kernel.h"
#include "lockstep/engine/kernels/window.h"

namespace lockstep::kernels::cpu {

// While alive, kernels created or run by this thread use one compute thread: the number that the
// law fixes. Restores the caller's OpenMP setting.
class SingleThread {
 public:
  SingleThread();
  ~SingleThread();
  SingleThread(const SingleThread&) = delete;
  SingleThread& operator=(const SingleThread&) = delete;

 private:
  int previous_;
};

// Calls `make` and turns what oneDNN throws into Unsupported, naming `what` it could not do.
template <class Make>
auto translated(const char* what, Make&& make) {
  try {
    return make();
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory) throw std::bad_alloc();
    throw Unsupported(std::string("[kernels] oneDNN cannot do this ") + what + ": " + e.what());
  }
}

dnnl::engine& engine();

// Scratchpad from the caller, so that primitives can be shared by threads.
dnnl::primitive_attr attributes();

// oneDNN generates code for each primitive, and ends the process where there is no memory for it.
void require_room_for_code();
// The same for what it generates when it first multiplies matrices: it does so here.
void prepare_products();

// Primitive descriptor of P from the arguments that both generations of oneDNN share.
template <class P, class... Args>
typename P::primitive_desc describe(Args&&... args) {
  require_room_for_code();
#if DNNL_VERSION_MAJOR >= 3
  return typename P::primitive_desc(engine(), std::forward<Args>(args)..., attributes());
#else
  return typename P::primitive_desc(typename P::desc(std::forward<Args>(args)...), attributes(),
                                    engine());
#endif
}

template <class P, class Hint, class... Args>
typename P::primitive_desc describe_backward(const Hint& hint, Args&&... args) {
  require_room_for_code();
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

// Between Lockstep's specs and oneDNN's descriptors.
dnnl::memory::desc desc_of(const TensorSpec& spec);
TensorSpec spec_of(const dnnl::memory::desc& desc);
// Row-major descriptor of a shape.
dnnl::memory::desc plain_desc(const Shape& shape, DType dtype = DType::f32);
// Descriptor whose layout the primitive chooses.
dnnl::memory::desc any_desc(const Shape& shape, DType dtype = DType::f32);
// Whether the processor has instructions for bf16; elsewhere oneDNN would emulate it, and nothing
// else has kernels.
bool computes_bf16();
// Of f32, or bf16 where the processor computes with it.
dnnl::memory::data_type data_type(DType dtype);
dnnl::memory::dims dims_of(const Shape& shape);
// A window's numbers for its axes; oneDNN counts dilation from 0.
struct WindowDims {
  explicit WindowDims(const Window& window);
  dnnl::memory::dims kernel, strides, dilates, pad_begin, pad_end;
};

// Whether oneDNN may leave gradients of weights unwritten when it convolves `image` to `result` in
// bf16 (n x c x space each). 2.6's backward_weights for AVX-512 BF16 does where a result has one
// column, columns are more than 1 apart, and a column of the window meets only padding: what is
// read then is whatever the memory held. Rows and depth are kept from it too: there it was not
// seen, but nothing says that it cannot be. Gradients of such weights are exact zeros in f32. In
// three dimensions it does, too, where depth is strided and a window reaches beyond it (seen for 33
// channels, depth 4, kernel 3, stride 3, padding 1).
bool leaves_gradients_unwritten(const Window& window, const Shape& image, const Shape& result);

// Whether oneDNN's change of layout may write beyond its destination: 2.6's generic kernel counts to
// the source's padding along a dimension that the destination, with blocks, pads less. Seen where
// weights of 2 filters go from blocks of 16 x 16 to blocks of 16 x 2.
bool may_write_beyond(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

// One operand of a primitive: oneDNN's name for it and the Lockstep operand.
struct Argument {
  int name;
  Operand operand;
  // Where the primitive sees that memory as another shape.
  std::optional<dnnl::memory::desc> seen_as = {};
};

// A pass that runs one primitive. The workspace operand may stand among reads or writes.
Pass primitive_pass(const dnnl::primitive& primitive, size_t scratch_bytes,
                    std::vector<Argument> reads, std::vector<Argument> writes);

template <class PrimitiveDesc>
size_t scratch_of(const PrimitiveDesc& pd) {
  return pd.scratchpad_desc().get_size();
}

}  // namespace lockstep::kernels::cpu
