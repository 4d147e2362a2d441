// Layers of matrix products.
#include "lockstep/base/error.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/layers/registry.h"
#include "lockstep/engine/nn/layers/weights.h"

namespace lockstep {

void FullyConnectedOptions::visit(FieldVisitor& v) {
  v.integer("units", units, "number of outputs", {.min = 1, .max = 1 << 24, .required = true});
  visit_weights(v, *this, "a bias for each unit");
}

namespace {

struct FullyConnected : FullyConnectedOptions {
  Value build(LayerBuilder& layer, Value x) const {
    const int64_t elements = x.shape().without_batch().elements();
    const Weights w = declare_weights(layer, *this, Shape{units, elements}, units, elements, units);
    return ops::fully_connected(x, w.weights, w.bias);
  }
};

Value features_of(const Value& x, int64_t begin, int64_t end) {
  return ops::slice(x, {{}, {begin, end}});
}

struct CategoryEmbedding : CategoryEmbeddingOptions {
  Value build(LayerBuilder& layer, Value x) const {
    check(x);
    std::vector<Value> numbers, vectors;
    int64_t next = 0;  // the first feature that is not taken yet
    for (size_t i = 0; i < first.size(); ++i) {
      const int64_t end = first[i] + categories[i];
      if (first[i] > next) numbers.push_back(features_of(x, next, first[i]));
      const Value weights = layer.parameter(
          {"weights_" + std::to_string(i + 1), Shape{categories[i], units[i]}, weights_initializer,
           categories[i], units[i], weights_l2_factor, weights_learning_rate_factor});
      vectors.push_back(ops::matmul(features_of(x, first[i], end), weights));
      next = end;
    }
    const int64_t features = x.shape()[1];
    if (next < features) numbers.push_back(features_of(x, next, features));
    numbers.insert(numbers.end(), vectors.begin(), vectors.end());
    return numbers.size() == 1 ? numbers[0] : ops::concat(numbers);
  }

 private:
  void check(const Value& x) const {
    if (x.shape().rank() != 2 || x.dtype() != DType::f32) {
      throw InvalidArgument("[category_embedding] expected vectors of features, received " +
                            x.shape().to_string());
    }
    if (categories.size() != first.size() || units.size() != first.size()) {
      throw InvalidArgument("[category_embedding] first, categories and units have " +
                                std::to_string(first.size()) + ", " +
                                std::to_string(categories.size()) + " and " +
                                std::to_string(units.size()) + " numbers",
                            "each block of categories has one of each");
    }
    int64_t next = 0;
    for (size_t i = 0; i < first.size(); ++i) {
      if (first[i] < next || categories[i] > x.shape()[1] - first[i]) {
        throw InvalidArgument("[category_embedding] block " + std::to_string(i + 1) + " has " +
                                  std::to_string(categories[i]) + " features from " +
                                  std::to_string(first[i]) + " on, but there are " +
                                  std::to_string(x.shape()[1]),
                              "blocks are in order and do not overlap; features count from 0");
      }
      next = first[i] + categories[i];
    }
  }
};

}  // namespace

void CategoryEmbeddingOptions::visit(FieldVisitor& v) {
  constexpr IntegerRule kCount{.min = 1, .max = 1 << 24, .required = true};
  v.integers("first", first, "the first feature of each block of categories, from 0",
             {.min = 0, .max = 1 << 24, .required = true});
  v.integers("categories", categories, "the features of each block", kCount);
  v.integers("units", units, "the numbers that each block becomes", kCount);
  v.text("weights_initializer", weights_initializer, "initializer of the vectors",
         initializer_names());
  v.number("weights_l2_factor", weights_l2_factor, "factor of the option l2 for the vectors",
           {.min = 0});
  v.number("weights_learning_rate_factor", weights_learning_rate_factor,
           "factor of the learning rate for the vectors; 0: frozen", {.min = 0});
}

LayerPtr category_embedding(CategoryEmbeddingOptions options) {
  return custom_layer(CategoryEmbedding{std::move(options)});
}

LayerPtr fully_connected(FullyConnectedOptions options) {
  return custom_layer(FullyConnected{std::move(options)});
}

LayerInfo layers::category_embedding_info() { return layer_info<CategoryEmbedding>(); }
LayerInfo layers::fully_connected_info() { return layer_info<FullyConnected>(); }

}  // namespace lockstep
