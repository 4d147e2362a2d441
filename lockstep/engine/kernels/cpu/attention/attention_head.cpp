#include "lockstep/engine/kernels/cpu/attention/attention_head.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/engine/kernels/attention/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/engine/kernels/cpu/attention/attention_head.cpp"
#include <hwy/foreach_target.h>  // compiles what follows once for each instruction set
#include <hwy/highway.h>

#include "lockstep/engine/kernels/cpu/attention/attention_tiles.h"

#ifndef LOCKSTEP_ATTENTION_HEAD_ONCE
#define LOCKSTEP_ATTENTION_HEAD_ONCE
namespace lockstep::kernels::cpu {

// Parts of scratch memory, each at the begin of a cache line. Without memory it counts bytes alone.
class Parts {
 public:
  explicit Parts(void* memory) : memory_(static_cast<char*>(memory)) {}
  float* part(int64_t floats) {
    const size_t first = bytes_;
    bytes_ += round_up(static_cast<size_t>(floats) * sizeof(float));
    return memory_ ? reinterpret_cast<float*>(memory_ + first) : nullptr;
  }
  size_t bytes() const { return bytes_; }

 private:
  char* memory_;
  size_t bytes_ = 0;
};

// The sizes of a head in whole blocks and panels.
struct HeadSizes {
  int64_t size, value_size;
  int64_t blocks;                  // of keys
  int64_t columns, value_columns;  // whole panels

  HeadSizes(int64_t keys, int64_t size_of, int64_t value_size_of)
      : size(size_of),
        value_size(value_size_of),
        blocks((keys + kKeyBlock - 1) / kKeyBlock),
        columns(panels_of(size_of) * kPanel),
        value_columns(panels_of(value_size_of) * kPanel) {}
};

// What the forward pass keeps in its scratch memory.
struct ForwardMemory {
  float *k_across, *v, *q, *p, *sums;

  ForwardMemory(const HeadSizes& s, Parts& parts)
      : k_across(parts.part(s.blocks * kKeyBlock * s.size)),
        v(parts.part(s.blocks * kKeyBlock * s.value_columns)),
        q(parts.part(kQueryBlock * s.size)),
        p(parts.part(kQueryBlock * kKeyBlock)),
        sums(parts.part(kQueryBlock * s.value_columns)) {}
};

struct BackwardMemory {
  float *k_across, *v_across, *k, *dk, *dv, *q, *q_panels, *dy, *dy_panels, *p, *ds, *dq;

  BackwardMemory(const HeadSizes& s, Parts& parts)
      : k_across(parts.part(s.blocks * kKeyBlock * s.size)),
        v_across(parts.part(s.blocks * kKeyBlock * s.value_size)),
        k(parts.part(s.blocks * kKeyBlock * s.columns)),
        dk(parts.part(s.blocks * kKeyBlock * s.columns)),
        dv(parts.part(s.blocks * kKeyBlock * s.value_columns)),
        q(parts.part(kQueryBlock * s.size)),
        q_panels(parts.part(kQueryBlock * s.columns)),
        dy(parts.part(kQueryBlock * s.value_size)),
        dy_panels(parts.part(kQueryBlock * s.value_columns)),
        p(parts.part(kQueryBlock * kKeyBlock)),
        ds(parts.part(kQueryBlock * kKeyBlock)),
        dq(parts.part(kQueryBlock * s.columns)) {}
};

// The steps of a block of queries and a block of keys, and which keys each query sees. Queries are
// numbered by the last key that they see, if causal.
struct Blocks {
  int64_t first_query, queries, first_key, keys;
  bool causal;

  // Keys of the block that a query of the block sees, from its first on; 1 or more, because a
  // block of keys has two whole blocks of queries.
  int64_t seen(int64_t query) const {
    return causal ? std::min(keys, first_query + query - first_key + 1) : keys;
  }
  // The most keys that a query of a group of kGroup rows sees. Rows see zeros instead of the keys
  // that they do not see.
  int64_t seen_by_group(int64_t group) const { return seen(group * kGroup + kGroup - 1); }
  // The first query that sees a key of the group.
  int64_t first_to_see(int64_t group) const {
    return causal ? std::max<int64_t>(first_key + group * kGroup - first_query, 0) : 0;
  }
};

}  // namespace lockstep::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// Random words of the keys of a block, for one query.
class Dropped {
 public:
  Dropped(const AttentionHead& head, const Blocks& b) : head_(head), b_(b) {}

  bool any() const { return head_.random != nullptr; }
  void draw(int64_t query) {
    const int64_t number = head_.first_number + b_.first_query - head_.first_query + query;
    head_.random->blocks(block_of_dropped(head_.number, number, b_.first_key),
                         static_cast<size_t>((b_.seen(query) + 3) / 4), words_);
  }
  // x times the factor of kept elements, or 0.
  HWY_INLINE V applied(V x, int64_t key) const {
    const hn::Rebind<uint32_t, D> whole;
    const auto words = hn::LoadU(whole, words_ + key), least = hn::Set(whole, head_.least);
    const auto kept = hn::Eq(hn::Max(words, least), words);
    return hn::IfThenElseZero(hn::RebindMask(D(), kept),
                              hn::Mul(x, hn::Set(D(), head_.kept_factor)));
  }

 private:
  const AttentionHead& head_;
  const Blocks& b_;
  uint32_t words_[kKeyBlock] = {};
};

// Scores of all pairs of a block: rows of kKeyBlock.
void scores_of(const Blocks& b, const float* q, const float* k_across, int64_t size, float* s) {
  product_tiles<false>(groups_of(b.queries), panels_of(b.keys), {q, size, 1},
                       {k_across, kPanel * size}, {s, kKeyBlock},
                       [&](int64_t group, int64_t panel) {
                         return TermRange{0, panel * kPanel < b.seen_by_group(group) ? size : 0};
                       });
}

// Of the queries of a block: the largest score, the sum of exponentials, and by what the sums of
// earlier blocks are multiplied. Whole panels, so that the last ones hold zeros.
struct RunningSums {
  HWY_ALIGN float largest[kQueryBlock], total[kQueryBlock], before[kQueryBlock];
};
static_assert(kQueryBlock % kPanel == 0);

// Enters the scores of a block of keys into the largest ones. What a query does not see becomes
// -infinity. Loops over all queries, here and below, let the processor overlap them.
HWY_INLINE void enter_scores(const Blocks& b, float* scores, RunningSums& sums) {
  const D d;
  HWY_ALIGN float earlier[kQueryBlock];
  std::copy_n(sums.largest, kQueryBlock, earlier);
  for (int64_t i = 0; i < b.queries; ++i) {
    float* const s = scores + i * kKeyBlock;
    const int64_t seen = b.seen(i), width = panels_of(seen) * kPanel;
    std::fill(s + seen, s + width, -std::numeric_limits<float>::infinity());
    Lanes top(hn::Set(d, earlier[i]));
    for (int64_t j = 0; j < width; j += kPanel) {
      top.each([&](int v, V& lane) { lane = hn::Max(lane, hn::LoadU(d, s + j + v)); });
    }
    sums.largest[i] = top.maximum();
  }
  for (int64_t i = 0; i < kQueryBlock; i += kLanesOfVector) {
    const V change = hn::Sub(hn::Load(d, earlier + i), hn::Load(d, sums.largest + i));
    const V before = exponential_below_1(change);
    hn::Store(before, d, sums.before + i);
    hn::Store(hn::Mul(hn::Load(d, sums.total + i), before), d, sums.total + i);
  }
}

// Makes exponentials of the scores of a block, less the largest ones: probabilities up to a factor,
// and 0 for what a query does not see.
HWY_INLINE void make_exponentials(const Blocks& b, Dropped& dropped, float* scores,
                                  RunningSums& sums) {
  const D d;
  for (int64_t i = 0; i < b.queries; ++i) {
    float* const s = scores + i * kKeyBlock;
    const int64_t width = panels_of(b.seen(i)) * kPanel;
    if (dropped.any()) dropped.draw(i);
    const V largest = hn::Set(d, sums.largest[i]);
    Lanes total(hn::Zero(d));
    for (int64_t j = 0; j < width; j += kPanel) {
      total.each([&](int v, V& lane) {
        float* const at = s + j + v;
        const V e = exponential_below_1(hn::Sub(hn::LoadU(d, at), largest));
        lane = hn::Add(lane, e);
        hn::StoreU(dropped.any() ? dropped.applied(e, j + v) : e, d, at);
      });
    }
    std::fill(s + width, s + panels_of(b.seen_by_group(i / kGroup)) * kPanel, 0.0f);
    sums.total[i] += total.sum();
  }
}

// The results of a block of queries: sums over all keys.
void forward_of_block(const AttentionHead& head, const HeadSizes& s, const ForwardMemory& m,
                      int64_t first, int64_t queries, RunningSums& sums) {
  sums = {};
  std::fill_n(sums.largest, queries, -std::numeric_limits<float>::infinity());
  std::fill_n(m.sums, kQueryBlock * s.value_columns, 0.0f);
  const int64_t keys = head.causal ? std::min(head.keys, first + queries) : head.keys;
  for (int64_t key = 0; key < keys; key += kKeyBlock) {
    const Blocks b{first, queries, key, std::min(kKeyBlock, head.keys - key), head.causal};
    scores_of(b, m.q, m.k_across + key * s.size, s.size, m.p);
    Dropped dropped(head, b);
    enter_scores(b, m.p, sums);
    make_exponentials(b, dropped, m.p, sums);
    for (int64_t i = 0; key != 0 && i < queries; ++i) {
      if (sums.before[i] == 1) continue;
      scale_row(m.sums + i * s.value_columns, sums.before[i], s.value_columns);
    }
    product_tiles<true>(groups_of(queries), panels_of(s.value_size), {m.p, kKeyBlock, 1},
                        {m.v + key * s.value_columns, kKeyBlock * kPanel},
                        {m.sums, s.value_columns}, [&](int64_t group, int64_t) {
                          return TermRange{0, b.seen_by_group(group)};
                        });
  }
}

// The queries of the block that begins with this one. Blocks end at multiples of kQueryBlock.
int64_t queries_of_block(const AttentionHead& head, int64_t first) {
  return std::min(kQueryBlock - (head.first_query + first) % kQueryBlock, head.queries - first);
}

void forward_of_head(const AttentionHead& head, const float* q, const float* k, const float* v,
                     float* y, KeptOfQuery* kept, void* scratch) {
  const HeadSizes s(head.keys, head.size, head.value_size);
  Parts parts(scratch);
  const ForwardMemory m(s, parts);
  std::fill_n(m.p, kQueryBlock * kKeyBlock, 0.0f);
  pack_across(k, head.stride, head.keys, s.size, m.k_across);
  for (int64_t key = 0; key < head.keys; key += kKeyBlock) {
    pack_columns(v + key * head.value_stride, head.value_stride,
                 std::min(kKeyBlock, head.keys - key), s.value_size, kKeyBlock,
                 m.v + key * s.value_columns);
  }
  for (int64_t first = 0, queries = 0; first < head.queries; first += queries) {
    queries = queries_of_block(head, first);
    copy_rows(q + first * head.stride, head.stride, queries, s.size, head.scale, m.q);
    RunningSums sums;
    forward_of_block(head, s, m, head.first_query + first, queries, sums);
    for (int64_t i = 0; i < queries; ++i) {
      const float factor = 1 / sums.total[i];
      kept[first + i] = {sums.largest[i], factor};
      scaled_row(m.sums + i * s.value_columns, factor, s.value_size,
                 y + (first + i) * head.value_stride);
    }
  }
}

// The backward pass of a block of queries and a block of keys. Memory holds what is the same for
// all keys, and the sums over earlier blocks.
class BackwardOfHead {
 public:
  BackwardOfHead(const AttentionHead& head, const AttentionGradients& at, void* scratch)
      : head_(head),
        at_(at),
        s_(head.keys, head.size, head.value_size),
        parts_(scratch),
        m_(s_, parts_) {}

  void run() {
    std::fill_n(m_.p, kQueryBlock * kKeyBlock, 0.0f);
    std::fill_n(m_.ds, kQueryBlock * kKeyBlock, 0.0f);
    pack_across(at_.k, head_.stride, head_.keys, s_.size, m_.k_across);
    pack_across(at_.v, head_.value_stride, head_.keys, s_.value_size, m_.v_across);
    for (int64_t key = 0; key < head_.keys; key += kKeyBlock) {
      pack_columns(at_.k + key * head_.stride, head_.stride, std::min(kKeyBlock, head_.keys - key),
                   s_.size, kKeyBlock, m_.k + key * s_.columns);
    }
    std::fill_n(m_.dk, s_.blocks * kKeyBlock * s_.columns, 0.0f);
    std::fill_n(m_.dv, s_.blocks * kKeyBlock * s_.value_columns, 0.0f);
    for (int64_t first = 0, queries = 0; first < head_.queries; first += queries) {
      queries = queries_of_block(head_, first);
      of_queries(first, queries);
    }
    for (int64_t j = 0; j < head_.keys; ++j) {
      scaled_row(m_.dk + j * s_.columns, 1, s_.size, at_.dk + j * head_.stride);
      scaled_row(m_.dv + j * s_.value_columns, 1, s_.value_size, at_.dv + j * head_.value_stride);
    }
  }

 private:
  void of_queries(int64_t first, int64_t queries) {
    const float* const dy = at_.dy + first * head_.value_stride;
    const float* const y = at_.y + first * head_.value_stride;
    copy_rows(at_.q + first * head_.stride, head_.stride, queries, s_.size, head_.scale, m_.q);
    pack_columns(m_.q, s_.size, queries, s_.size, kQueryBlock, m_.q_panels);
    copy_rows(dy, head_.value_stride, queries, s_.value_size, 1, m_.dy);
    pack_columns(m_.dy, s_.value_size, queries, s_.value_size, kQueryBlock, m_.dy_panels);
    for (int64_t i = 0; i < queries; ++i) {
      dot_[i] = dot(y + i * head_.value_stride, dy + i * head_.value_stride, s_.value_size);
    }
    std::fill_n(m_.dq, kQueryBlock * s_.columns, 0.0f);
    const int64_t number = head_.first_query + first;
    const int64_t keys = head_.causal ? std::min(head_.keys, number + queries) : head_.keys;
    for (int64_t key = 0; key < keys; key += kKeyBlock) {
      const Blocks b{number, queries, key, std::min(kKeyBlock, head_.keys - key), head_.causal};
      of_blocks(b, at_.kept + first);
    }
    for (int64_t i = 0; i < queries; ++i) {
      scaled_row(m_.dq + i * s_.columns, head_.scale, s_.size, at_.dq + (first + i) * head_.stride);
    }
  }

  void of_blocks(const Blocks& b, const KeptOfQuery* kept) {
    scores_of(b, m_.q, m_.k_across + b.first_key * s_.size, s_.size, m_.p);
    scores_of(b, m_.dy, m_.v_across + b.first_key * s_.value_size, s_.value_size, m_.ds);
    Dropped dropped(head_, b);
    for (int64_t i = 0; i < b.queries; ++i) of_query(b, i, kept[i], dropped);
    const auto seeing = [&](int64_t group, int64_t) {
      const int64_t first = b.first_to_see(group);
      return TermRange{first, b.queries - first};
    };
    const int64_t groups = groups_of(b.keys);
    product_tiles<true>(groups, panels_of(s_.value_size), {m_.p, 1, kKeyBlock},
                        {m_.dy_panels, kQueryBlock * kPanel},
                        {m_.dv + b.first_key * s_.value_columns, s_.value_columns}, seeing);
    product_tiles<true>(groups, panels_of(s_.size), {m_.ds, 1, kKeyBlock},
                        {m_.q_panels, kQueryBlock * kPanel},
                        {m_.dk + b.first_key * s_.columns, s_.columns}, seeing);
    product_tiles<true>(groups_of(b.queries), panels_of(s_.size), {m_.ds, kKeyBlock, 1},
                        {m_.k + b.first_key * s_.columns, kKeyBlock * kPanel}, {m_.dq, s_.columns},
                        [&](int64_t group, int64_t) {
                          return TermRange{0, b.seen_by_group(group)};
                        });
  }

  // From the scores and the gradients of probabilities of a query: the probabilities that weighed
  // values, and the gradients of scores.
  HWY_INLINE void of_query(const Blocks& b, int64_t i, const KeptOfQuery& kept, Dropped& dropped) {
    const D d;
    float *const p = m_.p + i * kKeyBlock, *const ds = m_.ds + i * kKeyBlock;
    const int64_t seen = b.seen(i), width = panels_of(seen) * kPanel;
    std::fill(p + seen, p + width, -std::numeric_limits<float>::infinity());
    std::fill(ds + seen, ds + width, 0.0f);
    if (dropped.any()) dropped.draw(i);
    const V largest = hn::Set(d, kept.largest), dot = hn::Set(d, dot_[i]);
    // The factor of kept elements is in that of the forward pass, too.
    const V factor = hn::Set(d, kept.factor);
    for (int64_t j = 0; j < width; j += kLanesOfVector) {
      const V e = hn::Mul(exponential_below_1(hn::Sub(hn::LoadU(d, p + j), largest)), factor);
      V dp = hn::LoadU(d, ds + j);
      if (dropped.any()) dp = dropped.applied(dp, j);
      hn::StoreU(dropped.any() ? dropped.applied(e, j) : e, d, p + j);
      hn::StoreU(hn::Mul(e, hn::Sub(dp, dot)), d, ds + j);
    }
    // Groups of queries and groups of keys read zeros where the query sees nothing.
    const int64_t read = std::max(b.seen_by_group(i / kGroup), groups_of(seen) * kGroup);
    const int64_t all = panels_of(read) * kPanel;
    std::fill(p + width, p + all, 0.0f);
    std::fill(ds + width, ds + all, 0.0f);
  }

  const AttentionHead& head_;
  const AttentionGradients& at_;
  HeadSizes s_;
  Parts parts_;
  BackwardMemory m_;
  float dot_[kQueryBlock];
};

void backward_of_head(const AttentionHead& head, const AttentionGradients& at, void* scratch) {
  BackwardOfHead(head, at, scratch).run();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(forward_of_head);
HWY_EXPORT(backward_of_head);

void attention_forward(const AttentionHead& head, const float* q, const float* k, const float* v,
                       float* y, KeptOfQuery* kept, void* scratch) {
  HWY_DYNAMIC_DISPATCH(forward_of_head)(head, q, k, v, y, kept, scratch);
}

void attention_backward(const AttentionHead& head, const AttentionGradients& at, void* scratch) {
  HWY_DYNAMIC_DISPATCH(backward_of_head)(head, at, scratch);
}

namespace {

template <class Memory>
size_t bytes_of(int64_t keys, int64_t size, int64_t value_size) {
  Parts parts(nullptr);
  const Memory memory(HeadSizes(keys, size, value_size), parts);
  return parts.bytes();
}

}  // namespace

size_t attention_scratch(int64_t keys, int64_t size, int64_t value_size) {
  return bytes_of<ForwardMemory>(keys, size, value_size);
}

size_t attention_backward_scratch(int64_t keys, int64_t size, int64_t value_size) {
  return bytes_of<BackwardMemory>(keys, size, value_size);
}

}  // namespace lockstep::kernels::cpu
#endif
