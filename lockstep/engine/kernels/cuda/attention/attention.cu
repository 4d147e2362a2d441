#include "lockstep/engine/kernels/attention/attention.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/cuda/philox.h"
#include "lockstep/engine/kernels/cuda/reduction.h"
#include "lockstep/engine/kernels/elementwise/functions.h"

namespace lockstep::kernels::cuda {
namespace {

// Of a query: p[j] = exp(s[j] - largest) * factor.
struct KeptOfQuery {
  float largest, factor;
};

// Threads of a block; each computes the weight of one key or query of a chunk.
constexpr int kChunk = 128;

// The problem and its operands. A block of threads computes a query, or a key, of a head.
struct Attention {
  int64_t rows, queries, keys, heads, size, value_size;
  bool causal, from_end, drops;
  float scale, kept_factor;
  uint64_t layer, threshold;
  const float *q, *k, *v;
  const int32_t *key_lengths, *query_lengths;  // null: all steps are valid
  const RandomContext* step;

  static __device__ int64_t valid(const int32_t* lengths, int64_t row, int64_t steps) {
    if (!lengths) return steps;
    const int64_t length = lengths[row];
    return length < 0 ? 0 : length < steps ? length : steps;
  }
  __device__ int64_t valid_keys(int64_t row) const { return valid(key_lengths, row, keys); }
  __device__ int64_t valid_queries(int64_t row) const {
    return valid_keys(row) == 0 ? 0 : valid(query_lengths, row, queries);
  }
  // If causal, query i of a row sees keys 0 to i plus this.
  __device__ int64_t first_query(int64_t row) const {
    return from_end ? valid_keys(row) - valid_queries(row) : 0;
  }
};

// Where a block works: a step of a head of a row.
struct Head {
  const Attention& a;
  int64_t row, head, step;

  __device__ Head(const Attention& of, int64_t steps) : a(of) {
    const Division by_step = divide(blockIdx.x, steps);
    const Division by_head = divide(by_step.quotient, of.heads);
    row = by_head.quotient;
    head = by_head.remainder;
    step = by_step.remainder;
  }
  __device__ int64_t of_query(int64_t i) const {
    return ((row * a.queries + i) * a.heads + head) * a.size;
  }
  __device__ int64_t of_key(int64_t j) const {
    return ((row * a.keys + j) * a.heads + head) * a.size;
  }
  __device__ int64_t of_value(int64_t j) const {
    return ((row * a.keys + j) * a.heads + head) * a.value_size;
  }
  __device__ int64_t of_result(int64_t i) const {
    return ((row * a.queries + i) * a.heads + head) * a.value_size;
  }
  __device__ int64_t of_kept(int64_t i) const { return (row * a.heads + head) * a.queries + i; }

  // Keys that query i sees: none or less than none for one that is blind.
  __device__ int64_t seen(int64_t i) const {
    const int64_t all = a.valid_keys(row), until = a.first_query(row) + i + 1;
    return a.causal && until < all ? until : all;
  }
  static __device__ float dot(const float* x, const float* y, int64_t count, float factor) {
    float sum = 0;
    for (int64_t c = 0; c < count; ++c) sum = fused(x[c] * factor, y[c], sum);
    return sum;
  }
  __device__ float score(int64_t i, int64_t j) const {
    return dot(a.q + of_query(i), a.k + of_key(j), a.size, a.scale);
  }
  // The factor of a probability: 0 if it is dropped.
  __device__ float dropped(int64_t i, int64_t j) const {
    if (!a.drops) return 1;
    const DeviceRandomStream stream({a.step->seed, RandomUse::dropout, a.layer, a.step->iteration,
                                     static_cast<uint64_t>(a.step->first_row + row)});
    const Words4 words = stream.block(block_of_dropped(head, i, j));
    uint32_t word = words.word[0];
    for (int n = 1; n < 4; ++n) {
      if (j % 4 == n) word = words.word[n];
    }
    return word < a.threshold ? 0.0f : a.kept_factor;
  }
};

// to[c] = 0, or the sum over chunks of the sums over weights[t] * from(t)[c]. The threads of a
// block divide the elements.
struct WeightedRows {
  float* to;
  int64_t size;

  __device__ void clear() const {
    for (int64_t c = threadIdx.x; c < size; c += blockDim.x) to[c] = 0;
  }
  template <class From>
  __device__ void add(const float* weights, int64_t count, const From& from) const {
    for (int64_t c = threadIdx.x; c < size; c += blockDim.x) {
      float sum = 0;
      for (int64_t t = 0; t < count; ++t) sum = fused(weights[t], from(t)[c], sum);
      to[c] += sum;
    }
  }
  __device__ void scale(float factor) const {
    for (int64_t c = threadIdx.x; c < size; c += blockDim.x) to[c] *= factor;
  }
};

// The largest score of a query and the inverse sum of exponentials.
__device__ KeptOfQuery kept_of(const Head& at, int64_t seen, float* shared) {
  float largest = -static_cast<float>(__builtin_inf());
  for (int64_t j = threadIdx.x; j < seen; j += blockDim.x) {
    largest = Greater{}(largest, at.score(at.step, j));
  }
  largest = block_reduce(largest, shared, Greater{});
  float total = 0;
  for (int64_t j = threadIdx.x; j < seen; j += blockDim.x) {
    total += exponential(at.score(at.step, j) - largest);
  }
  return {largest, 1 / block_reduce(total, shared, Plus{})};
}

__global__ void attention_forward(Attention a, float* y, KeptOfQuery* kept) {
  const Head at(a, a.queries);
  const WeightedRows result{y + at.of_result(at.step), a.value_size};
  result.clear();
  KeptOfQuery& of = kept[at.of_kept(at.step)];
  const int64_t seen = at.seen(at.step);
  if (at.step >= a.valid_queries(at.row) || seen <= 0) {
    if (threadIdx.x == 0) of = {0, 0};
    return;
  }
  auto* const weights = shared_memory<float>();
  const KeptOfQuery found = kept_of(at, seen, weights);
  if (threadIdx.x == 0) of = found;
  for (int64_t first = 0; first < seen; first += kChunk) {
    const int64_t count = seen - first < kChunk ? seen - first : kChunk;
    const int64_t j = first + threadIdx.x;
    if (j < seen) {
      weights[threadIdx.x] =
          exponential(at.score(at.step, j) - found.largest) * found.factor * at.dropped(at.step, j);
    }
    __syncthreads();
    result.add(weights, count, [&](int64_t t) { return a.v + at.of_value(first + t); });
    __syncthreads();
  }
}

struct AttentionGradients {
  const float *y, *dy;
  const KeptOfQuery* kept;

  // The probability of a pair that weighs the value, and the gradient of its score.
  struct Pair {
    float p, ds;
  };
  __device__ float dot(const Head& at, int64_t i) const {
    return Head::dot(y + at.of_result(i), dy + at.of_result(i), at.a.value_size, 1);
  }
  __device__ Pair of(const Head& at, int64_t i, int64_t j, float dot_of_query) const {
    const KeptOfQuery k = kept[at.of_kept(i)];
    const float p = exponential(at.score(i, j) - k.largest) * k.factor;
    const float dropped = at.dropped(i, j);
    const float dp =
        Head::dot(dy + at.of_result(i), at.a.v + at.of_value(j), at.a.value_size, 1) * dropped;
    return {p * dropped, p * (dp - dot_of_query)};
  }
};

__global__ void attention_of_queries(Attention a, AttentionGradients g, float* dq) {
  const Head at(a, a.queries);
  const WeightedRows result{dq + at.of_query(at.step), a.size};
  result.clear();
  if (at.step >= a.valid_queries(at.row)) return;
  auto* const weights = shared_memory<float>();
  const int64_t seen = at.seen(at.step);
  const float dot = g.dot(at, at.step);
  for (int64_t first = 0; first < seen; first += kChunk) {
    const int64_t count = seen - first < kChunk ? seen - first : kChunk;
    const int64_t j = first + threadIdx.x;
    if (j < seen) weights[threadIdx.x] = g.of(at, at.step, j, dot).ds;
    __syncthreads();
    result.add(weights, count, [&](int64_t t) { return a.k + at.of_key(first + t); });
    __syncthreads();
  }
  result.scale(a.scale);
}

__global__ void attention_of_keys(Attention a, AttentionGradients g, float* dk, float* dv) {
  const Head at(a, a.keys);
  const WeightedRows of_key{dk + at.of_key(at.step), a.size};
  const WeightedRows of_value{dv + at.of_value(at.step), a.value_size};
  of_key.clear();
  of_value.clear();
  if (at.step >= a.valid_keys(at.row)) return;
  auto *const weights = shared_memory<float>(), *const slopes = weights + kChunk;
  const int64_t queries = a.valid_queries(at.row);
  const int64_t sees = a.causal ? at.step - a.first_query(at.row) : 0;
  for (int64_t first = sees > 0 ? sees : 0; first < queries; first += kChunk) {
    const int64_t count = queries - first < kChunk ? queries - first : kChunk;
    const int64_t i = first + threadIdx.x;
    if (i < queries) {
      const auto pair = g.of(at, i, at.step, g.dot(at, i));
      weights[threadIdx.x] = pair.p;
      slopes[threadIdx.x] = pair.ds;
    }
    __syncthreads();
    of_value.add(weights, count, [&](int64_t t) { return g.dy + at.of_result(first + t); });
    of_key.add(slopes, count, [&](int64_t t) { return a.q + at.of_query(first + t); });
    __syncthreads();
  }
  of_key.scale(a.scale);
}

// The problem without its operands.
Attention sizes_of(const AttentionProblem& p) {
  Attention a{};
  a.rows = p.queries.shape[0];
  a.queries = p.queries.shape[1];
  a.keys = p.keys.shape[1];
  a.heads = p.heads;
  a.size = p.size();
  a.value_size = p.value_size();
  a.causal = p.causal;
  a.from_end = p.causal && p.from_end;
  a.drops = p.dropout > 0;
  a.scale = static_cast<float>(p.scale);
  a.kept_factor = static_cast<float>(1 / (1 - p.dropout));
  a.layer = p.layer;
  a.threshold = static_cast<uint64_t>(p.dropout * 4294967296.0);
  return a;
}

}  // namespace

Kernel attention(const AttentionProblem& p) {
  const Attention sizes = sizes_of(p);
  const TensorSpec queries = p.queries.plain(), keys = p.keys.plain(), values = p.values.plain();
  const TensorSpec y = plain_spec(Shape{sizes.rows, sizes.queries, sizes.heads * sizes.value_size});
  const TensorSpec lengths = plain_spec(Shape{sizes.rows}, DType::i32);
  const int64_t of_queries = sizes.rows * sizes.heads * sizes.queries;
  const int64_t of_keys = sizes.rows * sizes.heads * sizes.keys;
  const Operand kept = workspace(static_cast<size_t>(of_queries) * sizeof(KeptOfQuery));
  std::vector<Operand> reads{input(0, queries), input(1, keys), input(2, values)};
  std::vector<Operand> backward_reads = reads;
  backward_reads.insert(backward_reads.end(), {output(0, y), diff_output(0, y), kept});
  for (int i = 0; i < int{p.key_lengths} + int{p.query_lengths}; ++i) {
    reads.push_back(input(3 + i, lengths));
    backward_reads.push_back(input(3 + i, lengths));
  }
  const auto bound = [sizes, with_keys = p.key_lengths, with_queries = p.query_lengths](
                         const Bound& b, int first) {
    Attention a = sizes;
    a.q = b.in(0);
    a.k = b.in(1);
    a.v = b.in(2);
    a.key_lengths = with_keys ? b.in<int32_t>(first) : nullptr;
    a.query_lengths = with_queries ? b.in<int32_t>(first + with_keys) : nullptr;
    a.step = b.step;
    return a;
  };
  Kernel kernel;
  kernel.forward = own_pass(std::move(reads), {output(0, y), kept}, [=](const Bound& b) {
    launch("attention", attention_forward,
           {.blocks = of_queries, .threads = kChunk, .shared_bytes = kChunk * sizeof(float)},
           b.stream, bound(b, 3), b.out(0), b.out<KeptOfQuery>(1));
  });
  kernel.backward.push_back(own_pass(
      std::move(backward_reads),
      {diff_input(0, queries), diff_input(1, keys), diff_input(2, values)}, [=](const Bound& b) {
        const Attention a = bound(b, 6);
        const AttentionGradients g{b.in(3), b.in(4), b.in<KeptOfQuery>(5)};
        launch("attention, gradient of queries", attention_of_queries,
               {.blocks = of_queries, .threads = kChunk, .shared_bytes = kChunk * sizeof(float)},
               b.stream, a, g, b.out(0));
        launch("attention, gradients of keys", attention_of_keys,
               {.blocks = of_keys, .threads = kChunk, .shared_bytes = 2 * kChunk * sizeof(float)},
               b.stream, a, g, b.out(1), b.out(2));
      }));
  return kernel;
}

}  // namespace lockstep::kernels::cuda
