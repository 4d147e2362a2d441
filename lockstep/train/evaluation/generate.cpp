// Drawing tokens from a network's probabilities.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/kernels/elementwise/double_functions.h"
#include "lockstep/engine/kernels/interface/pass_threads.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/predictions/segments.h"
#include "lockstep/train/evaluation/evaluation.h"

namespace lockstep {
namespace {

constexpr int kMostThreads = 8;

void check_generate_options(const GenerateOptions& options) {
  const auto refuse = [](const std::string& what, const std::string& hint) {
    throw InvalidArgument("[generate] " + what, hint);
  };
  if (options.length < 0) refuse("length is " + std::to_string(options.length), "0 or more tokens");
  if (options.context < 0) refuse("context is " + std::to_string(options.context), "0: all tokens");
  if (options.top_k < 0) refuse("top_k is " + std::to_string(options.top_k), "0: all tokens");
  if (!(options.temperature >= 0 && options.temperature <= 1e6)) {
    refuse("temperature is " + std::to_string(options.temperature),
           "0 for the likeliest token, 1 for the network's probabilities, at most 1e6");
  }
  if (options.threads < 0 || options.threads > 1024) {
    refuse("threads is " + std::to_string(options.threads),
           "1 to 1024; 0: one for each processor, at most 8");
  }
  if (!(options.top_p >= 0 && options.top_p <= 1)) {
    refuse("top_p is " + std::to_string(options.top_p), "a probability from 0 to 1");
  }
}

void check_generator(const Network& network) {
  const std::vector<NetworkValue> inputs = network.inputs(), outputs = network.outputs();
  if (inputs.size() != 1 || inputs[0].type != DType::i32) {
    throw InvalidArgument("[generate] the network's input is not tokens",
                          "texts are continued by networks that begin with token_input");
  }
  if (!outputs.at(0).sequence || outputs[0].shape.rank() != 1 ||
      outputs[0].shape[0] > input_tokens(network)) {
    throw InvalidArgument(
        "[generate] the network does not give a probability for each of its tokens by step; its "
        "result is " +
            outputs[0].to_string(),
        "the last layers are fully_connected, for each step, and softmax");
  }
}

void check_prompt(std::span<const int32_t> prompt, int64_t tokens) {
  if (prompt.empty()) {
    throw InvalidArgument("[generate] the prompt has no tokens", "a text begins with one or more");
  }
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] >= 0 && prompt[i] < tokens) continue;
    throw InvalidArgument("[generate] token " + std::to_string(i) + " of the prompt is " +
                          std::to_string(prompt[i]) + ", but the network has " +
                          counted(tokens, "token") + ", counted from 0");
  }
}

// The scores of the last step of a text.
std::vector<float> last_scores(const Tensor& all) {
  const int64_t steps = all.shape()[1], classes = all.shape().elements() / steps;
  const Tensor plain = all.to({}).to_row_major();
  const float* const last = plain.data<float>() + (steps - 1) * classes;
  return {last, last + classes};
}

// A text as a network sees it.
class SeenText {
 public:
  SeenText(Network& network, std::span<const int32_t> prompt, int64_t context)
      : network_(network),
        fixed_(network),
        segments_(network),
        text_(prompt.begin(), prompt.end()),
        most_(network.most_steps_in_segments()),
        in_segments_(most_ > 0) {
    if (!in_segments_) most_ = std::numeric_limits<int64_t>::max();
    if (context > 0) most_ = std::min(most_, context);
    begin_ = ran_ = std::max<int64_t>(0, size() - most_);
  }

  void add(int32_t token) { text_.push_back(token); }
  // The probabilities of the next token.
  std::vector<float> probabilities() {
    if (size() - begin_ > most_) {
      begin_ = ran_ = size() - (most_ + 1) / 2;
      network_.reset_state();
    }
    if (!in_segments_) return last_scores(network_.predict(tokens(begin_, size())));
    // A long prompt in several segments, so that the same plans serve prompts of all lengths.
    for (; size() - ran_ > kSegment; ran_ += kSegment) {
      network_.predict_and_update(tokens(ran_, ran_ + kSegment));
    }
    const Tensor scores = network_.predict_and_update(tokens(ran_, size()));
    ran_ = size();
    return last_scores(scores);
  }

 private:
  static constexpr int64_t kSegment = 64;

  int64_t size() const { return std::ssize(text_); }
  Tensor tokens(int64_t first, int64_t end) const {
    return Tensor::from(
        std::span(text_).subspan(static_cast<size_t>(first), static_cast<size_t>(end - first)),
        Shape{1, end - first});
  }

  Network& network_;
  const FixedParameters fixed_;
  const OwnSegments segments_;
  std::vector<int32_t> text_;
  int64_t most_;  // tokens that the network may see
  const bool in_segments_;
  int64_t begin_ = 0, ran_ = 0;  // the first token that it sees, and the first that it has not seen
};

// The tokens from the likeliest on, of equal ones the first; those that cannot come are left out.
std::vector<int32_t> likeliest_first(const std::vector<float>& probabilities) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    if (!(probabilities[i] >= 0 && probabilities[i] <= 2)) {
      throw InvalidArgument("[generate] the network gives " + std::to_string(probabilities[i]) +
                                " as the probability of token " + std::to_string(i),
                            "the last layer must be softmax, and all parameters finite");
    }
    if (probabilities[i] > 0) order.push_back(static_cast<int32_t>(i));
  }
  if (order.empty()) throw InvalidArgument("[generate] the network gives no token a probability");
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return probabilities[static_cast<size_t>(a)] > probabilities[static_cast<size_t>(b)];
  });
  return order;
}

// The token for `drawn`, a uniform number in [0, 1).
int32_t drawn_token(const std::vector<float>& probabilities, const GenerateOptions& options,
                    double drawn) {
  std::vector<int32_t> order = likeliest_first(probabilities);
  if (options.temperature == 0) return order[0];
  if (options.top_k > 0 && options.top_k < std::ssize(order)) {
    order.resize(static_cast<size_t>(options.top_k));
  }
  // Relative to the likeliest one, whose weight is 1.
  const auto log_of = [&](int32_t token) {
    return kernels::in_double::logarithm(double{probabilities[static_cast<size_t>(token)]});
  };
  const double highest = log_of(order[0]);
  std::vector<double> until;  // the sum of the weights up to each token
  double sum = 0;
  for (const int32_t token : order) {
    sum += kernels::in_double::exponential((log_of(token) - highest) / options.temperature);
    until.push_back(sum);
  }
  size_t count = 0;
  while (count + 1 < until.size() && until[count] < options.top_p * sum) ++count;
  until.resize(count + 1);
  const auto found = std::upper_bound(until.begin(), until.end(), drawn * until.back());
  return order[std::min(static_cast<size_t>(found - until.begin()), count)];
}

}  // namespace

int64_t input_tokens(const Network& network) {
  const auto description = network.to_json();
  for (const auto& layer : description["layers"]) {
    if (layer["type"] == TokenInputOptions::kType) return layer["vocabulary"].get<int64_t>();
  }
  return 0;
}

std::vector<int32_t> generate(Network& network, std::span<const int32_t> prompt,
                              const GenerateOptions& options,
                              const std::function<bool(int32_t)>& token) {
  const OrdinaryArithmetic arithmetic;
  check_generate_options(options);
  check_generator(network);
  check_prompt(prompt, input_tokens(network));
  kernels::PassThreads threads(options.threads > 0 ? options.threads
                                                   : std::min(available_cores(), kMostThreads));
  SeenText text(network, prompt, options.context);
  std::vector<int32_t> made;
  for (int64_t i = 0; i < options.length; ++i) {
    const RandomStream stream(
        {.seed = options.seed, .use = RandomUse::draw, .a = static_cast<uint64_t>(i)});
    std::vector<float> probabilities;
    threads.run([&] { probabilities = text.probabilities(); });
    made.push_back(drawn_token(probabilities, options, stream.uniform(0)));
    text.add(made.back());
    if (token && !token(made.back())) break;
  }
  return made;
}

}  // namespace lockstep
