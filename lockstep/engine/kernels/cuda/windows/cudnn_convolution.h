// A convolution with cuDNN, and its two gradients. Transposed convolution uses the same three
// passes.
#pragma once

#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/cuda/elementwise/bias.h"
#include "lockstep/engine/kernels/cuda/libraries.h"
#include "lockstep/engine/kernels/cuda/windows/data_gradient.h"
#include "lockstep/engine/kernels/cuda/windows/padding.h"
#include "lockstep/engine/kernels/windows/window.h"

namespace lockstep::kernels::cuda {

// y = x convolved with w.
struct ConvolutionGeometry {
  Shape x, w, y;  // n x c x space; k x c/groups x kernel; n x k x space
  Window window;
  int64_t groups = 1;
  DType dtype = DType::f32;  // of x, w and y: f32, bf16 or f16
};

// The constructor makes descriptors and chooses algorithms. Immutable afterwards, so threads can
// share it, each with its own scratch memory. Algorithms come from cuDNN's heuristics, never from
// timing: the first that is deterministic (unless set_deterministic(false)), uses the chosen
// arithmetic, and needs at most kMostLibraryScratch. The choice depends only on the problem, the
// device and the library's version.
class CudnnConvolution {
 public:
  // Uses channels last. If cuDNN does not support all three passes for that, uses row-major memory.
  // If it supports neither for bf16 or f16, uses f32. If cuDNN lacks only the gradient of x in all
  // of these, a kernel of this project computes it. Throws Unsupported if nothing works.
  static std::shared_ptr<const CudnnConvolution> make(const ConvolutionGeometry& geometry);
  ~CudnnConvolution();
  CudnnConvolution(const CudnnConvolution&) = delete;
  CudnnConvolution& operator=(const CudnnConvolution&) = delete;

  const TensorSpec& x() const { return x_; }
  const TensorSpec& w() const { return w_; }
  const TensorSpec& y() const { return y_; }
  DType dtype() const { return x_.dtype; }
  // Gradients of weights are f32. For bf16 or f16 operands they are first rounded to that type.
  TensorSpec diff_w() const;
  // Positions of the channels of x or y, for the bias.
  ChannelLayout channel_layout(const TensorSpec& activations) const;

  struct Scratch {
    size_t forward = 0, data = 0, weights = 0;
  };
  const Scratch& scratch() const { return scratch_; }

  // All pointers are to the device's memory, with elements of dtype(). `scratch` has the bytes
  // given above.
  void forward(const void* x, const void* w, void* y, void* scratch, void* stream) const;
  void data(const void* w, const void* dy, void* dx, void* scratch, void* stream) const;
  void weights(const void* x, const void* dy, float* dw, void* scratch, void* stream) const;

 private:
  // Who computes the gradient of x.
  enum class DataBy { cudnn, own };
  CudnnConvolution(const ConvolutionGeometry& geometry, cudnnTensorFormat_t format, DataBy data_by);
  struct Descriptors;
  const void* padded(const void* x, size_t workspace, void* scratch, void* stream) const;

  TensorSpec x_, w_, y_;
  cudnnTensorFormat_t format_;
  // cuDNN pads both sides equally. Additional padding on one side is added explicitly, in scratch.
  Volumes volumes_;
  Frame frame_;
  size_t framed_bytes_ = 0, narrow_bytes_ = 0;  // of padded x; of dw in bf16 or f16
  Scratch workspace_, scratch_;                 // cuDNN's workspace; with the above added
  std::unique_ptr<Descriptors> descriptors_;
  // For DataBy::own. It needs no frame.
  DataBy data_by_;
  StridedTensor strided_w_, strided_y_, strided_x_;
  WindowOfThree window_;
  int64_t groups_ = 1;
};

}  // namespace lockstep::kernels::cuda
