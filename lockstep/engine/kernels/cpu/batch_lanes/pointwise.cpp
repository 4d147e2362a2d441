#include "lockstep/engine/kernels/cpu/batch_lanes/pointwise.h"

#include <algorithm>
#include <optional>

#include "lockstep/engine/kernels/cpu/batch_lanes/convolution.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {
namespace {

// From this many channels on, oneDNN's products over long rows fill its blocks; measured (Zen 5).
constexpr int64_t kFewestForProduct = 32;

// Elements of the larger of images and results in a block of columns, whose product is computed at
// once: the block is still in the second cache when the bias is added to it. oneDNN 2.6 takes up to
// 1.6 times as long to add a product to results that hold the bias.
constexpr int64_t kBlockOfPixels = 131072;

// Descriptor of a rows x columns matrix; `turned`: of memory that holds its transpose.
dnnl::memory::desc matrix(int64_t rows, int64_t columns, DType type, bool turned = false) {
  return {{rows, columns},
          data_type(type),
          turned ? dnnl::memory::dims{1, rows} : dnnl::memory::dims{columns, 1}};
}

// Of some columns of a matrix of `all` columns.
dnnl::memory::desc columns_of(int64_t rows, int64_t columns, int64_t all) {
  return {{rows, columns}, data_type(DType::f32), dnnl::memory::dims{all, 1}};
}

struct Factor {
  Operand operand;
  dnnl::memory::desc seen_as;
};

// result = a b. With `adds`, the product is added to the present result.
Pass product(const Factor& a, const Factor& b, const Factor& result, bool adds = false) {
  SingleThread one;
  return translated("product of matrices", [&] {
    dnnl::primitive_attr attr = attributes();
    if (adds) {
      dnnl::post_ops sum;
      sum.append_sum();
      attr.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc pd(engine(), a.seen_as, b.seen_as, result.seen_as, attr);
#else
    const dnnl::matmul::primitive_desc pd({a.seen_as, b.seen_as, result.seen_as}, attr, engine());
#endif
    check_memory_for_code();
    prepare_products();
    return primitive_pass(
        dnnl::matmul(pd), scratch_of(pd),
        {{DNNL_ARG_SRC, a.operand, a.seen_as}, {DNNL_ARG_WEIGHTS, b.operand, b.seen_as}},
        {{DNNL_ARG_DST, result.operand, result.seen_as}});
  });
}

// y = weights x, plus the bias, in f32 and in blocks of columns. x has `terms` rows, y has `rows`.
// `bias`: its operand, which the pass reads last, or none.
Pass product_in_blocks(const Factor& weights, const Operand& x, const Operand& y, int64_t terms,
                       int64_t rows, int64_t count, const std::optional<Operand>& bias) {
  const int64_t width = kBlockOfPixels / std::max(terms, rows) / kLanes * kLanes,
                rest = count % width;
  const auto of_columns = [&](int64_t columns) {
    return product(weights, {x, columns_of(terms, columns, count)},
                   {y, columns_of(rows, columns, count)});
  };
  const Pass block = of_columns(width), last = rest > 0 ? of_columns(rest) : block;
  Pass pass = block;
  pass.scratch_bytes = std::max(block.scratch_bytes, last.scratch_bytes);
  if (bias) pass.reads.push_back(*bias);
  pass.bind = [=, biased = bias.has_value()](const PassMemory& where) {
    auto* const from = static_cast<float*>(where.reads[1]);
    auto* const to = static_cast<float*>(where.writes[0]);
    const auto* const numbers = biased ? static_cast<const float*>(where.reads[2]) : nullptr;
    std::vector<BoundPass> products;
    for (int64_t c = 0; c < count; c += width) {
      void* const reads[] = {where.reads[0], from + c};
      void* const writes[] = {to + c};
      const Pass& of = count - c < width ? last : block;
      products.push_back(of.bind({reads, writes, where.scratch, where.stream}));
    }
    return BoundPass([=](const RandomContext& step) {
      for (size_t i = 0; i < products.size(); ++i) {
        products[i](step);
        if (!numbers) continue;
        const int64_t c = static_cast<int64_t>(i) * width;
        const auto columns = static_cast<size_t>(std::min(width, count - c));
        for (int64_t r = 0; r < rows; ++r) add_number(numbers[r], to + r * count + c, columns);
      }
    });
  };
  return pass;
}

// Initializes rows of `count` elements with the bias, then adds `product` to them.
Pass begun_by_bias(const Pass& product, const TensorSpec& bias, DType type, int64_t count) {
  Pass pass = product;
  const size_t reads = product.reads.size();
  pass.reads.push_back(input(2, bias));
  const int64_t filters = bias.shape[0];
  pass.bind = [product, reads, type, filters, count](const PassMemory& where) {
    const auto* const values = static_cast<const float*>(where.reads[reads]);
    void* const rows = where.writes[0];
    const BoundPass add =
        product.bind({where.reads.first(reads), where.writes, where.scratch, where.stream});
    return BoundPass([=](const RandomContext& step) {
      with_elements(type, [&]<class T>(T*) {
        auto* to = static_cast<T*>(rows);
        for (int64_t f = 0; f < filters; ++f, to += count) {
          T value;
          if constexpr (sizeof(T) == sizeof(float)) {
            value = values[f];
          } else {
            value = to_bfloat16(values[f]);
          }
          std::fill_n(to, count, value);
        }
      });
      add(step);
    });
  };
  return pass;
}

// Adds the gradient of the bias. `product` must read the output gradient first.
Pass with_bias(const Pass& product, const LanesConvolution& of, const TensorSpec& bias) {
  Pass pass = product;
  pass.writes.push_back(diff_input(2, bias));
  pass.bind = [product, of](const PassMemory& where) {
    const void* const dy = where.reads[0];
    auto* const dbias = static_cast<float*>(where.writes[1]);
    const BoundPass multiply =
        product.bind({where.reads, where.writes.first(1), where.scratch, where.stream});
    return BoundPass([=](const RandomContext& step) {
      multiply(step);
      lanes_convolution_bias(of, dy, dbias);
    });
  };
  return pass;
}

}  // namespace

bool is_pointwise(const ConvolutionProblem& p) {
  const Window& w = p.window;
  return w.kernel == Size2d{1, 1} && w.stride == Size2d{1, 1} && w.pad_begin == Size2d{0, 0} &&
         w.pad_end == Size2d{0, 0} && p.groups == 1;
}

Kernel lanes_pointwise(const ConvolutionProblem& p) {
  const Shape& x = p.src.shape;
  const DType type = p.src.dtype;
  const int64_t n = x[0], channels = x[1], filters = p.weights[0], count = n * x[2] * x[3];
  const TensorSpec src = lanes_spec(x, type), dst = lanes_spec(p.dst, type),
                   weights = plain_spec(p.weights, type), bias = plain_spec(Shape{filters});
  Kernel kernel;
  // Several blocks.
  const bool blocks = type == DType::f32 && std::max(channels, filters) * count > kBlockOfPixels &&
                      std::max(channels, filters) <= kBlockOfPixels / kLanes;
  if (blocks) {
    kernel.forward = product_in_blocks({input(1, weights), matrix(filters, channels, type)},
                                       input(0, src), output(0, dst), channels, filters, count,
                                       p.bias ? std::optional(input(2, bias)) : std::nullopt);
    // Transposed once an iteration, because AVX2's products take a tenth longer to do it.
    const TensorSpec turned =
        spec_of({dims_of(p.weights), data_type(type), dnnl::memory::format_tag::bacd});
    kernel.backward.push_back(product_in_blocks({input(1, turned), matrix(channels, filters, type)},
                                                diff_output(0, dst), diff_input(0, src), filters,
                                                channels, count, {}));
  } else {
    const Pass forward = product({input(1, weights), matrix(filters, channels, type)},
                                 {input(0, src), matrix(channels, count, type)},
                                 {output(0, dst), matrix(filters, count, type)}, p.bias);
    kernel.forward = p.bias ? begun_by_bias(forward, bias, type, count) : forward;
    kernel.backward.push_back(product({input(1, weights), matrix(channels, filters, type, true)},
                                      {diff_output(0, dst), matrix(filters, count, type)},
                                      {diff_input(0, src), matrix(channels, count, type)}));
  }
  const LanesConvolution of{.n = n,
                            .channels = channels,
                            .filters = filters,
                            .rows = x[2],
                            .columns = x[3],
                            .result_rows = x[2],
                            .result_columns = x[3],
                            .window = p.window,
                            .dtype = type};
  const TensorSpec diff_weights = plain_spec(p.weights);
  if (std::min(channels, filters) >= kFewestForProduct) {
    const Pass gradient =
        product({diff_output(0, dst), matrix(filters, count, type)},
                {input(0, src), matrix(count, channels, type, true)},
                {diff_input(1, diff_weights), matrix(filters, channels, DType::f32)});
    kernel.backward.push_back(p.bias ? with_bias(gradient, of, bias) : gradient);
    return kernel;
  }
  std::vector<Operand> writes{diff_input(1, diff_weights)};
  if (p.bias) writes.push_back(diff_input(2, bias));
  kernel.backward.push_back(own_pass_with_scratch(
      {input(0, src), diff_output(0, dst)}, writes, of.weights_scratch(),
      [of, biased = p.bias](void* const* r, void* const* w, void* scratch) {
        lanes_convolution_weights(of, r[0], r[1], out(w, 0), static_cast<float*>(scratch));
        if (biased) lanes_convolution_bias(of, r[1], out(w, 1));
      }));
  return kernel;
}

}  // namespace lockstep::kernels::cpu
