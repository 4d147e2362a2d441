#include "lockstep/engine/kernels/windows/pooling.h"

#include <algorithm>

#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/pooling.h"
#include "lockstep/engine/kernels/cpu/normalization/channel_sums.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {
namespace {

// Averages of larger windows are computed here in double, because oneDNN sums a window's elements
// sequentially in f32.
constexpr int64_t kMostAveragedInF32 = 64;
// Most elements of a window whose maximum oneDNN keeps the index of in a byte.
constexpr int64_t kMostElementsInByte = 255;

int64_t elements_of(const Sizes& sizes) {
  int64_t elements = 1;
  for (int64_t size : sizes) elements *= size;
  return elements;
}

constexpr size_t kAxes = kMostAxes;

// Sizes of depth, rows and columns. Axes that the window does not have get `missing`.
struct Box {
  int64_t size[kAxes];
  int64_t operator[](size_t axis) const { return size[axis]; }
};
Box box_of(const Sizes& sizes, int64_t missing) {
  Box box{{missing, missing, missing}};
  const auto skipped = static_cast<size_t>(kMostAxes - sizes.axes());
  for (size_t a = skipped; a < kAxes; ++a) box.size[a] = sizes[a - skipped];
  return box;
}
Sizes space_of(const Shape& shape) {
  switch (shape.rank()) {
    case 3:
      return {shape[2]};
    case 4:
      return {shape[2], shape[3]};
    default:
      return {shape[2], shape[3], shape[4]};
  }
}

// Averages over windows, with sums in double.
class Averages {
 public:
  Averages(const PoolingProblem& p, const ChannelLayout& from)
      : from_(from),
        planes_(from.n * from.blocks()),
        with_padding_(p.kind == PoolingProblem::Kind::average_with_padding),
        size_(box_of(space_of(p.src.shape), 1)),
        results_(box_of(space_of(p.dst), 1)),
        kernel_(box_of(p.window.kernel, 1)),
        stride_(box_of(p.window.stride, 1)),
        pad_(box_of(p.window.pad_begin, 0)) {}

  size_t scratch() const { return static_cast<size_t>(from_.block) * sizeof(double); }

  template <class T>
  void run(const T* x, T* y, double* totals) const {
    for (int64_t plane = 0; plane < planes_; ++plane) {
      for (int64_t z = 0; z < results_[0]; ++z) {
        for (int64_t r = 0; r < results_[1]; ++r) {
          for (int64_t c = 0; c < results_[2]; ++c, y += from_.block) {
            average(x, range(0, z), range(1, r), range(2, c), totals, y);
          }
        }
      }
      x += from_.space * from_.block;
    }
  }

 private:
  struct Range {
    int64_t begin, end;
    int64_t count() const { return end - begin; }
  };
  // Range of the elements along an axis that a window contains.
  Range range(size_t axis, int64_t position) const {
    const int64_t first = position * stride_[axis] - pad_[axis];
    const int64_t begin = std::max<int64_t>(first, 0);
    return {begin, std::max(begin, std::min(first + kernel_[axis], size_[axis]))};
  }

  template <class T>
  void average(const T* x, const Range& depth, const Range& rows, const Range& columns,
               double* totals, T* y) const {
    std::fill_n(totals, from_.block, 0.0);
    // Whole rows are contiguous.
    const bool whole = columns.count() == size_[2];
    for (int64_t z = depth.begin; z < depth.end; ++z) {
      for (int64_t r = rows.begin; r < rows.end; r += whole ? rows.count() : 1) {
        const int64_t at = (z * size_[1] + r) * size_[2] + columns.begin;
        add_positions(x + at * from_.block, columns.count() * (whole ? rows.count() : 1),
                      from_.block, totals);
      }
    }
    const int64_t inside = depth.count() * rows.count() * columns.count();
    const auto count =
        static_cast<double>(with_padding_ ? kernel_[0] * kernel_[1] * kernel_[2] : inside);
    for (int64_t c = 0; c < from_.block; ++c) {
      const auto mean = static_cast<float>(totals[c] / count);
      if constexpr (sizeof(T) == sizeof(float)) {
        y[c] = mean;
      } else {
        y[c] = to_bfloat16(mean);
      }
    }
  }

  const ChannelLayout from_;
  const int64_t planes_;
  const bool with_padding_;
  const Box size_, results_, kernel_, stride_, pad_;
};

// Uses the layouts of oneDNN's passes if channel_layout() supports them, else row-major memory.
Pass averages(const PoolingProblem& p, TensorSpec src, TensorSpec dst) {
  ChannelLayout from = channel_layout(src);
  if (from.block != channel_layout(dst).block) {
    src = src.plain();
    dst = dst.plain();
    from = channel_layout(src);
  }
  const Averages made(p, from);
  return own_pass_with_scratch(
      {input(0, src)}, {output(0, dst)}, made.scratch(),
      [made, type = src.dtype](void* const* r, void* const* w, void* scratch) {
        with_elements(type, [&]<class T>(T*) {
          made.run(in<T>(r, 0), out<T>(w, 0), static_cast<double*>(scratch));
        });
      });
}

Kernel make_pooling(const PoolingProblem& p) {
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
  // oneDNN has no fast kernel for images in lanes. In blocked layouts of bf16 it puts the gradients
  // of maximums of large windows to wrong elements (oneDNN 2.6 with AVX-512).
  const bool misplaced =
      max && is_narrow(p.src.dtype) && elements_of(p.window.kernel) > kMostElementsInByte;
  const TensorSpec src_spec = in_lanes(p.src) || misplaced ? p.src.plain() : p.src;
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
    // The workspace's layout is internal to the library, so it is declared as bytes.
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
  if (!max && elements_of(p.window.kernel) > kMostAveragedInF32) {
    kernel.forward = averages(p, src_spec, dst_spec);
  }
  return kernel;
}

}  // namespace

Kernel pooling(const PoolingProblem& p) {
  return translated("pooling", [&] { return make_pooling(p); });
}

}  // namespace lockstep::kernels::cpu
