#include <algorithm>
#include <cmath>

#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {

namespace {

// Sizes and settings; without lengths all steps are valid.
struct Sequences {
  int64_t n, tq, tk, heads, size, value_size;
  std::vector<double> key_lengths = {}, query_lengths = {};
  bool causal = false;
  double dropout = 0;
  std::optional<double> scale = std::nullopt;
  RandomContext step = {};
  uint64_t layer = 77;
  bool from_end = false;
};

// Plain loops over all pairs.
class AttentionReference {
 public:
  AttentionReference(const Sequences& s, const std::vector<Array>& in)
      : s_(s), q_(in[0]), k_(in[1]), v_(in[2]) {}

  Array forward() {
    Array y({s_.n, s_.tq, s_.heads * s_.value_size});
    each_query([&](int64_t row, int64_t h, int64_t i, const std::vector<double>& p) {
      for (size_t j = 0; j < p.size(); ++j) {
        for (int64_t c = 0; c < s_.value_size; ++c) {
          y[value_at(row, i, h, c, s_.tq)] +=
              p[j] * dropped(row, h, i, static_cast<int64_t>(j)) *
              v_[value_at(row, static_cast<int64_t>(j), h, c, s_.tk)];
        }
      }
    });
    return y;
  }

  std::vector<Array> backward(const Array& dy) {
    Array dq(q_.dims), dk(k_.dims), dv(v_.dims);
    each_query([&](int64_t row, int64_t h, int64_t i, const std::vector<double>& p) {
      std::vector<double> dp(p.size());
      double mean = 0;
      for (size_t n = 0; n < p.size(); ++n) {
        const auto j = static_cast<int64_t>(n);
        const double factor = dropped(row, h, i, j);
        for (int64_t c = 0; c < s_.value_size; ++c) {
          const double slope = dy[value_at(row, i, h, c, s_.tq)];
          dp[n] += factor * slope * v_[value_at(row, j, h, c, s_.tk)];
          dv[value_at(row, j, h, c, s_.tk)] += factor * p[n] * slope;
        }
        mean += p[n] * dp[n];
      }
      for (size_t n = 0; n < p.size(); ++n) {
        const auto j = static_cast<int64_t>(n);
        const double ds = scale() * p[n] * (dp[n] - mean);
        for (int64_t c = 0; c < s_.size; ++c) {
          dq[at(row, i, h, c, s_.tq)] += ds * k_[at(row, j, h, c, s_.tk)];
          dk[at(row, j, h, c, s_.tk)] += ds * q_[at(row, i, h, c, s_.tq)];
        }
      }
    });
    return {dq, dk, dv};
  }

 private:
  double scale() const { return s_.scale.value_or(1 / std::sqrt(static_cast<double>(s_.size))); }
  int64_t at(int64_t row, int64_t t, int64_t h, int64_t c, int64_t steps) const {
    return ((row * steps + t) * s_.heads + h) * s_.size + c;
  }
  int64_t value_at(int64_t row, int64_t t, int64_t h, int64_t c, int64_t steps) const {
    return ((row * steps + t) * s_.heads + h) * s_.value_size + c;
  }
  static int64_t length(const std::vector<double>& lengths, int64_t row, int64_t steps) {
    return lengths.empty() ? steps : static_cast<int64_t>(lengths[static_cast<size_t>(row)]);
  }
  double dropped(int64_t row, int64_t h, int64_t i, int64_t j) const {
    if (s_.dropout == 0) return 1;
    const RandomStream stream({s_.step.seed, RandomUse::dropout, s_.layer, s_.step.iteration,
                               static_cast<uint64_t>(s_.step.first_row + row)});
    const uint32_t word = stream.bits((static_cast<uint64_t>(h) << 48) +
                                      (static_cast<uint64_t>(i) << 24) + static_cast<uint64_t>(j));
    return static_cast<double>(word) < std::floor(s_.dropout * 0x1p32) ? 0 : 1 / (1 - s_.dropout);
  }
  // Calls use(row, head, query, probabilities of the keys that it sees) for valid queries.
  template <class Use>
  void each_query(const Use& use) const {
    for (int64_t row = 0; row < s_.n; ++row) {
      const int64_t keys = length(s_.key_lengths, row, s_.tk);
      if (keys == 0) continue;
      for (int64_t h = 0; h < s_.heads; ++h) {
        const int64_t queries = length(s_.query_lengths, row, s_.tq);
        for (int64_t i = 0; i < queries; ++i) {
          const int64_t last = s_.from_end ? keys - queries + i : i;
          if (s_.causal && last < 0) continue;
          std::vector<double> p(static_cast<size_t>(s_.causal ? std::min(keys, last + 1) : keys));
          for (size_t j = 0; j < p.size(); ++j) {
            for (int64_t c = 0; c < s_.size; ++c) {
              p[j] += q_[at(row, i, h, c, s_.tq)] * scale() *
                      k_[at(row, static_cast<int64_t>(j), h, c, s_.tk)];
            }
          }
          const double top = *std::max_element(p.begin(), p.end());
          double total = 0;
          for (double& e : p) total += e = std::exp(e - top);
          for (double& e : p) e /= total;
          use(row, h, i, p);
        }
      }
    }
  }

  const Sequences& s_;
  const Array &q_, &k_, &v_;
};

Case attention_case(std::string name, const Sequences& s, double size_of_scores = 1) {
  Case c;
  c.name = std::move(name);
  c.op = ops::make_attention({.heads = s.heads,
                              .causal = s.causal,
                              .from_end = s.from_end,
                              .scale = s.scale,
                              .dropout = s.dropout,
                              .layer = s.layer},
                             !s.key_lengths.empty(), !s.query_lengths.empty());
  const double most = size_of_scores;
  c.inputs = {{random_array({s.n, s.tq, s.heads * s.size}, 301, -most, most)},
              {random_array({s.n, s.tk, s.heads * s.size}, 302)},
              {random_array({s.n, s.tk, s.heads * s.value_size}, 303)}};
  for (const auto& lengths : {s.key_lengths, s.query_lengths}) {
    if (lengths.empty()) continue;
    Array values({s.n});
    values.values = lengths;
    c.inputs.push_back({.value = values, .dtype = DType::i32, .gradient = false});
  }
  const size_t inputs = c.inputs.size();
  c.forward = [s](const std::vector<Array>& in) {
    return std::vector<Array>{AttentionReference(s, in).forward()};
  };
  c.backward = [s, inputs](const std::vector<Array>& in, const Array& dy) {
    std::vector<Array> gradients = AttentionReference(s, in).backward(dy);
    gradients.resize(inputs);
    return gradients;
  };
  c.step = s.step;
  return c;
}

}  // namespace

std::vector<Case> attention_cases() {
  const std::vector<double> mixed{0, 5, 1, 3};
  std::vector<Case> cases;
  cases.push_back(attention_case("all_steps", {2, 5, 7, 2, 3, 4}));
  cases.push_back(attention_case("causal", {2, 6, 6, 1, 4, 4, {}, {}, true}));
  cases.push_back(attention_case("lengths", {4, 5, 5, 2, 3, 3, mixed, mixed}));
  cases.push_back(attention_case("causal_lengths", {4, 5, 5, 3, 2, 5, mixed, mixed, true}));
  cases.push_back(attention_case("lengths_of_keys", {4, 3, 5, 2, 4, 1, mixed}));
  cases.push_back(attention_case("lengths_of_queries", {2, 4, 3, 1, 5, 2, {}, {0, 2}}));
  cases.push_back(attention_case("causal_more_keys", {2, 3, 7, 2, 4, 3, {}, {}, true}));
  cases.push_back(attention_case("causal_more_queries", {2, 7, 3, 2, 4, 3, {3, 2}, {6, 7}, true}));
  cases.push_back(attention_case("no_valid_step", {2, 3, 4, 1, 2, 2, {0, 0}, {3, 2}}));
  cases.push_back(attention_case("one_of_everything", {1, 1, 1, 1, 1, 1}));
  cases.back().cancelling = 1;
  // The gradients of one key's score cancel.
  cases.push_back(attention_case("one_key", {3, 4, 1, 2, 3, 2, {1, 0, 1}}));
  cases.back().cancelling = 1;
  // Several blocks, whole ones and others.
  cases.push_back(attention_case("blocks", {2, 50, 130, 1, 3, 2, {130, 97}, {50, 49}}));
  cases.push_back(attention_case("causal_blocks", {1, 112, 112, 1, 2, 2, {109}, {109}, true}));
  cases.push_back(attention_case("head_of_36", {1, 14, 18, 2, 36, 33, {17}, {13}, true}));
  cases.push_back(attention_case(
      "dropout", {3, 6, 9, 2, 4, 3, {9, 5, 0}, {6, 2, 3}, false, 0.3, {}, {7, 3, 125}}));
  cases.push_back(
      attention_case("causal_dropout_of_blocks",
                     {1, 100, 100, 2, 1, 2, {}, {}, true, 0.5, {}, {~uint64_t{0}, 4, 1}}));
  cases.push_back(attention_case("from_end", {2, 3, 7, 2, 4, 3, {}, {}, true, 0, {}, {}, 7, true}));
  cases.push_back(attention_case(
      "from_end_lengths",
      {5, 4, 8, 2, 3, 3, {8, 4, 2, 0, 5}, {3, 4, 4, 2, 0}, true, 0, {}, {}, 7, true}));
  cases.push_back(attention_case(
      "from_end_blocks",
      {2, 60, 130, 1, 3, 2, {130, 97}, {60, 49}, true, 0.3, {}, {5, 2, 9}, 7, true}));
  cases.push_back(
      attention_case("from_end_late", {1, 40, 200, 1, 3, 2, {}, {}, true, 0, {}, {}, 7, true}));
  cases.push_back(attention_case("scale", {2, 5, 6, 2, 3, 2, {}, {}, false, 0, -1.5}));
  // Scores of hundreds: most weights are 0.
  cases.push_back(attention_case("large_scores", {2, 20, 110, 1, 8, 4}, 300));
  cases.back().cancelling = 1;
  cases.back().smooth = false;
  return cases;
}

}  // namespace lockstep::optest
