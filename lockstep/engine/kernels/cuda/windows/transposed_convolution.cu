#include "lockstep/engine/kernels/cuda/elements.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/cuda/windows/cudnn_convolution.h"
#include "lockstep/engine/kernels/windows/transposed_convolution.h"

namespace lockstep::kernels::cuda {

// The backward passes of the convolution that reads dst and writes src.
Kernel transposed_convolution(const TransposedConvolutionProblem& p) {
  const auto conv =
      CudnnConvolution::make({p.dst, p.weights, p.src.shape, p.window, p.groups, p.src.dtype});
  const TensorSpec &src = conv->y(), &dst = conv->x();
  const TensorSpec bias = plain_spec(Shape{p.dst[1]});
  const ChannelLayout layout = conv->channel_layout(dst);
  const bool biased = p.bias;
  Kernel kernel;
  std::vector<Operand> reads{input(0, src), input(1, conv->w())};
  std::vector<Operand> gradients{diff_input(1, conv->diff_w())};
  if (biased) {
    reads.push_back(input(2, bias));
    gradients.push_back(diff_input(2, bias));
  }
  kernel.forward = with_cudnn(own_pass(
      reads, {output(0, dst)},
      [=](const Bound& b) {
        conv->data(b.in(1), b.in(0), b.out(0), b.scratch, b.stream);
        if (!biased) return;
        for_elements(conv->dtype(),
                     [&]<class T>(T) { launch_bias(layout, b.in(2), b.out<T>(0), b.stream); });
      },
      conv->scratch().data));
  kernel.backward.push_back(with_cudnn(own_pass(
      {diff_output(0, dst), input(1, conv->w())}, {diff_input(0, src)},
      [=](const Bound& b) { conv->forward(b.in(0), b.in(1), b.out(0), b.scratch, b.stream); },
      conv->scratch().forward)));
  // Both gradients share the scratch memory, because they run one after the other on the stream.
  kernel.backward.push_back(with_cudnn(own_pass(
      {input(0, src), diff_output(0, dst)}, gradients,
      [=](const Bound& b) {
        conv->weights(b.in(1), b.in(0), b.out(0), b.scratch, b.stream);
        if (!biased) return;
        for_elements(conv->dtype(), [&]<class T>(T) {
          launch_bias_gradient(layout, b.in<T>(1), b.out(1), b.scratch, b.stream);
        });
      },
      std::max(conv->scratch().weights,
               biased ? bias_gradient_scratch(layout, conv->dtype()) : 0))));
  return kernel;
}

}  // namespace lockstep::kernels::cuda
