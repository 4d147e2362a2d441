// The alignments of one observation, one source for CPUs and GPUs. Logarithms of probabilities, in
// double.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/engine/kernels/elementwise/double_functions.h"

namespace lockstep::kernels {
inline namespace LOCKSTEP_FUNCTIONS_OF_PROCESSOR {

// An observation. The labels with blanks around each of them are the states 0 to 2 * labels.
struct CtcRow {
  const float* logits;    // steps x classes
  const int32_t* labels;  // of classes
  int64_t steps, label_count, classes, blank;

  // Memory for the functions below: doubles.
  static LOCKSTEP_FUNCTION int64_t forward_memory(int64_t most_labels) {
    return 2 * (2 * most_labels + 1);
  }
  static LOCKSTEP_FUNCTION int64_t backward_memory(int64_t steps, int64_t most_labels,
                                                   int64_t classes) {
    return (2 * most_labels + 1) * (steps + 2) + steps + classes;
  }

  static constexpr double kImpossible = -__builtin_inf();

  LOCKSTEP_FUNCTION int64_t states() const { return 2 * label_count + 1; }
  LOCKSTEP_FUNCTION int64_t class_of(int64_t state) const {
    return state % 2 == 0 ? blank : labels[state / 2];
  }
  // Whether an alignment may go from state - 2 to the state, without the blank between them.
  LOCKSTEP_FUNCTION bool follows(int64_t state) const {
    return state >= 2 && state % 2 == 1 && labels[state / 2] != labels[state / 2 - 1];
  }
  LOCKSTEP_FUNCTION bool has_known_labels() const {
    for (int64_t i = 0; i < label_count; ++i) {
      if (labels[i] < 0 || labels[i] >= classes || labels[i] == blank) return false;
    }
    return true;
  }

  // log(sum over classes of exp(logit)) of a step.
  LOCKSTEP_FUNCTION double norm_of(int64_t step) const {
    const float* const x = logits + step * classes;
    float top = x[0];
    for (int64_t k = 1; k < classes; ++k) top = top < x[k] ? x[k] : top;
    double total = 0;
    for (int64_t k = 0; k < classes; ++k) {
      total += in_double::exponential(static_cast<double>(x[k]) - static_cast<double>(top));
    }
    return static_cast<double>(top) + in_double::logarithm(total);
  }
  LOCKSTEP_FUNCTION double log_probability(int64_t step, int64_t of_class, double norm) const {
    return static_cast<double>(logits[step * classes + of_class]) - norm;
  }

  // log(e^a + e^b + e^c).
  static LOCKSTEP_FUNCTION double log_of_sum(double a, double b, double c) {
    double top = a < b ? b : a;
    top = top < c ? c : top;
    if (top == kImpossible) return top;
    return top +
           in_double::logarithm(in_double::exponential(a - top) + in_double::exponential(b - top) +
                                in_double::exponential(c - top));
  }

  // to[s]: all alignments of the steps up to this one that end in state s. `before`: the same of
  // the step before; not read for the first step.
  LOCKSTEP_FUNCTION void forward_of_step(int64_t step, double norm, const double* before,
                                         double* to) const {
    for (int64_t s = 0; s < states(); ++s) {
      double sum = s < 2 ? 0 : kImpossible;
      if (step > 0) {
        sum = log_of_sum(before[s], s > 0 ? before[s - 1] : kImpossible,
                         follows(s) ? before[s - 2] : kImpossible);
      }
      to[s] = sum + log_probability(step, class_of(s), norm);
    }
  }
  // Of all alignments that end: those in the last two states of the last step.
  LOCKSTEP_FUNCTION double total_of(const double* last) const {
    const int64_t s = states();
    return log_of_sum(last[s - 1], s > 1 ? last[s - 2] : kImpossible, kImpossible);
  }

  // The logarithm of the probability of all alignments. `memory`: forward_memory().
  LOCKSTEP_FUNCTION double log_total(double* memory) const {
    if (steps == 0) return label_count == 0 ? 0 : kImpossible;
    double *before = memory, *now = memory + states();
    for (int64_t t = 0; t < steps; ++t) {
      forward_of_step(t, norm_of(t), before, now);
      double* const free = before;
      before = now;
      now = free;
    }
    return total_of(before);
  }

  // Of each state the alignments of the steps after this one, from those of the next step.
  LOCKSTEP_FUNCTION void backward_of_step(int64_t next, double norm, const double* after,
                                          double* to) const {
    const int64_t count = states();
    const auto from = [&](int64_t s) {
      return s < count ? after[s] + log_probability(next, class_of(s), norm) : kImpossible;
    };
    for (int64_t s = 0; s < count; ++s) {
      to[s] = log_of_sum(from(s), from(s + 1),
                         s + 2 < count && follows(s + 2) ? from(s + 2) : kImpossible);
    }
  }

  // Writes factor * the derivatives of -log_total() with respect to the logits of the valid steps;
  // zeros if there is no alignment. `memory`: backward_memory().
  LOCKSTEP_FUNCTION void gradient(double factor, double* memory, float* dx) const {
    const int64_t count = states();
    double* const forward = memory;           // steps x states
    double* after = forward + steps * count;  // states
    double* now = after + count;              // states
    double* const norms = now + count;        // steps
    double* const shares = norms + steps;     // classes
    for (int64_t t = 0; t < steps; ++t) {
      norms[t] = norm_of(t);
      double* const to = forward + t * count;
      forward_of_step(t, norms[t], t == 0 ? to : to - count, to);
    }
    const double total = steps == 0 ? kImpossible : total_of(forward + (steps - 1) * count);
    for (int64_t t = steps; t-- > 0;) {
      float* const to = dx + t * classes;
      if (total == kImpossible) {
        for (int64_t k = 0; k < classes; ++k) to[k] = 0;
        continue;
      }
      if (t + 1 == steps) {
        for (int64_t s = 0; s < count; ++s) now[s] = s + 2 < count ? kImpossible : 0;
      } else {
        backward_of_step(t + 1, norms[t + 1], after, now);
      }
      for (int64_t k = 0; k < classes; ++k) shares[k] = 0;
      for (int64_t s = 0; s < count; ++s) {
        const double share = forward[t * count + s] + now[s] - total;
        if (share > -700) shares[class_of(s)] += in_double::exponential(share);
      }
      for (int64_t k = 0; k < classes; ++k) {
        const double p = in_double::exponential(log_probability(t, k, norms[t]));
        to[k] = static_cast<float>(factor * (p - shares[k]));
      }
      double* const free = after;
      after = now;
      now = free;
    }
  }
};

}  // namespace LOCKSTEP_FUNCTIONS_OF_PROCESSOR
}  // namespace lockstep::kernels
