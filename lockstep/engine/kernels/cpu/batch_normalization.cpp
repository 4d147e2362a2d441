#include "lockstep/engine/kernels/batch_normalization.h"

#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/onednn.h"

namespace lockstep::kernels::cpu {

Kernel batch_normalization(const BatchNormalizationProblem& p) {
  SingleThread one;
  using dnnl::normalization_flags, dnnl::prop_kind;
  const int64_t c = p.src.shape[1];
  // oneDNN wants spatial dimensions: row-major n x c is n x c x 1 x 1 with channels last.
  const bool flat = p.src.shape.rank() == 2;
  const TensorSpec src = flat ? p.src.plain() : p.src;
  const auto data = flat ? dnnl::memory::desc({src.shape[0], c, 1, 1}, dnnl::memory::data_type::f32,
                                              dnnl::memory::format_tag::nhwc)
                         : desc_of(src);
  const TensorSpec per_channel{Shape{c}, DType::f32, nullptr};
  auto flags = normalization_flags::use_scale | normalization_flags::use_shift;
  if (p.relu) flags = flags | normalization_flags::fuse_norm_relu;
  if (!p.training) flags = flags | normalization_flags::use_global_stats;
  const auto epsilon = static_cast<float>(p.epsilon);
  // forward_training even with global statistics: the backward pass needs its workspace.
  const auto forward =
      describe_batch_normalization(prop_kind::forward_training, data, epsilon, flags);
  const auto backward = describe_batch_normalization_backward(forward, data, epsilon, flags);

  std::vector<Argument> reads{{DNNL_ARG_SRC, input(0, src), data},
                              {DNNL_ARG_SCALE, input(1, per_channel)},
                              {DNNL_ARG_SHIFT, input(2, per_channel)}};
  std::vector<Argument> writes{{DNNL_ARG_DST, output(0, src), data}};
  std::vector<Argument> back_reads{{DNNL_ARG_SRC, input(0, src), data},
                                   {DNNL_ARG_DIFF_DST, diff_output(0, src), data},
                                   {DNNL_ARG_SCALE, input(1, per_channel)},
                                   {DNNL_ARG_SHIFT, input(2, per_channel)}};
  auto& statistics = p.training ? writes : reads;
  const auto mean = p.training ? output(1, per_channel) : input(3, per_channel);
  const auto variance = p.training ? output(2, per_channel) : input(4, per_channel);
  statistics.push_back({DNNL_ARG_MEAN, mean});
  statistics.push_back({DNNL_ARG_VARIANCE, variance});
  back_reads.push_back({DNNL_ARG_MEAN, mean});
  back_reads.push_back({DNNL_ARG_VARIANCE, variance});
  if (p.relu) {
    const Operand marks = workspace(forward.workspace_desc().get_size());
    writes.push_back({DNNL_ARG_WORKSPACE, marks});
    back_reads.push_back({DNNL_ARG_WORKSPACE, marks});
  }
  Kernel kernel;
  kernel.forward = primitive_pass(dnnl::batch_normalization_forward(forward), scratch_of(forward),
                                  reads, writes);
  kernel.backward.push_back(primitive_pass(dnnl::batch_normalization_backward(backward),
                                           scratch_of(backward), back_reads,
                                           {{DNNL_ARG_DIFF_SRC, diff_input(0, src), data},
                                            {DNNL_ARG_DIFF_SCALE, diff_input(1, per_channel)},
                                            {DNNL_ARG_DIFF_SHIFT, diff_input(2, per_channel)}}));
  return kernel;
}

}  // namespace lockstep::kernels::cpu
