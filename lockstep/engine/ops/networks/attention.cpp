// Attention.
#include "lockstep/engine/kernels/attention/attention.h"

#include <fmt/format.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/applied.h"
#include "lockstep/engine/ops/networks/steps.h"
#include "lockstep/engine/ops/op_makers.h"
#include "lockstep/engine/ops/views.h"

namespace lockstep::ops {
namespace {

class Attention final : public Op {
 public:
  Attention(const AttentionParams& params, bool key_lengths, bool query_lengths)
      : params_(params), key_lengths_(key_lengths), query_lengths_(query_lengths) {}
  std::string_view type() const override { return "attention"; }

  std::vector<TensorSpec> infer(std::span<const TensorSpec> in) const override {
    const size_t count = 3 + size_t{key_lengths_} + size_t{query_lengths_};
    check_count(*this, in.size(), count, count);
    check_floats(*this, in.first(3));
    check_shapes(in[0].shape, in[1].shape, in[2].shape);
    for (size_t i = 3; i < count; ++i) check_lengths_spec("attention", in[i], in[0].shape[0]);
    const Shape& values = in[2].shape;
    return {{Shape{values[0], in[0].shape[1], values[2]}, DType::f32, nullptr}};
  }
  kernels::Kernel compile(const kernels::Table& table,
                          std::span<const TensorSpec> in) const override {
    const int64_t size = in[0].shape[2] / params_.heads;
    return kernels::compile(
        table,
        kernels::AttentionProblem{in[0].plain(), in[1].plain(), in[2].plain(), params_.heads,
                                  params_.causal, params_.from_end,
                                  params_.scale.value_or(1 / std::sqrt(static_cast<double>(size))),
                                  params_.dropout, params_.layer, key_lengths_, query_lengths_});
  }
  bool draws_random_numbers() const override { return params_.dropout > 0; }
  std::vector<Value> decomposed(std::span<const Value> in) const override;

 private:
  void check_shapes(const Shape& q, const Shape& k, const Shape& v) const {
    const auto received = [&] {
      return "received " + q.to_string() + ", " + k.to_string() + " and " + v.to_string();
    };
    if (q.rank() != 3 || k.rank() != 3 || v.rank() != 3 || q[0] != k[0] || q[0] != v[0] ||
        k[1] != v[1] || q[2] != k[2] || q.elements() == 0 || k.elements() == 0 ||
        v.elements() == 0) {
      throw InvalidArgument(
          "[attention] expected queries of n x tq x c, keys of n x tk x c and values of n x tk x " +
          ("cv, " + received()));
    }
    if (q[2] % params_.heads != 0 || v[2] % params_.heads != 0) {
      throw InvalidArgument(
          fmt::format("[attention] the channels cannot be divided among {} heads: ",
                      params_.heads) +
          received());
    }
    if (q[1] > kernels::kMostSteps || k[1] > kernels::kMostSteps) {
      throw InvalidArgument(
          fmt::format("[attention] expected at most {} steps, ", kernels::kMostSteps) + received());
    }
  }

  // n x 1 x tq x tk or what broadcasts to it: 1 where a query sees a key; undefined: everywhere.
  Value visible(std::span<const Value> in) const {
    const int64_t n = in[0].shape()[0], tq = in[0].shape()[1], tk = in[1].shape()[1];
    Value seen;
    const auto also = [&](const Value& more) { seen = seen.defined() ? seen * more : more; };
    if (key_lengths_) also(reshaped(step_mask(in[3], tk), Shape{n, 1, 1, tk}));
    if (query_lengths_) also(reshaped(step_mask(in.back(), tq), Shape{n, 1, tq, 1}));
    if (params_.causal) {
      Value i = reshaped(arange(in[0], 0, static_cast<double>(tq)), Shape{1, 1, tq, 1});
      if (params_.from_end) i = i + reshaped(first_key_of_last(in), Shape{n, 1, 1, 1});
      const Value j = reshaped(arange(in[0], 0, static_cast<double>(tk)), Shape{1, 1, 1, tk});
      also(less_equal(j, i));
    }
    return seen;
  }
  // With from_end: the last key that query 0 sees, which may lie before the first one, by row.
  Value first_key_of_last(std::span<const Value> in) const {
    const auto valid = [&](bool given, const Value* lengths, const Shape& x) {
      if (!given) return full_like(in[0], Shape{x[0]}, static_cast<double>(x[1]));
      return clip(astype(*lengths, DType::f32), 0, static_cast<double>(x[1]));
    };
    return valid(key_lengths_, &in[3], in[1].shape()) -
           valid(query_lengths_, &in.back(), in[0].shape());
  }
  // What probabilities are multiplied with, n x heads x tq x tk. The op itself shows it: where all
  // keys weigh the same, and value j is a row of zeros with a one at j, dropped ones are 0.
  Value dropped(std::span<const Value> in) const {
    const int64_t n = in[0].shape()[0], tq = in[0].shape()[1], tk = in[1].shape()[1];
    const int64_t heads = params_.heads;
    const Value steps = arange(in[0], 0, static_cast<double>(tk));
    const Value one = equal(reshaped(steps, Shape{tk, 1}), steps);
    std::vector<Value> inputs(in.begin(), in.end());
    inputs[0] = full_like(in[0], in[0].shape(), 0);
    inputs[1] = full_like(in[0], in[1].shape(), 0);
    inputs[2] = reshaped(broadcast_to(reshaped(one, Shape{1, tk, 1, tk}), Shape{n, tk, heads, tk}),
                         Shape{n, tk, heads * tk});
    const Value weights = reshaped(applied(shared_from_this(), inputs), Shape{n, tq, heads, tk});
    return greater(permute_dims(weights, {0, 2, 1, 3}), 0) * (1 / (1 - params_.dropout));
  }

  AttentionParams params_;
  bool key_lengths_, query_lengths_;
};

// n x t x heads * size as n x heads x t x size, with zeros at steps that are not valid.
Value by_head(const Value& x, const Value* lengths, int64_t heads) {
  const Shape shape = x.shape();
  const Value valid = lengths ? where(expand_dims(step_mask(*lengths, shape[1]), 2), x, 0) : x;
  return permute_dims(reshaped(valid, Shape{shape[0], shape[1], heads, shape[2] / heads}),
                      {0, 2, 1, 3});
}

std::vector<Value> Attention::decomposed(std::span<const Value> in) const {
  const Value* const of_keys = key_lengths_ ? &in[3] : nullptr;
  const Value* const of_queries = query_lengths_ ? &in.back() : nullptr;
  const Shape q = in[0].shape();
  const double scale =
      params_.scale.value_or(1 / std::sqrt(static_cast<double>(q[2] / params_.heads)));
  const Value keys = by_head(in[1], of_keys, params_.heads);
  const Value scores =
      matmul(by_head(in[0], of_queries, params_.heads) * scale, matrix_transpose(keys));
  const Value seen = visible(in);
  // No exponential of what is not seen reaches a result or a derivative.
  const auto where_seen = [&](const Value& x, double other) {
    return seen.defined() ? where(broadcast_to(seen, scores.shape()), x, other) : x;
  };
  const Value top = detached(max(where_seen(scores, -3e38), {3}, true));
  const Value e = where_seen(exp(where_seen(scores - top, 0)), 0);
  const Value total = sum(e, {3}, true);
  Value p = e / where(equal(total, 0), 1, total);
  if (params_.dropout > 0) p = p * dropped(in);
  const Value y = matmul(p, by_head(in[2], of_keys, params_.heads));
  return {reshaped(permute_dims(y, {0, 2, 1, 3}), Shape{q[0], q[1], in[2].shape()[2]})};
}

void check_attention(const AttentionParams& p) {
  if (p.from_end && !p.causal) {
    throw InvalidArgument("[attention] from_end says which keys a query sees, but causal is false",
                          "set causal = true, too");
  }
  if (p.heads < 1 || p.heads > kernels::kMostHeads) {
    throw InvalidArgument(fmt::format("[attention] expected 1 to {} heads, received {}",
                                      kernels::kMostHeads, p.heads));
  }
  if (p.scale && !std::isfinite(static_cast<float>(*p.scale))) {
    throw InvalidArgument(fmt::format("[attention] scale must be finite, received {}", *p.scale));
  }
  if (!(p.dropout >= 0 && p.dropout < 1)) {
    throw InvalidArgument(fmt::format(
        "[attention] expected a dropout probability of at least 0 and below 1, received {}",
        p.dropout));
  }
}

// The op, and its inputs with the lengths that are defined.
template <class T>
std::pair<OpPtr, std::vector<T>> attention_of(const T& queries, const T& keys, const T& values,
                                              const T& key_lengths, const T& query_lengths,
                                              const AttentionParams& params) {
  std::vector<T> inputs{queries, keys, values};
  if (key_lengths.defined()) {
    check_lengths("attention", key_lengths, keys.shape(), "key length");
    inputs.push_back(key_lengths);
  }
  if (query_lengths.defined()) {
    check_lengths("attention", query_lengths, queries.shape(), "query length");
    inputs.push_back(query_lengths);
  }
  return {make_attention(params, key_lengths.defined(), query_lengths.defined()), inputs};
}

}  // namespace

OpPtr make_attention(const AttentionParams& params, bool key_lengths, bool query_lengths) {
  check_attention(params);
  return std::make_shared<Attention>(params, key_lengths, query_lengths);
}

Tensor attention(const Tensor& queries, const Tensor& keys, const Tensor& values,
                 const Tensor& key_lengths, const Tensor& query_lengths,
                 const AttentionParams& params, const RandomContext& step) {
  const auto [op, inputs] = attention_of(queries, keys, values, key_lengths, query_lengths, params);
  return apply_op(op, inputs, step)[0];
}
Value attention(const Value& queries, const Value& keys, const Value& values,
                const Value& key_lengths, const Value& query_lengths,
                const AttentionParams& params) {
  const auto [op, inputs] = attention_of(queries, keys, values, key_lengths, query_lengths, params);
  return applied(op, inputs);
}

}  // namespace lockstep::ops
