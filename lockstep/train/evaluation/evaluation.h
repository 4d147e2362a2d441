// Loss, accuracy, metrics and outputs of a network over a datastore.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/datastores/datastore.h"
#include "lockstep/data/images/augmentation.h"
#include "lockstep/engine/nn/metrics/confusion_matrix.h"
#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

struct Evaluation {
  int64_t observations = 0;
  double loss = 0;
  double accuracy = 0;  // NaN if targets are images
  std::vector<MetricValue> metrics = {};
  std::optional<ConfusionMatrix> confusion = {};  // if requested
  std::string examples =
      "images";  // what was evaluated: "images", "sequences", "rows", "observations"
};

struct EvaluationOptions {
  int threads = 0;  // 0: one for each processor
  // A target for each observation; null: the targets of the examples, or their labels.
  DatastorePtr targets = {};
  InputNoise noise = {};                       // on the inputs, drawn once
  uint64_t seed = 0;                           // of the noise
  std::vector<std::string> metrics = {};       // names, see engine/nn/metrics/metric.h
  std::vector<MetricPtr> custom_metrics = {};  // metrics that the user implements
  bool confusion = false;  // also count the predicted classes of each true class
  // Called with each of Datastore::notices() of the data before it is read, such as that the
  // columns of a table were put into the network's order (see match_columns()). evaluate() calls it
  // afterwards with loss_not_finite().
  std::function<void(const std::string&)> notice = {};
};

// Exact loss and accuracy over a datastore. Every observation counts once. Batches have a fixed
// size with padding, so that a score does not depend on other observations. Throws InvalidArgument
// if data, metrics and network do not fit each other, before any image is read.
Evaluation evaluate(Network& network, const DatastorePtr& data,
                    const EvaluationOptions& options = {});

// What is to be said about a loss that is not finite; "" of other evaluations, and without
// observations.
std::string loss_not_finite(const Evaluation& evaluation);

// Outputs (n x output of the network, row-major) for each observation, computed in the same way. Of
// outputs by step, n is the number of valid steps of all observations, one observation after
// another.
Tensor predict(Network& network, const DatastorePtr& data, const EvaluationOptions& options = {});

// The likeliest class of each pixel, as images of one channel, for a network whose output has a map
// for each class (1 to 255 of them). Computed for some images at a time, so that their scores need
// little memory. encode_label_image() writes such images as PNG files. Throws InvalidArgument for
// other networks.
std::vector<Image> predict_labels(Network& network, const DatastorePtr& data,
                                  const EvaluationOptions& options = {});

// The number of different tokens that a network's input takes; 0: it does not take tokens.
int64_t input_tokens(const Network& network);

struct GenerateOptions {
  int64_t length = 256;    // the most tokens to generate
  int64_t context = 0;     // the most tokens that the network sees; 0: all
  double temperature = 1;  // probabilities to the power of 1 / temperature; 0: the likeliest token
  int64_t top_k = 0;       // only the k likeliest tokens; 0: all
  // Only the likeliest tokens, as few as have this probability together (of those of top_k).
  double top_p = 1;
  uint64_t seed = 0;
  // That share large products of a token; 0: one for each processor, at most 8. Several calls at
  // once are faster with 1.
  int threads = 0;
};

// Continues a text: tokens that follow those of the prompt, each drawn from the probabilities that
// a network with one input of tokens and a result by step (the last layer is softmax) gives after
// the tokens before it. Token i is a function of network, prompt, options and i alone, with the
// same bits on any number of threads; of equally likely tokens the first counts as likelier.
// `token` is called with each one and returns whether to go on; it must not change the network.
// The network sees the text, of a long prompt the last options.context tokens, from position 0 on.
// When it has seen as many as that, or as position_embedding has positions, it goes on from the
// last half of them. A network that runs segment by segment (Network::predict_and_update())
// computes each token once; others compute all that they see for each token. The results do not
// contain the prompt. Throws InvalidArgument for a network that does not fit, a prompt without
// tokens or with tokens outside the vocabulary, and options outside their ranges.
std::vector<int32_t> generate(Network& network, std::span<const int32_t> prompt,
                              const GenerateOptions& options = {},
                              const std::function<bool(int32_t)>& token = {});

}  // namespace lockstep
