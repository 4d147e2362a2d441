#include "lockstep/engine/kernels/batch_normalization.h"

#include "lockstep/engine/kernels/cpu/blocked_normalization.h"
#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/lanes_layout.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {
namespace {

dnnl::memory::desc blocked_desc(const Shape& shape, int64_t block, DType type) {
  using Tag = dnnl::memory::format_tag;
  return {dims_of(shape), data_type(type), block == 16 ? Tag::nChw16c : Tag::nChw8c};
}

// The block of channels that images have, or that this processor's convolutions give them.
int64_t block_of(const TensorSpec& images) {
  for (int64_t block : {16, 8}) {
    if (desc_of(images) == blocked_desc(images.shape, block, images.dtype)) return block;
  }
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto wide = static_cast<unsigned>(dnnl_cpu_isa_avx512_core);
  return (isa & wide) == wide ? 16 : 8;
}

// With the maximum over windows, or of images in lanes: oneDNN has nothing.
Kernel own_normalization(const BatchNormalizationProblem& p) {
  const Shape& x = p.src.shape;
  const auto [rows, columns] = p.max_pool.value_or(Size2d{1, 1});
  const bool lanes = in_lanes(p.src);
  const BlockedNormalization images{.n = x[0],
                                    .channels = x[1],
                                    .rows = x[2],
                                    .columns = x[3],
                                    .block = lanes ? x[0] : block_of(p.src),
                                    .images_in_lanes = lanes,
                                    .window_rows = rows,
                                    .window_columns = columns,
                                    .epsilon = static_cast<float>(p.epsilon),
                                    .dtype = p.src.dtype,
                                    .relu = p.relu,
                                    .training = p.training};
  const Shape result{x[0], x[1], images.result_rows(), images.result_columns()};
  const auto laid_out = [&](const Shape& shape) {
    return lanes ? lanes_spec(shape, images.dtype)
                 : spec_of(blocked_desc(shape, images.block, images.dtype));
  };
  const TensorSpec src = laid_out(x), dst = laid_out(result), per_channel = plain_spec(Shape{x[1]});
  const auto marks = static_cast<size_t>(images.marks());
  const Operand mean = p.training ? output(1, per_channel) : input(3, per_channel);
  const Operand variance = p.training ? output(2, per_channel) : input(4, per_channel);
  std::vector<Operand> reads{input(0, src), input(1, per_channel), input(2, per_channel)},
      writes{output(0, dst)},
      back_reads{
          input(0, src), diff_output(0, dst), input(1, per_channel), input(2, per_channel), mean,
          variance};
  auto& statistics = p.training ? writes : reads;
  statistics.push_back(mean);
  statistics.push_back(variance);
  if (marks > 0) {
    writes.push_back(workspace(marks));
    back_reads.push_back(workspace(marks));
  }
  Kernel kernel;
  if (p.training) {
    kernel.forward =
        own_pass(reads, writes, [images, marks](void* const* r, void* const* w, const StepInfo&) {
          blocked_normalization(images, r[0], in(r, 1), in(r, 2), out(w, 1), out(w, 2), w[0],
                                marks > 0 ? out<uint8_t>(w, 3) : nullptr);
        });
  } else {
    kernel.forward =
        own_pass(reads, writes, [images, marks](void* const* r, void* const* w, const StepInfo&) {
          blocked_normalization_with(images, r[0], in(r, 1), in(r, 2), in(r, 3), in(r, 4), w[0],
                                     marks > 0 ? out<uint8_t>(w, 1) : nullptr);
        });
    if (marks == 0) kernel.forward.in_place = {0};
  }
  kernel.backward.push_back(own_pass(
      back_reads, {diff_input(0, src), diff_input(1, per_channel), diff_input(2, per_channel)},
      [images, marks](void* const* r, void* const* w, const StepInfo&) {
        blocked_normalization_backward(images, r[0], r[1], in(r, 2), in(r, 3), in(r, 4), in(r, 5),
                                       marks > 0 ? in<uint8_t>(r, 6) : nullptr, w[0], out(w, 1),
                                       out(w, 2));
      }));
  kernel.backward.back().in_place = {1, 0};
  return kernel;
}

}  // namespace

Kernel batch_normalization(const BatchNormalizationProblem& p) {
  if (p.max_pool || in_lanes(p.src)) return own_normalization(p);
  SingleThread one;
  using dnnl::normalization_flags, dnnl::prop_kind;
  const int64_t c = p.src.shape[1];
  // oneDNN wants spatial dimensions: row-major n x c is n x c x 1 x 1 with channels last.
  const bool flat = p.src.shape.rank() == 2;
  const TensorSpec src = flat ? p.src.plain() : p.src;
  const auto data = flat ? dnnl::memory::desc({src.shape[0], c, 1, 1}, data_type(src.dtype),
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
