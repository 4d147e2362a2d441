// Functions that create layers: convolution2d({.filters = 16, .kernel = {3, 3}}).
//
// Sizes are rows, columns. Network::analyze() checks the fields and reports each problem with the
// name of its layer. See Network for how to connect layers.
#pragma once

#include "lockstep/engine/nn/layer.h"

namespace lockstep {

// Input of images of height x width x channels with pixels from 0 to 255.
// normalization, with statistics of each channel over the training data:
//   none; zero-center: x - mean; z-score: (x - mean) / standard deviation;
//   rescale-zero-one: (x - min) / (max - min); rescale-symmetric: the same scaled to [-1, 1];
//   kept: by the values that the network has, such as those of a model it begins with.
struct ImageInputOptions {
  static constexpr const char* kType = "image_input";
  static constexpr const char* kHelp = "images of height x width x channels";
  int64_t height = 0, width = 0, channels = 0;
  std::string normalization = "zero-center";
  void visit(FieldVisitor& v);
};
LayerPtr image_input(ImageInputOptions options);

// Input of vectors of n features. `normalization` is as for image_input, with statistics of each
// feature over the training data. In a custom loop, set_input_normalization() sets the states
// `offset` and `factor`; before, the network does not run unless `normalization` is "none".
struct FeatureInputOptions {
  static constexpr const char* kType = "feature_input";
  static constexpr const char* kHelp = "vectors of features";
  int64_t features = 0;
  std::string normalization = "zero-center";
  void visit(FieldVisitor& v);
};
LayerPtr feature_input(FeatureInputOptions options);

// Inputs of sequences, and of volumes. Normalized like feature_input, with statistics of each
// channel (of sequences over all valid steps). With a length, sequences are arrays of channels x
// length for convolution1d() and the like. Without, observations are steps x channels, with
// different numbers of steps: layers such as lstm() take whole sequences, and all others are
// applied to each step.
struct SequenceInputOptions {
  static constexpr const char* kType = "sequence_input";
  static constexpr const char* kHelp = "sequences of channels, of one length or of any length";
  int64_t channels = 0, length = 0;
  std::string normalization = "zero-center";
  void visit(FieldVisitor& v);
};
LayerPtr sequence_input(SequenceInputOptions options);

// Input of sequences of tokens (i32): numbers of words, characters or bytes.
struct TokenInputOptions {
  static constexpr const char* kType = "token_input";
  static constexpr const char* kHelp = "sequences of tokens: words, characters or bytes";
  int64_t vocabulary = 0;
  void visit(FieldVisitor& v);
};
LayerPtr token_input(TokenInputOptions options);

struct Image3dInputOptions {
  static constexpr const char* kType = "image3d_input";
  static constexpr const char* kHelp = "volumes of depth x height x width x channels";
  int64_t depth = 0, height = 0, width = 0, channels = 0;
  std::string normalization = "zero-center";
  void visit(FieldVisitor& v);
};
LayerPtr image3d_input(Image3dInputOptions options);

// Convolution with `filters` filters; see ops::convolution2d() for the formula.
struct Convolution2dOptions {
  static constexpr const char* kType = "convolution2d";
  static constexpr const char* kHelp = "two-dimensional convolution";
  int64_t filters = 0;
  Size2d kernel{1, 1}, stride{1, 1};
  Padding2d padding{};
  Size2d dilation{1, 1};
  int64_t groups = 1;
  bool bias = true;
  std::string weights_initializer = "glorot", bias_initializer = "zeros";
  double weights_l2_factor = 1, bias_l2_factor = 0;
  double weights_learning_rate_factor = 1, bias_learning_rate_factor = 1;
  void visit(FieldVisitor& v);
};
LayerPtr convolution2d(Convolution2dOptions options);

// Convolution over sequences, and over volumes (depth x height x width). `causal`: zeros only
// before the first step, without `padding`. Sequences of different lengths need it, or padding
// "same", and a stride of 1; the steps after their ends count as zeros.
struct Convolution1dOptions {
  static constexpr const char* kType = "convolution1d";
  static constexpr const char* kHelp = "convolution of sequences";
  int64_t filters = 0;
  int64_t kernel = 1, stride = 1;
  Padding1d padding{};
  int64_t dilation = 1;
  int64_t groups = 1;
  bool causal = false;
  bool bias = true;
  std::string weights_initializer = "glorot", bias_initializer = "zeros";
  double weights_l2_factor = 1, bias_l2_factor = 0;
  double weights_learning_rate_factor = 1, bias_learning_rate_factor = 1;
  void visit(FieldVisitor& v);
};
LayerPtr convolution1d(Convolution1dOptions options);

struct Convolution3dOptions {
  static constexpr const char* kType = "convolution3d";
  static constexpr const char* kHelp = "three-dimensional convolution";
  int64_t filters = 0;
  Size3d kernel{1, 1, 1}, stride{1, 1, 1};
  Padding3d padding{};
  Size3d dilation{1, 1, 1};
  int64_t groups = 1;
  bool bias = true;
  std::string weights_initializer = "glorot", bias_initializer = "zeros";
  double weights_l2_factor = 1, bias_l2_factor = 0;
  double weights_learning_rate_factor = 1, bias_learning_rate_factor = 1;
  void visit(FieldVisitor& v);
};
LayerPtr convolution3d(Convolution3dOptions options);

// Transposed convolution, which enlarges images; see ops::transposed_convolution2d() for the
// formula. `padding` is cropped from the result. "same": the result's size is input size times
// stride.
struct TransposedConvolution2dOptions {
  static constexpr const char* kType = "transposed_convolution2d";
  static constexpr const char* kHelp = "two-dimensional transposed convolution: enlarges images";
  int64_t filters = 0;
  Size2d kernel{1, 1}, stride{1, 1};
  Padding2d padding{};
  Size2d dilation{1, 1};
  int64_t groups = 1;
  bool bias = true;
  std::string weights_initializer = "glorot", bias_initializer = "zeros";
  double weights_l2_factor = 1, bias_l2_factor = 0;
  double weights_learning_rate_factor = 1, bias_learning_rate_factor = 1;
  void visit(FieldVisitor& v);
};
LayerPtr transposed_convolution2d(TransposedConvolution2dOptions options);

// y = W x + b over all elements of an observation, or of each step of a sequence.
struct FullyConnectedOptions {
  static constexpr const char* kType = "fully_connected";
  static constexpr const char* kHelp = "dense layer: y = W x + b";
  int64_t units = 0;
  bool bias = true;
  std::string weights_initializer = "glorot", bias_initializer = "zeros";
  double weights_l2_factor = 1, bias_l2_factor = 0;
  double weights_learning_rate_factor = 1, bias_learning_rate_factor = 1;
  void visit(FieldVisitor& v);
};
LayerPtr fully_connected(FullyConnectedOptions options);

// Recurrent layers over sequences; see ops::lstm(), ops::gru() and ops::rnn() for the formulas.
// output: "sequence" (the hidden states of all steps) or "last" (that of the last step). Sequences
// of one length (channels x steps) give units x steps. bidirectional: a second network from the
// last step to the first adds as many channels. carry_state: each mini-batch begins with the states
// that the one before has left, row by row (see Network::make_row_states()).
struct LstmOptions {
  static constexpr const char* kType = "lstm";
  static constexpr const char* kHelp = "long short-term memory";
  int64_t units = 0;
  std::string output = "sequence";
  bool bidirectional = false, carry_state = false;
  std::string weights_initializer = "glorot", recurrent_initializer = "orthogonal";
  double weights_l2_factor = 1, learning_rate_factor = 1;
  void visit(FieldVisitor& v);
};
LayerPtr lstm(LstmOptions options);

struct GruOptions {
  static constexpr const char* kType = "gru";
  static constexpr const char* kHelp = "gated recurrent unit";
  int64_t units = 0;
  std::string output = "sequence";
  bool bidirectional = false, carry_state = false;
  std::string weights_initializer = "glorot", recurrent_initializer = "orthogonal";
  double weights_l2_factor = 1, learning_rate_factor = 1;
  bool reset_after = true;
  void visit(FieldVisitor& v);
};
LayerPtr gru(GruOptions options);

struct RnnOptions {
  static constexpr const char* kType = "rnn";
  static constexpr const char* kHelp = "Elman's recurrent network";
  int64_t units = 0;
  std::string output = "sequence";
  bool bidirectional = false, carry_state = false;
  std::string weights_initializer = "glorot", recurrent_initializer = "orthogonal";
  double weights_l2_factor = 1, learning_rate_factor = 1;
  std::string activation = "tanh";
  void visit(FieldVisitor& v);
};
LayerPtr rnn(RnnOptions options);

// A learned vector for each token.
struct EmbeddingOptions {
  static constexpr const char* kType = "embedding";
  static constexpr const char* kHelp = "a learned vector for each token";
  int64_t vocabulary = 0, units = 0;
  std::string weights_initializer = "narrow-normal";
  double weights_l2_factor = 1, weights_learning_rate_factor = 1;
  void visit(FieldVisitor& v);
};
LayerPtr embedding(EmbeddingOptions options);

// Vectors of features in which blocks of 0 and 1 are categories of tables: each block,
// `categories[i]` features from `first[i]` (counted from 0) on, becomes `units[i]` numbers, its
// product with a learned matrix: the row of its category, and 0 without a category. They follow the
// other features, which stay in their order. An input layer before does not normalize the blocks.
struct CategoryEmbeddingOptions {
  static constexpr const char* kType = "category_embedding";
  static constexpr const char* kHelp = "learned vectors for the categories of a table";
  std::vector<int64_t> first, categories, units;
  std::string weights_initializer = "narrow-normal";
  double weights_l2_factor = 1, weights_learning_rate_factor = 1;
  void visit(FieldVisitor& v);
};
LayerPtr category_embedding(CategoryEmbeddingOptions options);

// Adds a learned vector for each position. Steps of a sequence that is longer become NaN, which a
// training reports as a loss that is not finite; much longer ones are refused.
struct PositionEmbeddingOptions {
  static constexpr const char* kType = "position_embedding";
  static constexpr const char* kHelp = "adds a learned vector for each position in a sequence";
  int64_t positions = 0;
  double weights_l2_factor = 1, weights_learning_rate_factor = 1;
  void visit(FieldVisitor& v);
};
LayerPtr position_embedding(PositionEmbeddingOptions options);

// x / sqrt(mean(x^2) + epsilon) * scale over the channels.
struct RmsNormalizationOptions {
  static constexpr const char* kType = "rms_normalization";
  static constexpr const char* kHelp = "divides by the root mean square of the channels";
  double epsilon = 1e-5, l2_factor = 0, learning_rate_factor = 1;
  void visit(FieldVisitor& v);
};
LayerPtr rms_normalization(RmsNormalizationOptions options = {});

// Attention of the steps of a sequence to each other (PyTorch's MultiheadAttention): projections of
// queries, keys and values, ops::attention(), and a projection of its result.
struct SelfAttentionOptions {
  static constexpr const char* kType = "self_attention";
  static constexpr const char* kHelp = "attention of the steps of a sequence to each other";
  int64_t heads = 0;
  bool causal = false, bias = true;
  double dropout = 0;
  void visit(FieldVisitor& v);
};
LayerPtr self_attention(SelfAttentionOptions options);

// x + attention(norm(x)), then x + W gelu(V norm(x)): a block of a transformer with layer
// normalization before each part. `dropout`: of attention weights and of both parts' results.
struct TransformerBlockOptions {
  static constexpr const char* kType = "transformer_block";
  static constexpr const char* kHelp = "attention and a feed-forward network, each with a residual";
  int64_t heads = 0, feed_forward_factor = 4;
  bool causal = false;
  double dropout = 0, epsilon = 1e-5;
  void visit(FieldVisitor& v);
};
LayerPtr transformer_block(TransformerBlockOptions options);

// The last valid step of a sequence.
struct LastStepOptions {
  static constexpr const char* kType = "last_step";
  static constexpr const char* kHelp = "the last step of a sequence";
  void visit(FieldVisitor&) {}
};
LayerPtr last_step();

// Batch normalization. Training uses the statistics of a shard, prediction the moving statistics.
// moving = (1 - momentum) * moving + momentum * (statistic of the mini-batch). Variances are
// divided by the count.
struct BatchNormalizationOptions {
  static constexpr const char* kType = "batch_normalization";
  static constexpr const char* kHelp =
      "normalizes each channel over a shard, then scales and shifts it";
  double epsilon = 1e-5;
  double momentum = 0.1;
  double l2_factor = 0;
  double learning_rate_factor = 1;
  // In training, normalizes by the statistics of the mini-batch ("batch"), or as in prediction by
  // the moving ones, which then keep their values ("moving"): for layers of a trained network.
  std::string statistics = "batch";
  void visit(FieldVisitor& v);
};
LayerPtr batch_normalization(BatchNormalizationOptions options = {});

// Normalization of each observation separately, so training and prediction are equal. The mean
// becomes 0 and the variance 1 over all channels and space (layer), over the space of each channel
// (instance), or over groups of adjacent channels and their space (group). Each channel is then
// scaled and shifted. Variances are divided by the count.
struct LayerNormalizationOptions {
  static constexpr const char* kType = "layer_normalization";
  static constexpr const char* kHelp =
      "normalizes each observation, then scales and shifts each channel";
  double epsilon = 1e-5;
  double l2_factor = 0;
  double learning_rate_factor = 1;
  void visit(FieldVisitor& v);
};
LayerPtr layer_normalization(LayerNormalizationOptions options = {});

struct InstanceNormalizationOptions {
  static constexpr const char* kType = "instance_normalization";
  static constexpr const char* kHelp =
      "normalizes each channel of each observation, then scales and shifts it";
  double epsilon = 1e-5;
  double l2_factor = 0;
  double learning_rate_factor = 1;
  void visit(FieldVisitor& v);
};
LayerPtr instance_normalization(InstanceNormalizationOptions options = {});

struct GroupNormalizationOptions {
  static constexpr const char* kType = "group_normalization";
  static constexpr const char* kHelp =
      "normalizes groups of channels of each observation, then scales and shifts each channel";
  int64_t groups = 0;
  double epsilon = 1e-5;
  double l2_factor = 0;
  double learning_rate_factor = 1;
  void visit(FieldVisitor& v);
};
LayerPtr group_normalization(GroupNormalizationOptions options);

// Layer normalization of the channels at each position of an image alone (ConvNeXt's LayerNorm2d).
struct ChannelNormalizationOptions {
  static constexpr const char* kType = "channel_normalization";
  static constexpr const char* kHelp =
      "normalizes the channels of each pixel, then scales and shifts each channel";
  double epsilon = 1e-6;
  double l2_factor = 0;
  double learning_rate_factor = 1;
  void visit(FieldVisitor& v);
};
LayerPtr channel_normalization(ChannelNormalizationOptions options = {});

// Multiplies each channel by a learned factor, at first `initial` (Touvron et al. 2021).
struct LayerScaleOptions {
  static constexpr const char* kType = "layer_scale";
  static constexpr const char* kHelp = "multiplies each channel by a learned factor";
  double initial = 1e-6;
  double l2_factor = 0;
  double learning_rate_factor = 1;
  void visit(FieldVisitor& v);
};
LayerPtr layer_scale(LayerScaleOptions options = {});

struct ReluOptions {
  static constexpr const char* kType = "relu";
  static constexpr const char* kHelp = "rectified linear unit: max(0, x)";
  void visit(FieldVisitor&) {}
};
LayerPtr relu();

// min(max(0, x), ceiling).
struct ClippedReluOptions {
  static constexpr const char* kType = "clipped_relu";
  static constexpr const char* kHelp = "ReLU with an upper limit: min(max(0, x), ceiling)";
  double ceiling = 1;
  void visit(FieldVisitor& v);
};
LayerPtr clipped_relu(ClippedReluOptions options = {});

// x for x >= 0, else scale * x.
struct LeakyReluOptions {
  static constexpr const char* kType = "leaky_relu";
  static constexpr const char* kHelp = "x for x >= 0, else scale * x";
  double scale = 0.01;
  void visit(FieldVisitor& v);
};
LayerPtr leaky_relu(LeakyReluOptions options = {});

// Exponential linear unit: x for x > 0, else alpha * (exp(x) - 1).
struct EluOptions {
  static constexpr const char* kType = "elu";
  static constexpr const char* kHelp =
      "exponential linear unit: x for x > 0, else alpha * (exp(x) - 1)";
  double alpha = 1;
  void visit(FieldVisitor& v);
};
LayerPtr elu(EluOptions options = {});

// Gaussian error linear unit; see ops::gelu() for both formulas.
struct GeluOptions {
  static constexpr const char* kType = "gelu";
  static constexpr const char* kHelp =
      "Gaussian error linear unit: x * Phi(x), Phi the standard normal CDF";
  std::string approximation = "none";
  void visit(FieldVisitor& v);
};
LayerPtr gelu(GeluOptions options = {});

struct SwishOptions {
  static constexpr const char* kType = "swish";
  static constexpr const char* kHelp = "swish (SiLU): x * sigmoid(x)";
  void visit(FieldVisitor&) {}
};
LayerPtr swish();

// x * hard_sigmoid(x), with hard_sigmoid(x) = min(max(0, x + 3), 6) / 6 (Howard et al. 2019).
struct HardSwishOptions {
  static constexpr const char* kType = "hard_swish";
  static constexpr const char* kHelp = "hard swish: x * min(max(0, x + 3), 6) / 6";
  void visit(FieldVisitor&) {}
};
LayerPtr hard_swish();

struct HardSigmoidOptions {
  static constexpr const char* kType = "hard_sigmoid";
  static constexpr const char* kHelp = "hard sigmoid: min(max(0, x + 3), 6) / 6";
  void visit(FieldVisitor&) {}
};
LayerPtr hard_sigmoid();

struct TanhOptions {
  static constexpr const char* kType = "tanh";
  static constexpr const char* kHelp = "hyperbolic tangent";
  void visit(FieldVisitor&) {}
};
LayerPtr tanh();

struct SigmoidOptions {
  static constexpr const char* kType = "sigmoid";
  static constexpr const char* kHelp = "logistic function: 1 / (1 + exp(-x))";
  void visit(FieldVisitor&) {}
};
LayerPtr sigmoid();

struct SoftplusOptions {
  static constexpr const char* kType = "softplus";
  static constexpr const char* kHelp = "smooth ReLU: log(1 + exp(x))";
  void visit(FieldVisitor&) {}
};
LayerPtr softplus();

struct SoftmaxOptions {
  static constexpr const char* kType = "softmax";
  static constexpr const char* kHelp =
      "softmax over the channels: scores (logits) to probabilities";
  void visit(FieldVisitor&) {}
};
LayerPtr softmax();

// Maximum over windows.
struct MaxPooling2dOptions {
  static constexpr const char* kType = "max_pooling2d";
  static constexpr const char* kHelp = "maximum over windows of images";
  Size2d pool{2, 2}, stride{1, 1};
  Padding2d padding{};
  void visit(FieldVisitor& v);
};
LayerPtr max_pooling2d(MaxPooling2dOptions options);

// Average over windows.
struct AveragePooling2dOptions {
  static constexpr const char* kType = "average_pooling2d";
  static constexpr const char* kHelp = "average over windows of images";
  Size2d pool{2, 2}, stride{1, 1};
  Padding2d padding{};
  bool count_padding = true;
  void visit(FieldVisitor& v);
};
LayerPtr average_pooling2d(AveragePooling2dOptions options);

struct GlobalAveragePooling2dOptions {
  static constexpr const char* kType = "global_average_pooling2d";
  static constexpr const char* kHelp = "average over all rows and columns";
  void visit(FieldVisitor&) {}
};
LayerPtr global_average_pooling2d();

// Average over areas, which cover images of any size: row i of `size` rows is the mean of rows
// floor(i h / size) to before ceil((i + 1) h / size), as PyTorch's AdaptiveAvgPool2d.
struct AdaptiveAveragePooling2dOptions {
  static constexpr const char* kType = "adaptive_average_pooling2d";
  static constexpr const char* kHelp = "average over areas: images of any size become `size`";
  Size2d size{1, 1};
  void visit(FieldVisitor& v);
};
LayerPtr adaptive_average_pooling2d(AdaptiveAveragePooling2dOptions options);

// Enlarges images `scale` times, as PyTorch's Upsample with align_corners = False. method:
// "nearest" repeats each pixel, "bilinear" interpolates between pixels' centers.
struct Upsampling2dOptions {
  static constexpr const char* kType = "upsampling2d";
  static constexpr const char* kHelp = "enlarges images by repeated or interpolated pixels";
  Size2d scale{2, 2};
  std::string method = "nearest";
  void visit(FieldVisitor& v);
};
LayerPtr upsampling2d(Upsampling2dOptions options = {});

// x * gate(W activation(V m + c) + b), m the average of each channel (Hu et al. 2018). The hidden
// layer has `units` units, or channels / `ratio`, rounded down.
struct SqueezeExcitationOptions {
  static constexpr const char* kType = "squeeze_excitation";
  static constexpr const char* kHelp = "weighs channels by a small network of their averages";
  int64_t units = 0, ratio = 0;
  std::string activation = "relu", gate = "sigmoid";
  double weights_l2_factor = 1, learning_rate_factor = 1;
  void visit(FieldVisitor& v);
};
LayerPtr squeeze_excitation(SqueezeExcitationOptions options);

// Pooling of sequences, and of volumes.
struct MaxPooling1dOptions {
  static constexpr const char* kType = "max_pooling1d";
  static constexpr const char* kHelp = "maximum over windows of sequences";
  int64_t pool = 2, stride = 1;
  Padding1d padding{};
  void visit(FieldVisitor& v);
};
LayerPtr max_pooling1d(MaxPooling1dOptions options);

struct MaxPooling3dOptions {
  static constexpr const char* kType = "max_pooling3d";
  static constexpr const char* kHelp = "maximum over windows of volumes";
  Size3d pool{2, 2, 2}, stride{1, 1, 1};
  Padding3d padding{};
  void visit(FieldVisitor& v);
};
LayerPtr max_pooling3d(MaxPooling3dOptions options);

struct AveragePooling1dOptions {
  static constexpr const char* kType = "average_pooling1d";
  static constexpr const char* kHelp = "average over windows of sequences";
  int64_t pool = 2, stride = 1;
  Padding1d padding{};
  bool count_padding = true;
  void visit(FieldVisitor& v);
};
LayerPtr average_pooling1d(AveragePooling1dOptions options);

struct AveragePooling3dOptions {
  static constexpr const char* kType = "average_pooling3d";
  static constexpr const char* kHelp = "average over windows of volumes";
  Size3d pool{2, 2, 2}, stride{1, 1, 1};
  Padding3d padding{};
  bool count_padding = true;
  void visit(FieldVisitor& v);
};
LayerPtr average_pooling3d(AveragePooling3dOptions options);

struct GlobalAveragePooling1dOptions {
  static constexpr const char* kType = "global_average_pooling1d";
  static constexpr const char* kHelp = "average over all time steps, of sequences the valid ones";
  void visit(FieldVisitor&) {}
};
LayerPtr global_average_pooling1d();

struct GlobalAveragePooling3dOptions {
  static constexpr const char* kType = "global_average_pooling3d";
  static constexpr const char* kHelp = "average over depth, rows and columns";
  void visit(FieldVisitor&) {}
};
LayerPtr global_average_pooling3d();

// In training, drops each element (sets it to 0) with probability p and multiplies the others by
// 1 / (1 - p). In prediction, the identity.
struct DropoutOptions {
  static constexpr const char* kType = "dropout";
  static constexpr const char* kHelp = "sets random elements to 0 in training";
  double probability = 0.5;
  void visit(FieldVisitor& v);
};
LayerPtr dropout(DropoutOptions options = {});

// In training, sets whole observations to 0 with probability p and multiplies the others by
// 1 / (1 - p): at the end of a branch, before its addition (Huang et al. 2016). In prediction, the
// identity.
struct StochasticDepthOptions {
  static constexpr const char* kType = "stochastic_depth";
  static constexpr const char* kHelp = "sets random observations of a branch to 0 in training";
  double probability = 0.1;
  void visit(FieldVisitor& v);
};
LayerPtr stochastic_depth(StochasticDepthOptions options = {});

struct FlattenOptions {
  static constexpr const char* kType = "flatten";
  static constexpr const char* kHelp = "flattens each observation to a vector";
  void visit(FieldVisitor&) {}
};
LayerPtr flatten();

// Gives an observation another shape, row-major: {c}, {c, l}, {c, h, w} or {c, d, h, w}.
struct ReshapeOptions {
  static constexpr const char* kType = "reshape";
  static constexpr const char* kHelp =
      "changes the shape of each observation; elements stay in row-major order";
  std::vector<int64_t> size;
  void visit(FieldVisitor& v);
};
LayerPtr reshape(ReshapeOptions options);

// The pixels of an image, row by row, as steps of a sequence: for position_embedding() and
// transformer_block(), which make a vision transformer of a convolution's patches.
struct PixelsToStepsOptions {
  static constexpr const char* kType = "pixels_to_steps";
  static constexpr const char* kHelp = "makes a sequence of an image: each pixel is a step";
  void visit(FieldVisitor&) {}
};
LayerPtr pixels_to_steps();

// An expression of functions of lockstep::ops, by their names: "x * sigmoid(1.7 * x)". Several
// inputs are x1, x2, ...; each must be used. Axes count from 0 in an observation, and observations
// are broadcast to each other (docs/guide.md). One number for each observation becomes one channel.
// Network::analyze() reports errors with their position in the expression.
struct FunctionOptions {
  static constexpr const char* kType = "function";
  static constexpr const char* kHelp = "an expression of its inputs";
  std::string expression;
  void visit(FieldVisitor& v);
};
LayerPtr function_layer(FunctionOptions options);

// Elementwise sum of inputs of the same shape.
struct AdditionOptions {
  static constexpr const char* kType = "addition";
  static constexpr const char* kHelp = "elementwise sum of inputs of the same shape";
  void visit(FieldVisitor&) {}
};
LayerPtr addition();

// Elementwise product of inputs of the same shape.
struct MultiplicationOptions {
  static constexpr const char* kType = "multiplication";
  static constexpr const char* kHelp = "elementwise product of inputs of the same shape";
  void visit(FieldVisitor&) {}
};
LayerPtr multiplication();

// The last layer of a network that learns scaled numbers: x * scale + offset, for each channel (of
// vectors each element) by the inverse of a normalization of the training targets, as of
// image_input: "z-score" has their standard deviation and mean. The network's results are in the
// units of the data, and named losses and expressions compare x with the normalized targets.
// train() computes the states `offset` and `scale`; a custom loop sets them by
// set_target_scaling(). After outputs() it scales those that give numbers: classes, and other
// losses with a cross-entropy or kl_div, are left as they are.
struct DenormalizationOptions {
  static constexpr const char* kType = "denormalization";
  static constexpr const char* kHelp =
      "gives results in the units of the targets, of which a network learns normalized ones";
  std::string normalization = "z-score";
  void visit(FieldVisitor& v);
};
LayerPtr denormalization(DenormalizationOptions options = {});

// Ends a network of several results: its inputs, each as a vector, one after the other. Each has a
// loss, "cross_entropy" (its scores become probabilities), "mean_squared_error" or an expression of
// `output` and `target`, and a weight. Targets have the shape of the result: a number for each of
// its elements, and for classes 1 for the right one and else 0. The loss of an observation is the
// sum of weight * loss, whatever loss of numbers the network has.
struct OutputsOptions {
  static constexpr const char* kType = "outputs";
  static constexpr const char* kHelp = "several results, each with a loss and a weight";
  std::vector<std::string> losses;
  std::vector<double> weights;
  void visit(FieldVisitor& v);
};
LayerPtr outputs(OutputsOptions options);

// Concatenates inputs along the channel axis.
struct ConcatenationOptions {
  static constexpr const char* kType = "concatenation";
  static constexpr const char* kHelp = "concatenates the inputs along the channel axis";
  void visit(FieldVisitor&) {}
};
LayerPtr concatenation();

}  // namespace lockstep
