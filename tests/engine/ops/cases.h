// The cases of all ops, and makers of cases with random inputs.
#pragma once

#include <memory>

#include "lockstep/engine/kernels/elementwise/activation.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"

namespace lockstep::optest {

Case convolution(std::string name, std::vector<int64_t> x, std::vector<int64_t> weights,
                 const ops::Convolution2dParams& params = {}, bool bias = true);
Case transposed_convolution(std::string name, std::vector<int64_t> x, std::vector<int64_t> weights,
                            const ops::TransposedConvolution2dParams& params, bool bias = true);
Case fully_connected(std::string name, std::vector<int64_t> x, int64_t units, bool bias = true);
Case global_pooling(std::string name, Array x);
// `kind` overrides params.count_padding.
Case pooling(std::string name, Array x, reference::Pooling kind, ops::Pooling2dParams params);

struct NormalizationKind {
  bool training = true;
  bool relu = false;                 // fused
  std::vector<int64_t> window = {};  // rows and columns of a fused maximum; empty: none
  double epsilon = 1e-5;
  bool bias = false;  // added to x first
};
Case batch_normalization(std::string name, const Array& x, const NormalizationKind& kind);

Case group_normalization(std::string name, const Array& x, int64_t groups, double epsilon = 1e-5);

// a and b as they are in memory; y: the shape of the result.
Case matmul(const std::vector<int64_t>& a, const std::vector<int64_t>& b,
            const std::vector<int64_t>& y, bool transpose_a, bool transpose_b);
Case relu(std::string name, Array x);
Case clipped_relu(std::string name, Array x, double ceiling);
Case activation(std::string name, kernels::ActivationKind kind, Array x, double parameter = 0);
Case addition(const std::vector<int64_t>& dims, int terms);
Case multiplication(const std::vector<int64_t>& dims, int factors);
Case concatenation(const std::vector<std::vector<int64_t>>& parts, int axis);
Case softmax(std::string name, Array x);
Case cross_entropy(std::string name, Array scores, bool from_logits);

std::vector<Case> convolution_cases();
std::vector<Case> transposed_convolution_cases();
std::vector<Case> pooling_cases();
std::vector<Case> space_cases();
std::vector<Case> normalization_cases();
std::vector<Case> group_normalization_cases();
std::vector<Case> activation_cases();
std::vector<Case> elementwise_cases();
std::vector<Case> loss_cases();
std::vector<Case> matmul_cases();
std::vector<Case> attention_cases();
std::vector<Case> ctc_cases();
std::vector<Case> recurrent_cases();
std::vector<Case> all_cases();
// Those that the table of `device` has kernels for; elsewhere single ops take the place of a fused
// one.
std::vector<Case> offered_cases(Device device);
// The same, made once: copies of their arrays take longer than most tests.
using SharedCase = std::shared_ptr<const Case>;
std::vector<SharedCase> shared_cases(Device device);

}  // namespace lockstep::optest
