#include "lockstep/engine/kernels/normalization/batch_normalization.h"

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/kernels/cpu/normalization/blocked_normalization.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {
namespace {

// Descriptor with channels in blocks, for any number of axes.
dnnl::memory::desc blocked_desc(const Shape& shape, int64_t block, DType type) {
  using Tag = dnnl::memory::format_tag;
  constexpr Tag of_16[] = {Tag::aBc16b, Tag::aBcd16b, Tag::aBcde16b},
                of_8[] = {Tag::aBc8b, Tag::aBcd8b, Tag::aBcde8b};
  const bool flat = shape.rank() == 2;  // has no format tag
  const dnnl::memory::dims dims = flat ? dnnl::memory::dims{shape[0], shape[1], 1} : dims_of(shape);
  const dnnl::memory::desc desc(dims, data_type(type),
                                (block == 16 ? of_16 : of_8)[dims.size() - 3]);
  return flat ? desc.reshape(dims_of(shape)) : desc;
}

// Rows of an image for this project's kernels, which merge all spatial axes but the last.
int64_t rows_of(const Shape& shape) {
  int64_t rows = 1;
  for (int axis = 2; axis + 1 < shape.rank(); ++axis) rows *= shape[axis];
  return rows;
}

// The images' block of channels. For other layouts, the block that convolutions of this processor
// use.
int64_t block_of(const TensorSpec& images) {
  for (int64_t block : {16, 8}) {
    if (desc_of(images) == blocked_desc(images.shape, block, images.dtype)) return block;
  }
  return uses(dnnl_cpu_isa_avx512_core) ? 16 : 8;
}

// Whether row-major n x channels is equivalent to one block.
bool fills_vectors(const TensorSpec& spec) {
  return spec.shape.rank() == 2 && spec.row_major() &&
         (spec.shape[1] == 8 || spec.shape[1] % 16 == 0);
}

// The problem as this project's kernels see it. Rows of channels that fill vectors become the
// columns of one image.
BlockedNormalization images_of(const BatchNormalizationProblem& p) {
  const Shape& x = p.src.shape;
  const auto [rows, columns] = p.max_pool.value_or(Size2d{1, 1});
  BlockedNormalization images{.n = x[0],
                              .channels = x[1],
                              .rows = rows_of(x),
                              .columns = x.rank() > 2 ? x[x.rank() - 1] : 1,
                              .window_rows = rows,
                              .window_columns = columns,
                              .epsilon = static_cast<float>(p.epsilon),
                              .dtype = p.src.dtype,
                              .relu = p.relu,
                              .training = p.training};
  if (in_lanes(p.src)) {
    images.images_in_lanes = true;
    images.block = x[0];
  } else if (fills_vectors(p.src)) {
    images.columns = x[0];
    images.n = 1;
    images.block = x[1];
  } else {
    images.block = block_of(p.src);
  }
  return images;
}

// Kernels of this project. oneDNN sums the elements of a channel one by one in f32: after a ReLU of
// 16 images of 28 x 28, the variance was 5e-5 off. oneDNN also has no kernel with pooling, or for
// images in lanes.
Kernel own_normalization(const BatchNormalizationProblem& p) {
  const Shape& x = p.src.shape;
  const bool lanes = in_lanes(p.src), flat = fills_vectors(p.src);
  const BlockedNormalization images = images_of(p);
  const Shape result =
      p.max_pool ? Shape{x[0], x[1], images.result_rows(), images.result_columns()} : x;
  const auto laid_out = [&](const Shape& shape) {
    return lanes  ? lanes_spec(shape, images.dtype)
           : flat ? plain_spec(shape, images.dtype)
                  : spec_of(blocked_desc(shape, images.block, images.dtype));
  };
  const TensorSpec src = laid_out(x), dst = laid_out(result), per_channel = plain_spec(Shape{x[1]});
  const auto marks = static_cast<size_t>(images.marks());
  // In training, the rest of each channel's mean comes before the marks.
  const size_t rests = p.training ? round_up(static_cast<size_t>(x[1]) * sizeof(float)) : 0;
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
  if (marks + rests > 0) {
    writes.push_back(workspace(marks + rests));
    back_reads.push_back(workspace(marks + rests));
  }
  Kernel kernel;
  if (p.training) {
    kernel.forward =
        own_pass(reads, writes, [=](void* const* r, void* const* w, const RandomContext&) {
          blocked_normalization(images, r[0], in(r, 1), in(r, 2), out(w, 1), out(w, 2), out(w, 3),
                                w[0], marks > 0 ? out<uint8_t>(w, 3) + rests : nullptr);
        });
  } else {
    kernel.forward = own_pass(
        reads, writes, [images, marks](void* const* r, void* const* w, const RandomContext&) {
          blocked_normalization_with(images, r[0], in(r, 1), in(r, 2), in(r, 3), in(r, 4), w[0],
                                     marks > 0 ? out<uint8_t>(w, 1) : nullptr);
        });
    if (marks == 0) kernel.forward.in_place = {0};
  }
  kernel.backward.push_back(own_pass(
      back_reads, {diff_input(0, src), diff_input(1, per_channel), diff_input(2, per_channel)},
      [=](void* const* r, void* const* w, const RandomContext&) {
        blocked_normalization_backward(images, r[0], r[1], in(r, 2), in(r, 3), in(r, 4), in(r, 5),
                                       rests > 0 ? in(r, 6) : nullptr,
                                       marks > 0 ? in<uint8_t>(r, 6) + rests : nullptr, w[0],
                                       out(w, 1), out(w, 2));
      }));
  kernel.backward.back().in_place = {1, 0};
  return kernel;
}

// Forward pass of oneDNN with given statistics.
Pass given_statistics(const BatchNormalizationProblem& p) {
  SingleThread one;
  using dnnl::normalization_flags;
  const int64_t c = p.src.shape[1];
  // oneDNN requires spatial dimensions: row-major n x c equals n x c x 1 x 1 with channels last.
  const bool flat = p.src.shape.rank() == 2;
  const TensorSpec src = flat ? p.src.plain() : p.src;
  const auto data = flat ? dnnl::memory::desc({src.shape[0], c, 1, 1}, data_type(src.dtype),
                                              dnnl::memory::format_tag::nhwc)
                         : desc_of(src);
  const TensorSpec per_channel{Shape{c}, DType::f32, nullptr};
  auto flags = normalization_flags::use_scale | normalization_flags::use_shift |
               normalization_flags::use_global_stats;
  if (p.relu) flags = flags | normalization_flags::fuse_norm_relu;
  const auto forward = describe_batch_normalization(dnnl::prop_kind::forward_training, data,
                                                    static_cast<float>(p.epsilon), flags);
  std::vector<Argument> writes{{DNNL_ARG_DST, output(0, src), data}};
  if (p.relu) {
    writes.push_back({DNNL_ARG_WORKSPACE, workspace(forward.workspace_desc().get_size())});
  }
  return primitive_pass(dnnl::batch_normalization_forward(forward), scratch_of(forward),
                        {{DNNL_ARG_SRC, input(0, src), data},
                         {DNNL_ARG_SCALE, input(1, per_channel)},
                         {DNNL_ARG_SHIFT, input(2, per_channel)},
                         {DNNL_ARG_MEAN, input(3, per_channel)},
                         {DNNL_ARG_VARIANCE, input(4, per_channel)}},
                        writes);
}

Kernel make_batch_normalization(const BatchNormalizationProblem& p) {
  Kernel kernel = own_normalization(p);
  // With given statistics, forward has no long sums, and oneDNN's kernel is faster.
  if (!p.max_pool && !in_lanes(p.src) && !p.training) kernel.forward = given_statistics(p);
  return kernel;
}

}  // namespace

Kernel batch_normalization(const BatchNormalizationProblem& p) {
  if (p.bias) throw Unsupported("[cpu] batch normalization adds no bias");
  return translated("batch normalization", [&] { return make_batch_normalization(p); });
}

}  // namespace lockstep::kernels::cpu
