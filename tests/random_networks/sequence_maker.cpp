#include "tests/random_networks/sequence_maker.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "lockstep/base/error.h"
#include "tests/random_networks/dice.h"

namespace lockstep::random_networks {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kVocabulary = 7;

const std::vector<int64_t> kUnits{1, 2, 3, 4, 4, 5, 6, 8, 8, 9, 12, 16, 17};

class SequenceMaker {
 public:
  SequenceMaker(uint64_t seed, uint64_t number)
      : seed_(seed),
        number_(number),
        dice_(seed, number, 7),
        more_(Dice(seed, number, 8).chance(35)) {}

  Json make() {
    Json description{{"seed", seed_}, {"case", number_}, {"form", "tape"}};
    const auto rows = dice_.pick<int64_t>({1, 1, 2, 3, 4, 5, 7, 16});
    const auto steps = dice_.pick<int64_t>({1, 2, 3, 5, 6, 7, 9});
    description["rows"] = rows;
    description["steps"] = steps;
    const std::vector<int64_t> lengths = draw_lengths(rows, steps);
    description["lengths"] = lengths;
    one_step_ = std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) == 1;
    begin();
    const int64_t layers = dice_.between(1, 5);
    for (int64_t i = 0; i < layers; ++i) {
      for (int attempt = 0; attempt < 8 && !try_to_add(); ++attempt) {
      }
    }
    if (layers_.size() == 1) add({{"type", "tanh"}}, {0});
    description["layers"] = layers_;
    return description;
  }

 private:
  struct Known {
    std::string name;
    int64_t channels = 0;
    bool sequence = true;
  };

  std::vector<int64_t> draw_lengths(int64_t rows, int64_t steps) {
    const int64_t kind = dice_.between(1, 10);
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < rows; ++i) {
      lengths.push_back(kind <= 2   ? steps
                        : kind == 3 ? 1
                                    : dice_.between(kind <= 6 ? 1 : 0, steps));
    }
    return lengths;
  }

  void begin() {
    if (dice_.chance(30)) {
      layers_.push_back(
          {{"type", "token_input"}, {"vocabulary", kVocabulary}, {"name", "layer_0"}});
      values_.push_back({"layer_0", 0});
      add({{"type", "embedding"}, {"vocabulary", kVocabulary}, {"units", dice_.pick(kUnits)}}, {0});
      return;
    }
    const int64_t channels = dice_.pick(kUnits);
    layers_.push_back({{"type", "sequence_input"},
                       {"channels", channels},
                       {"normalization", dice_.pick<std::string>({"none", "z-score"})},
                       {"name", "layer_0"}});
    values_.push_back({"layer_0", channels});
  }

  bool try_to_add() {
    const auto last = values_.size() - 1;
    const size_t on = dice_.chance(75) || values_[0].channels == 0
                          ? last
                          : static_cast<size_t>(dice_.between(0, static_cast<int64_t>(last)));
    std::vector<std::string> types = types_for(values_[on]);
    if (more_ && values_[on].sequence) {
      types.insert(types.end(),
                   {"batch_normalization", "batch_normalization", "batch_normalization",
                    "batch_normalization", "channel_normalization", "hard_swish", "layer_scale"});
    }
    const std::string type = dice_.pick(types);
    if (type != "addition" && type != "concatenation") return add(draw(type, values_[on]), {on});
    std::vector<size_t> fitting;
    for (size_t i = 0; i < values_.size(); ++i) {
      const bool equal = values_[i].channels == values_[on].channels || type == "concatenation";
      if (values_[i].sequence == values_[on].sequence && values_[i].channels > 0 && equal) {
        fitting.push_back(i);
      }
    }
    return add({{"type", type}}, {on, dice_.pick(fitting)});
  }

  static std::vector<std::string> types_for(const Known& value) {
    if (!value.sequence) return {"fully_connected", "tanh", "layer_normalization", "addition"};
    return {"lstm",
            "lstm",
            "gru",
            "gru",
            "rnn",
            "rnn",
            "self_attention",
            "self_attention",
            "transformer_block",
            "rms_normalization",
            "layer_normalization",
            "position_embedding",
            "convolution1d",
            "convolution1d",
            "fully_connected",
            "tanh",
            "gelu",
            "softmax",
            "dropout",
            "addition",
            "concatenation",
            "last_step",
            "global_average_pooling1d"};
  }

  Json draw(const std::string& type, const Known& on) {
    Json layer{{"type", type}};
    if (type == "lstm" || type == "gru" || type == "rnn") {
      layer["units"] = dice_.pick(kUnits);
      layer["output"] = dice_.chance(25) ? "last" : "sequence";
      layer["bidirectional"] = dice_.chance(35);
      if (type == "gru") layer["reset_after"] = dice_.chance(50);
      if (type == "rnn") layer["activation"] = dice_.chance(70) ? "tanh" : "relu";
    } else if (type == "self_attention" || type == "transformer_block") {
      std::vector<int64_t> divisors;
      for (int64_t d = 1; d <= on.channels; ++d) {
        if (on.channels % d == 0) divisors.push_back(d);
      }
      layer["heads"] = dice_.pick(divisors);
      layer["causal"] = dice_.chance(50);
      if (type == "self_attention") layer["bias"] = dice_.chance(70);
      if (type == "transformer_block") layer["feed_forward_factor"] = dice_.between(1, 3);
    } else if (type == "position_embedding") {
      layer["positions"] = 9;
    } else if (type == "convolution1d") {
      layer["filters"] = dice_.pick(kUnits);
      layer["kernel"] = dice_.between(1, 4);
      layer["dilation"] = dice_.pick<int64_t>({1, 1, 2, 3});
      if (dice_.chance(50)) {
        layer["causal"] = true;
      } else {
        layer["padding"] = "same";
      }
    } else if (type == "fully_connected") {
      layer["units"] = dice_.pick(kUnits);
    } else if (type == "dropout") {
      layer["probability"] = dice_.pick<double>({0.1, 0.5});
    } else if (type == "batch_normalization") {
      layer["epsilon"] = dice_.pick<double>({1e-5, 1e-3, 0.1});
      layer["momentum"] = dice_.pick<double>({0.01, 0.1, 1});
    }
    return layer;
  }

  // Returns false if the library finds a problem.
  bool add(Json layer, const std::vector<size_t>& from) {
    const std::string type = layer["type"];
    // One channel, normalized, is a constant.
    const bool over_channels = type == "layer_normalization" || type == "transformer_block" ||
                               type == "channel_normalization";
    if (type == "batch_normalization" && one_step_) return false;
    if (over_channels && values_[from[0]].channels == 1) return false;
    layer["name"] = "layer_" + std::to_string(layers_.size());
    layer["inputs"] = Json::array();
    for (const size_t i : from) layer["inputs"].push_back(values_[i].name);
    Json all = layers_;
    all.push_back(layer);
    const Network network = Network::from_json({{"layers", all}});
    if (!network.analyze().empty()) return false;
    for (const NetworkValue& value : network.outputs()) {
      if (value.name != layer["name"]) continue;
      values_.push_back({value.name, value.shape[0], value.sequence});
    }
    layers_ = std::move(all);
    return true;
  }

  const uint64_t seed_, number_;
  Dice dice_;
  const bool more_;        // drawn by itself, so that other cases stay as they were
  bool one_step_ = false;  // in all sequences
  Json layers_ = Json::array();
  std::vector<Known> values_;
};

}  // namespace

bool is_of_sequences(uint64_t seed, uint64_t number) { return Dice(seed, number, 6).chance(20); }

Json make_sequence_case(uint64_t seed, uint64_t number) {
  return SequenceMaker(seed, number).make();
}

Tensor make_sequences(const Network& network, const Json& description) {
  Dice dice(description["seed"], description["case"], 10);
  const auto rows = description["rows"].get<int64_t>(), steps = description["steps"].get<int64_t>();
  const NetworkValue input = network.inputs()[0];
  const int64_t each = input.shape.elements();
  std::vector<float> values;
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < rows; ++i) {
    const auto length = description["lengths"][static_cast<size_t>(i)].get<int64_t>();
    for (int64_t k = 0; k < steps * each; ++k) {
      tokens.push_back(static_cast<int32_t>(dice.between(0, kVocabulary - 1)));
      values.push_back(static_cast<float>((k / each < length ? 1 : 1000) * dice.normal()));
    }
  }
  if (input.type == DType::i32)
    return Tensor::from(std::span<const int32_t>(tokens), {rows, steps});
  return Tensor::from(values, {rows, steps, each});
}

Tensor lengths_of(const Json& description) {
  const auto lengths = description["lengths"].get<std::vector<int32_t>>();
  return Tensor::from(std::span<const int32_t>(lengths), {static_cast<int64_t>(lengths.size())});
}

Tensor without_padding(const Tensor& values, const Json& description) {
  const int64_t rows = values.shape()[0], steps = description["steps"];
  const int64_t each = values.shape().elements() / (rows * steps);
  std::vector<float> all = values.to_vector();
  for (int64_t i = 0; i < rows; ++i) {
    const auto length = description["lengths"][static_cast<size_t>(i)].get<int64_t>();
    std::fill(all.begin() + (i * steps + length) * each, all.begin() + (i + 1) * steps * each,
              0.0f);
  }
  return Tensor::from(all, values.shape());
}

}  // namespace lockstep::random_networks
