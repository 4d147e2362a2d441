#include <cmath>

#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {

namespace {

// Labels of each observation; lengths of logits.
struct Sentences {
  int64_t steps, classes;
  std::vector<std::vector<double>> labels;
  std::vector<double> lengths;
  ops::CtcParams params = {};
};

// Paths of classes by how many labels they have passed and which class they end with. The sum of
// the probabilities of those that are the labels. `step`, `of_class`: only paths with this class
// there; step -1: all.
double paths(const Sentences& s, size_t i, const std::vector<double>& p, int64_t step,
             int64_t of_class) {
  const auto& labels = s.labels[i];
  const auto k = static_cast<size_t>(s.classes), blank = static_cast<size_t>(s.params.blank);
  // In the beginning the last class is the blank one.
  std::vector<double> now((labels.size() + 1) * k);
  now[blank] = 1;
  for (int64_t t = 0; t < static_cast<int64_t>(s.lengths[i]); ++t) {
    std::vector<double> next(now.size());
    for (size_t passed = 0; passed <= labels.size(); ++passed) {
      for (size_t last = 0; last < k; ++last) {
        for (size_t c = 0; c < k; ++c) {
          if (t == step && c != static_cast<size_t>(of_class)) continue;
          const bool same = c == blank || c == last;
          if (!same && (passed == labels.size() || labels[passed] != static_cast<double>(c))) {
            continue;
          }
          next[(passed + (same ? 0 : 1)) * k + c] +=
              now[passed * k + last] * p[static_cast<size_t>(t) * k + c];
        }
      }
    }
    now = next;
  }
  double sum = 0;
  for (size_t last = 0; last < k; ++last) sum += now[labels.size() * k + last];
  return sum;
}

// Of an observation, steps x classes.
std::vector<double> probabilities_of(const Sentences& s, const Array& x, size_t i) {
  const int64_t count = s.steps * s.classes;
  std::vector<double> p(static_cast<size_t>(count));
  for (int64_t t = 0; t < s.steps; ++t) {
    double sum = 0;
    for (int64_t k = 0; k < s.classes; ++k) {
      const int64_t at = t * s.classes + k;
      sum += p[static_cast<size_t>(at)] = std::exp(x[static_cast<int64_t>(i) * count + at]);
    }
    for (int64_t k = 0; k < s.classes; ++k) p[static_cast<size_t>(t * s.classes + k)] /= sum;
  }
  return p;
}

Array ctc_reference(const Sentences& s, const Array& x) {
  Array loss({static_cast<int64_t>(s.labels.size())});
  for (size_t i = 0; i < s.labels.size(); ++i) {
    const double all = paths(s, i, probabilities_of(s, x, i), -1, 0);
    loss[static_cast<int64_t>(i)] = all == 0 && s.params.zero_infinity ? 0 : -std::log(all);
  }
  return loss;
}

Array ctc_reference_diff(const Sentences& s, const Array& x, const Array& dy) {
  Array dx(x.dims);
  for (size_t i = 0; i < s.labels.size(); ++i) {
    const std::vector<double> p = probabilities_of(s, x, i);
    const double all = paths(s, i, p, -1, 0);
    if (all == 0) continue;
    for (int64_t t = 0; t < static_cast<int64_t>(s.lengths[i]); ++t) {
      for (int64_t k = 0; k < s.classes; ++k) {
        const int64_t at = t * s.classes + k;
        dx[static_cast<int64_t>(i) * s.steps * s.classes + at] =
            dy[static_cast<int64_t>(i)] * (p[static_cast<size_t>(at)] - paths(s, i, p, t, k) / all);
      }
    }
  }
  return dx;
}

Case ctc_case(std::string name, const Sentences& s) {
  const auto n = static_cast<int64_t>(s.labels.size());
  size_t most = 1;
  for (const auto& labels : s.labels) most = std::max(most, labels.size());
  // Labels that are not valid are outside of the classes.
  Array labels({n, static_cast<int64_t>(most)}, -7), lengths({n}), label_lengths({n});
  for (size_t i = 0; i < s.labels.size(); ++i) {
    std::copy(s.labels[i].begin(), s.labels[i].end(),
              labels.values.begin() + static_cast<std::ptrdiff_t>(i * most));
    label_lengths.values[i] = static_cast<double>(s.labels[i].size());
  }
  lengths.values = s.lengths;
  Case c;
  c.name = std::move(name);
  c.op = ops::make_ctc_loss(s.params);
  c.inputs = {{random_array({n, s.steps, s.classes}, 401, -2, 2)},
              {.value = lengths, .dtype = DType::i32, .gradient = false},
              {.value = labels, .dtype = DType::i32, .gradient = false},
              {.value = label_lengths, .dtype = DType::i32, .gradient = false}};
  c.forward = [s](const std::vector<Array>& in) {
    return std::vector<Array>{ctc_reference(s, in[0])};
  };
  c.backward = [s](const std::vector<Array>& in, const Array& dy) {
    return std::vector<Array>{ctc_reference_diff(s, in[0], dy), {}, {}, {}};
  };
  return c;
}

}  // namespace

std::vector<Case> ctc_cases() {
  std::vector<Case> cases;
  cases.push_back(ctc_case("one_label", {4, 3, {{1}}, {4}}));
  cases.push_back(ctc_case("lengths", {7, 4, {{1, 2}, {3}, {}, {2, 1, 3}}, {7, 1, 5, 4}}));
  cases.push_back(ctc_case("equal_labels", {6, 3, {{1, 1}, {2, 2, 2}, {1, 2, 1}}, {3, 6, 5}}));
  cases.push_back(
      ctc_case("other_blank", {5, 4, {{0, 1}, {1, 3, 3}, {0}}, {5, 5, 2}, {.blank = 2}}));
  cases.push_back(ctc_case("no_steps", {3, 3, {{}, {1}}, {0, 3}}));
  cases.push_back(ctc_case(
      "impossible_as_zero",
      {4, 3, {{1, 1}, {1, 2, 1}, {1}, {2}}, {2, 2, 0, 3}, {.blank = 0, .zero_infinity = true}}));
  cases.push_back(ctc_case("blank_alone", {3, 1, {{}, {}}, {3, 2}}));
  cases.back().cancelling = 1;
  cases.push_back(ctc_case("longer", {19, 6, {{1, 2, 2, 5, 3}, {4, 4, 1, 5, 2, 3, 3}}, {17, 19}}));
  return cases;
}

}  // namespace lockstep::optest
