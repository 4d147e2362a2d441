#include "lockstep/engine/kernels/cpu/normalization/channel_sums.h"

#include <algorithm>

#include "lockstep/base/numeric/clones.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {
namespace {

// Number of lanes of a sum. Fixed, so that every instruction set gives the same bits.
constexpr int64_t kSumLanes = 16;

LOCKSTEP_INLINE double value_of(float x) { return static_cast<double>(x); }
LOCKSTEP_INLINE double value_of(BFloat16 x) { return static_cast<double>(to_float(x)); }

// For blocks that divide the number of lanes: lanes cover several positions at a time.
template <class T>
LOCKSTEP_INLINE void add_in_lanes(const T* x, int64_t elements, int64_t block, double* totals) {
  double lanes[kSumLanes] = {};
  int64_t i = 0;
  for (; i + kSumLanes <= elements; i += kSumLanes) {
    for (int64_t l = 0; l < kSumLanes; ++l) lanes[l] += value_of(x[i + l]);
  }
  for (int64_t l = 0; i < elements; ++i, ++l) lanes[l] += value_of(x[i]);
  for (int64_t l = 0; l < kSumLanes; ++l) totals[l % block] += lanes[l];
}

template <class T>
LOCKSTEP_INLINE void add_all(const T* x, int64_t count, int64_t block, double* totals) {
  if (kSumLanes % block == 0) {
    add_in_lanes(x, count * block, block, totals);
    return;
  }
  for (int64_t position = 0; position < count; ++position) {
    const T* const from = x + position * block;
    for (int64_t c = 0; c < block; ++c) totals[c] += value_of(from[c]);
  }
}

}  // namespace

LOCKSTEP_CLONES void add_positions(const float* x, int64_t count, int64_t block, double* totals) {
  add_all(x, count, block, totals);
}
LOCKSTEP_CLONES void add_positions(const BFloat16* x, int64_t count, int64_t block,
                                   double* totals) {
  add_all(x, count, block, totals);
}

namespace {

using FormatTag = dnnl::memory::format_tag;

// Supported layouts other than row-major. A block of 0 means all channels.
struct Known {
  int rank;
  int64_t block;
  FormatTag tag;
};
constexpr Known kKnown[] = {
    {3, 8, FormatTag::nCw8c},   {3, 16, FormatTag::nCw16c},   {3, 0, FormatTag::nwc},
    {4, 8, FormatTag::nChw8c},  {4, 16, FormatTag::nChw16c},  {4, 0, FormatTag::nhwc},
    {5, 8, FormatTag::nCdhw8c}, {5, 16, FormatTag::nCdhw16c}, {5, 0, FormatTag::ndhwc}};

dnnl::memory::desc laid_out(const Shape& shape, DType dtype, const Known& as) {
  return {dims_of(shape), data_type(dtype), as.tag};
}

// Null for row-major memory and for unknown layouts.
const Known* known_layout(const TensorSpec& spec) {
  if (spec.row_major()) return nullptr;
  for (const Known& known : kKnown) {
    if (known.rank == spec.shape.rank() &&
        desc_of(spec) == laid_out(spec.shape, spec.dtype, known)) {
      return &known;
    }
  }
  return nullptr;
}

}  // namespace

ChannelLayout channel_layout(TensorSpec& spec) {
  const Shape& shape = spec.shape;
  const Known* const known = known_layout(spec);
  if (!known) spec = spec.plain();
  if (shape.rank() == 2)
    return {1, shape[1], shape[0], shape[1], spec.dtype};  // one block of all channels
  ChannelLayout layout{shape[0], shape[1], 1, 1, spec.dtype};
  for (int axis = 2; axis < shape.rank(); ++axis) layout.space *= shape[axis];
  if (known) layout.block = known->block > 0 ? known->block : layout.channels;
  return layout;
}

std::optional<TensorSpec> of_more_observations(const TensorSpec& spec, int64_t n) {
  const Shape shape = spec.shape.with_batch(n);
  if (spec.row_major()) return TensorSpec{shape, spec.dtype, nullptr};
  const Known* const known = known_layout(spec);
  if (!known) return std::nullopt;
  return spec_of(laid_out(shape, spec.dtype, *known));
}

std::optional<TensorSpec> of_other_channels(const TensorSpec& spec, int64_t channels) {
  const Known* const known = known_layout(spec);
  if (!known || known->block == 0 || spec.shape[1] % known->block != 0 ||
      channels % known->block != 0) {
    return std::nullopt;
  }
  std::vector<int64_t> dims = spec.shape.dims();
  dims[1] = channels;
  return spec_of(laid_out(Shape(dims), spec.dtype, *known));
}

Pass bias_gradient(TensorSpec diff_output) {
  const ChannelLayout layout = channel_layout(diff_output);
  const size_t scratch = static_cast<size_t>(layout.blocks() * layout.block) * sizeof(double);
  return own_pass_with_scratch(
      {kernels::diff_output(0, diff_output)}, {diff_input(2, plain_spec(Shape{layout.channels}))},
      scratch, [layout](void* const* r, void* const* w, void* memory) {
        auto* const totals = static_cast<double*>(memory);
        std::fill_n(totals, layout.blocks() * layout.block, 0.0);
        with_elements(layout.dtype, [&]<class T>(T*) {
          const T* from = in<T>(r, 0);
          for (int64_t n = 0; n < layout.n; ++n) {
            for (int64_t b = 0; b < layout.blocks(); ++b, from += layout.space * layout.block) {
              add_positions(from, layout.space, layout.block, totals + b * layout.block);
            }
          }
        });
        for (int64_t c = 0; c < layout.channels; ++c) {
          out(w, 0)[c] = static_cast<float>(totals[c]);
        }
      });
}

}  // namespace lockstep::kernels::cpu
