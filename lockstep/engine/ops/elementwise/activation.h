// Elementwise activations for any shape. NaN gives NaN, no other element gives NaN, and infinities
// give the limits. All functions are thread-safe.
#pragma once

#include "lockstep/engine/autograd/tape.h"

namespace lockstep::ops {

// x for x > 0, otherwise scale * x. The gradient at 0 is scale. Throws InvalidArgument unless
// `scale` is finite and not negative.
Tensor leaky_relu(const Tensor& x, double scale = 0.01);

// Exponential linear unit (Clevert, Unterthiner, Hochreiter 2016): x for x > 0, otherwise alpha *
// (exp(x) - 1). The gradient at 0 is alpha. Throws InvalidArgument unless `alpha` is finite and not
// negative.
Tensor elu(const Tensor& x, double alpha = 1);

// Gaussian error linear unit (Hendrycks, Gimpel 2016): x * (1 + erf(x / sqrt(2))) / 2. The tanh
// approximation is x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2.
enum class GeluApproximation : uint8_t { none, tanh };
Tensor gelu(const Tensor& x, GeluApproximation approximation = GeluApproximation::none);

// x / (1 + exp(-x)).
Tensor swish(const Tensor& x);

Tensor tanh(const Tensor& x);

// 1 / (1 + exp(-x)).
Tensor sigmoid(const Tensor& x);

// log(1 + exp(x)).
Tensor softplus(const Tensor& x);

OpPtr make_leaky_relu(double scale);
OpPtr make_elu(double alpha);
OpPtr make_gelu(GeluApproximation approximation);
OpPtr make_swish();
OpPtr make_tanh();
OpPtr make_sigmoid();
OpPtr make_softplus();

}  // namespace lockstep::ops
