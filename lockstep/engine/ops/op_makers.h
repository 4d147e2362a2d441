// The ops themselves, for other ops and for tests of kernels and plans; all else applies the
// functions of ops.h, which describes what they compute. Each throws InvalidArgument as the
// function of its name does for its settings. Thread-safe.
#pragma once

#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/ops/ops.h"

namespace lockstep::ops {

OpPtr make_relu();
OpPtr make_clipped_relu(double ceiling);
OpPtr make_leaky_relu(double scale);
OpPtr make_elu(double alpha);
OpPtr make_gelu(GeluApproximation approximation);
OpPtr make_swish();
OpPtr make_tanh();
OpPtr make_sigmoid();
OpPtr make_softplus();
OpPtr make_add();
OpPtr make_multiply();
OpPtr make_dropout(double p, uint64_t layer);
OpPtr make_random_uniform(uint64_t draw);
// Inputs: x, weights and, if `bias` is true, bias.
OpPtr make_fully_connected(bool bias);
// Inputs: matrices a and b, either of which may be transposed in memory.
OpPtr make_matmul(bool transpose_a, bool transpose_b);
// The op itself, for plans. Inputs: x, weights and, if `bias` is true, bias.
OpPtr make_convolution2d(const Convolution2dParams& params, bool bias);
OpPtr make_convolution1d(const Convolution1dParams& params, bool bias);
OpPtr make_convolution3d(const Convolution3dParams& params, bool bias);
// The op itself, for plans. Inputs: x, weights and, if `bias` is true, bias.
OpPtr make_transposed_convolution2d(const TransposedConvolution2dParams& params, bool bias);
OpPtr make_max_pooling2d(const Pooling2dParams& params);
OpPtr make_average_pooling2d(const Pooling2dParams& params);
OpPtr make_global_average_pooling2d();
OpPtr make_max_pooling1d(const Pooling1dParams& params);
OpPtr make_max_pooling3d(const Pooling3dParams& params);
OpPtr make_average_pooling1d(const Pooling1dParams& params);
OpPtr make_average_pooling3d(const Pooling3dParams& params);
OpPtr make_global_average_pooling1d();
OpPtr make_global_average_pooling3d();
// Training: inputs x, scale, shift; outputs y, mean, variance. Otherwise: inputs x, scale, shift,
// mean, variance; output y. The op fuses with a relu that follows it, and then with a max pooling
// whose stride equals its window and which has no padding.
OpPtr make_batch_normalization(double epsilon, bool training);
OpPtr make_group_normalization(int64_t groups, double epsilon);
OpPtr make_normalize_images();
// Inputs: queries, keys, values, then the lengths of keys and of queries that are chosen.
OpPtr make_attention(const AttentionParams& params, bool key_lengths, bool query_lengths);
// Inputs: x, lengths, weights, recurrent weights, bias; of gru: the recurrent bias; h0; of lstm:
// c0. Outputs: y, h; of lstm: c.
OpPtr make_lstm(const LstmParams& params);
OpPtr make_gru(const GruParams& params);
OpPtr make_rnn(const RnnParams& params);
// Computes factor times the sum.
OpPtr make_sum(double factor = 1);
// Inputs: x and indices. `per_element`: each index chooses one element, as in gather().
OpPtr make_take(int axis, bool per_element);
// Inputs: updates, of the shape that taking from `shape` gives, and indices.
OpPtr make_scatter_add(const Shape& shape, int axis, bool per_element);
OpPtr make_cumsum(int axis, bool reverse);
OpPtr make_arg_reduce(int axis, bool keep_dims, bool smallest);
OpPtr make_astype(DType to);
OpPtr make_concat(int axis = 1);
OpPtr make_flatten();
OpPtr make_reshape(Shape observation);
// The op fuses with a cross-entropy that follows it.
OpPtr make_softmax();
// Inputs: probabilities, labels or shares; output: loss.
OpPtr make_cross_entropy();
// Inputs: logits, labels or shares. Outputs: loss, probabilities. No gradient flows back from the
// probabilities.
OpPtr make_softmax_cross_entropy();
// Inputs: logits, their lengths, labels, their lengths.
OpPtr make_ctc_loss(const CtcParams& params);
OpPtr make_mean_squared_error();

}  // namespace lockstep::ops
