#include "lockstep/engine/kernels/pooling.h"

#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/lanes_layout.h"
#include "lockstep/engine/kernels/cpu/lanes_pooling.h"
#include "lockstep/engine/kernels/cpu/onednn.h"

namespace lockstep::kernels::cpu {

Kernel pooling(const PoolingProblem& p) {
  if (pools_in_lanes(p)) return lanes_pooling(p);
  SingleThread one;
  using dnnl::algorithm, dnnl::prop_kind;
  const bool max = p.kind == PoolingProblem::Kind::max;
  const auto how = max ? algorithm::pooling_max
                   : p.kind == PoolingProblem::Kind::average_with_padding
                       ? algorithm::pooling_avg_include_padding
                       : algorithm::pooling_avg_exclude_padding;
  const WindowDims window(p.window);
  const auto &strides = window.strides, &kernel_dims = window.kernel, &dilates = window.dilates,
             &pad_l = window.pad_begin, &pad_r = window.pad_end;
  // oneDNN has nothing fast for images in lanes.
  const TensorSpec src_spec = in_lanes(p.src) ? p.src.plain() : p.src;
  const auto src = desc_of(src_spec);
  const auto forward =
      describe<PoolingForward>(prop_kind::forward_training, how, src, any_desc(p.dst, p.src.dtype),
                               strides, kernel_dims, dilates, pad_l, pad_r);
  const auto dst = forward.dst_desc();
  const auto backward = describe_backward<PoolingBackward>(forward, how, src, dst, strides,
                                                           kernel_dims, dilates, pad_l, pad_r);
  const TensorSpec dst_spec = spec_of(dst);
  std::vector<Argument> writes{{DNNL_ARG_DST, output(0, dst_spec)}};
  std::vector<Argument> back_reads{{DNNL_ARG_DIFF_DST, diff_output(0, dst_spec)}};
  if (max) {
    // The workspace's layout is the library's own business: raw bytes to us.
    const auto desc = forward.workspace_desc();
    const Operand where{Operand::Kind::workspace,
                        0,
                        {Shape{static_cast<int64_t>(desc.get_size())}, DType::u8, nullptr}};
    writes.push_back({DNNL_ARG_WORKSPACE, where});
    back_reads.push_back({DNNL_ARG_WORKSPACE, where});
  }
  Kernel kernel;
  kernel.forward = primitive_pass(PoolingForward(forward), scratch_of(forward),
                                  {{DNNL_ARG_SRC, input(0, src_spec)}}, writes);
  kernel.backward.push_back(primitive_pass(PoolingBackward(backward), scratch_of(backward),
                                           back_reads,
                                           {{DNNL_ARG_DIFF_SRC, diff_input(0, src_spec)}}));
  return kernel;
}

}  // namespace lockstep::kernels::cpu
