// Connectionist temporal classification (Graves et al. 2006).
#pragma once

#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels {

// loss[n] = -log(sum of the probabilities of all alignments of the labels). An alignment gives each
// valid step a label or the blank class; without repetitions, and then without blanks, it is the
// labels. Probabilities of a step are the softmax of its logits.
//
// Inputs: logits (n x t x k), lengths (n, i32), labels (n x l, i32), label lengths (n, i32).
// Output: loss (n). Lengths outside of 0 to t (l) are moved to the nearest of these; steps and
// labels from the length on are not read. Without an alignment the loss is infinite, or 0 if
// `zero_infinity`; a label outside of 0 to k - 1, or the blank one, makes it NaN. In these cases
// the gradients are 0, as those of steps that are not valid are.
//
// All is in double (ctc_row.h), and the bits of an observation depend on its valid steps and labels
// alone.
struct CtcProblem {
  TensorSpec logits;
  int64_t most_labels = 0;  // l
  int64_t blank = 0;
  bool zero_infinity = false;
};

}  // namespace lockstep::kernels
