#include "lockstep/engine/kernels/attention/attention.h"

#include <algorithm>
#include <optional>

#include "lockstep/engine/kernels/cpu/attention/attention_head.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {
namespace {

struct LengthsOfRows {
  const int32_t *keys, *queries;  // null: all are valid
};

// Sizes and settings, and what follows from them for a head.
struct AttentionSizes {
  int64_t rows, queries, keys, heads, size, value_size;
  bool causal, from_end;
  float scale;
  bool drops;
  uint64_t layer;
  uint32_t least;  // a smaller random word drops its element
  float kept_factor;

  explicit AttentionSizes(const AttentionProblem& p)
      : rows(p.queries.shape[0]),
        queries(p.queries.shape[1]),
        keys(p.keys.shape[1]),
        heads(p.heads),
        size(p.size()),
        value_size(p.value_size()),
        causal(p.causal),
        from_end(p.causal && p.from_end),
        scale(static_cast<float>(p.scale)),
        drops(p.dropout > 0),
        layer(p.layer),
        least(static_cast<uint32_t>(p.dropout * 4294967296.0)),
        kept_factor(static_cast<float>(1 / (1 - p.dropout))) {}

  // Elements of a row of the operands, and where a head begins in each step.
  int64_t of_queries() const { return queries * heads * size; }
  int64_t of_keys() const { return keys * heads * size; }
  int64_t of_values() const { return keys * heads * value_size; }
  int64_t of_results() const { return queries * heads * value_size; }

  std::optional<RandomStream> random(const RandomContext& step, int64_t row) const {
    if (!drops) return std::nullopt;
    return RandomStream({.seed = step.seed,
                         .use = RandomUse::dropout,
                         .a = layer,
                         .b = step.iteration,
                         .c = static_cast<uint64_t>(step.first_row + row)});
  }
  // Valid steps; null: all.
  static int64_t valid(const int32_t* lengths, int64_t row, int64_t steps) {
    return lengths ? std::clamp<int64_t>(lengths[row], 0, steps) : steps;
  }

  // Valid steps of a row, and how many of the first queries see no key. Without a query that sees a
  // key there are none of either.
  struct Valid {
    int64_t queries = 0, keys = 0, blind = 0;
  };
  Valid valid_of(const LengthsOfRows& lengths, int64_t row) const {
    Valid found{.queries = valid(lengths.queries, row, queries),
                .keys = valid(lengths.keys, row, keys)};
    if (found.queries == 0 || found.keys == 0) return {};
    if (from_end) found.blind = std::max<int64_t>(0, found.queries - found.keys);
    return found;
  }

  // Calls use(head) for all heads of a row, without the queries that see no key.
  template <class Use>
  void each_head(const RandomContext& step, int64_t row, const Valid& valid, const Use& use) const {
    const auto stream = random(step, row);
    const int64_t sees = valid.queries - valid.blind;
    AttentionHead head{.queries = sees,
                       .keys = valid.keys,
                       .size = size,
                       .value_size = value_size,
                       .stride = heads * size,
                       .value_stride = heads * value_size,
                       .causal = causal,
                       .first_query = from_end ? valid.keys - sees : 0,
                       .scale = scale,
                       .random = stream ? &*stream : nullptr,
                       .first_number = valid.blind,
                       .least = least,
                       .kept_factor = kept_factor};
    for (head.number = 0; head.number < heads; ++head.number) use(head);
  }
};

// The steps of a row that have no result are zeros: all but [first, end).
void clear_outside(float* row, int64_t first, int64_t end, int64_t steps, int64_t of_step) {
  std::fill(row, row + first * of_step, 0.0f);
  std::fill(row + end * of_step, row + steps * of_step, 0.0f);
}

void attention_of_rows(const AttentionSizes& s, void* const* r, const LengthsOfRows& lengths,
                       float* y, KeptOfQuery* kept, void* scratch, const RandomContext& step) {
  for (int64_t row = 0; row < s.rows; ++row) {
    const AttentionSizes::Valid valid = s.valid_of(lengths, row);
    const float* const q = in(r, 0) + row * s.of_queries() + valid.blind * s.heads * s.size;
    const float* const k = in(r, 1) + row * s.of_keys();
    const float* const v = in(r, 2) + row * s.of_values();
    float* const results = y + row * s.of_results();
    KeptOfQuery* const of = kept + row * s.heads * s.queries;
    clear_outside(results, valid.blind, valid.queries, s.queries, s.heads * s.value_size);
    std::fill_n(of, s.heads * s.queries, KeptOfQuery{0, 0});
    if (valid.queries == 0) continue;
    float* const to = results + valid.blind * s.heads * s.value_size;
    s.each_head(step, row, valid, [&](const AttentionHead& head) {
      const int64_t at = head.number * s.size, value = head.number * s.value_size;
      attention_forward(head, q + at, k + at, v + value, to + value,
                        of + head.number * s.queries + valid.blind, scratch);
    });
  }
}

void attention_gradients_of_rows(const AttentionSizes& s, void* const* r, void* const* w,
                                 const LengthsOfRows& lengths, void* scratch,
                                 const RandomContext& step) {
  for (int64_t row = 0; row < s.rows; ++row) {
    AttentionSizes::Valid valid = s.valid_of(lengths, row);
    // Keys that a query sees.
    if (s.causal && !s.from_end) valid.keys = std::min(valid.keys, valid.queries);
    float* const dq = out(w, 0) + row * s.of_queries();
    float* const dk = out(w, 1) + row * s.of_keys();
    float* const dv = out(w, 2) + row * s.of_values();
    clear_outside(dq, valid.blind, valid.queries, s.queries, s.heads * s.size);
    clear_outside(dk, 0, valid.keys, s.keys, s.heads * s.size);
    clear_outside(dv, 0, valid.keys, s.keys, s.heads * s.value_size);
    if (valid.queries == 0) continue;
    s.each_head(step, row, valid, [&](const AttentionHead& head) {
      const int64_t at = head.number * s.size, value = head.number * s.value_size;
      const int64_t first = valid.blind * s.heads * s.size + at;
      const int64_t key = row * s.of_keys() + at, query = row * s.of_queries() + first;
      const int64_t result = row * s.of_results() + valid.blind * s.heads * s.value_size + value;
      const auto* const kept =
          in<KeptOfQuery>(r, 5) + (row * s.heads + head.number) * s.queries + valid.blind;
      attention_backward(
          head,
          {in(r, 0) + query, in(r, 1) + key, in(r, 2) + row * s.of_values() + value,
           in(r, 3) + result, in(r, 4) + result, kept, dq + first, dk + at, dv + value},
          scratch);
    });
  }
}

}  // namespace

Kernel attention(const AttentionProblem& p) {
  const AttentionSizes s(p);
  const TensorSpec queries = p.queries.plain(), keys = p.keys.plain(), values = p.values.plain();
  const TensorSpec y = plain_spec(Shape{s.rows, s.queries, s.heads * s.value_size});
  const TensorSpec lengths = plain_spec(Shape{s.rows}, DType::i32);
  const Operand kept =
      workspace(static_cast<size_t>(s.rows * s.heads * s.queries) * sizeof(KeptOfQuery));
  std::vector<Operand> reads{input(0, queries), input(1, keys), input(2, values)};
  std::vector<Operand> backward_reads = reads;
  backward_reads.insert(backward_reads.end(), {output(0, y), diff_output(0, y), kept});
  for (int i = 0; i < int{p.key_lengths} + int{p.query_lengths}; ++i) {
    reads.push_back(input(3 + i, lengths));
    backward_reads.push_back(input(3 + i, lengths));
  }
  const auto lengths_in = [with_keys = p.key_lengths, with_queries = p.query_lengths](
                              void* const* r, int first) {
    return LengthsOfRows{with_keys ? in<int32_t>(r, first) : nullptr,
                         with_queries ? in<int32_t>(r, first + with_keys) : nullptr};
  };
  Kernel kernel;
  kernel.rows_apart = true;
  kernel.forward = own_pass_of_all(
      std::move(reads), {output(0, y), kept}, attention_scratch(s.keys, s.size, s.value_size),
      [=](void* const* r, void* const* w, void* scratch, const RandomContext& step) {
        attention_of_rows(s, r, lengths_in(r, 3), out(w, 0), out<KeptOfQuery>(w, 1), scratch, step);
      });
  kernel.backward.push_back(own_pass_of_all(
      std::move(backward_reads),
      {diff_input(0, queries), diff_input(1, keys), diff_input(2, values)},
      attention_backward_scratch(s.keys, s.size, s.value_size),
      [=](void* const* r, void* const* w, void* scratch, const RandomContext& step) {
        attention_gradients_of_rows(s, r, w, lengths_in(r, 6), scratch, step);
      }));
  return kernel;
}

}  // namespace lockstep::kernels::cpu
