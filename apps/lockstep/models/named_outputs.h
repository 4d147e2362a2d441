// The results of a network with several outputs, with the names of the outputs, of their classes
// and of the columns that they give.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "lockstep/engine/formats/model.h"
#include "lockstep/engine/nn/metrics/metric.h"

namespace lockstep::command {

// Thread-safe.
class NamedOutputs {
 public:
  // `top`: how many classes of an output are shown, the best first.
  NamedOutputs(const Model& model, int top);

  // Whether the network has several outputs.
  bool any() const { return !outputs_.empty(); }
  // For the result of one observation: fields with tabs before them, such as
  // "\tprice\t3.5\tkind\tbig\t0.9731".
  std::string text(std::span<const float> result) const;
  // {"price": {"values": {"price": 3.5}}, "kind": {"top": [{"class": "big", "score": 0.9731}]}}
  nlohmann::ordered_json json(std::span<const float> result) const;
  // A metric of each output: "price: rmse", "kind: accuracy".
  std::vector<std::string> metrics() const;

 private:
  struct Output {
    MetricPart part;
    std::vector<std::string> names;  // of the classes or numbers
  };
  std::vector<size_t> best(const Output& output, std::span<const float> scores) const;

  std::vector<Output> outputs_;
  size_t top_;
};

}  // namespace lockstep::command
