// A convolution by cuDNN and its two gradients. A transposed convolution is made of the same three.
#pragma once

#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/cuda/bias.h"
#include "lockstep/engine/kernels/cuda/libraries.h"
#include "lockstep/engine/kernels/cuda/padding.h"
#include "lockstep/engine/kernels/window.h"

namespace lockstep::kernels::cuda {

// y = x convolved with w.
struct ConvolutionGeometry {
  Shape x, w, y;  // n x c x space; k x c/groups x kernel; n x k x space
  Window window;
  int64_t groups = 1;
  DType dtype = DType::f32;  // of all three; or bf16, f16
};

// Descriptors are made and algorithms chosen at construction; immutable afterwards, so threads
// share it, each with its own scratch. Algorithms come from cuDNN's heuristics, never from timing:
// the first that is deterministic (unless set_deterministic(false)), uses the arithmetic that was
// set, and needs no more than kMostLibraryScratch. So the choice is a function of the problem, the
// device and the library's version.
class CudnnConvolution {
 public:
  // With channels last; where cuDNN has not all three passes for that, row-major; where it has
  // neither for bf16 or f16, f32. Throws Unsupported where it has nothing.
  static std::shared_ptr<const CudnnConvolution> make(const ConvolutionGeometry& geometry);
  ~CudnnConvolution();
  CudnnConvolution(const CudnnConvolution&) = delete;
  CudnnConvolution& operator=(const CudnnConvolution&) = delete;

  const TensorSpec& x() const { return x_; }
  const TensorSpec& w() const { return w_; }
  const TensorSpec& y() const { return y_; }
  DType dtype() const { return x_.dtype; }
  // Gradients of weights are f32, rounded to bf16 or f16 on the way where that is multiplied.
  TensorSpec diff_w() const;
  // Where the channels of x and y lie, for the bias.
  ChannelPlaces places(const TensorSpec& activations) const;

  struct Scratch {
    size_t forward = 0, data = 0, weights = 0;
  };
  const Scratch& scratch() const { return scratch_; }

  // All pointers into the device's memory, to elements of dtype(); `scratch` holds the bytes above.
  void forward(const void* x, const void* w, void* y, void* scratch, void* queue) const;
  void data(const void* w, const void* dy, void* dx, void* scratch, void* queue) const;
  void weights(const void* x, const void* dy, float* dw, void* scratch, void* queue) const;

 private:
  CudnnConvolution(const ConvolutionGeometry& geometry, cudnnTensorFormat_t format);
  struct Descriptors;
  const void* padded(const void* x, size_t workspace, void* scratch, void* queue) const;

  TensorSpec x_, w_, y_;
  cudnnTensorFormat_t format_;
  // cuDNN pads alike on both sides; what is more on one side is added by hand, in scratch.
  Volumes volumes_;
  Frame frame_;
  size_t framed_bytes_ = 0, narrow_bytes_ = 0;  // the padded x, the narrow gradient of weights
  Scratch workspace_, scratch_;                 // cuDNN's own, and with these behind it
  std::unique_ptr<Descriptors> descriptors_;
};

}  // namespace lockstep::kernels::cuda
