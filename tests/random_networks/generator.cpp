#include "tests/random_networks/generator.h"

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "tests/random_networks/layer_maker.h"
#include "tests/random_networks/sequence_maker.h"

namespace lockstep::random_networks {
namespace {

using Json = nlohmann::ordered_json;

// Limits of a case's cost over all its layers and rows.
constexpr int64_t kElements = 400'000, kMultiplications = 12'000'000, kParameters = 60'000;
constexpr int64_t kElementsOfLarge = 6'000'000, kMultiplicationsOfLarge = 60'000'000;
constexpr int64_t kParametersBehindImages = 1'600'000;

class Maker {
 public:
  Maker(uint64_t seed, uint64_t number)
      : seed_(seed),
        number_(number),
        dice_(seed, number, 1),
        large_(dice_.chance(2)),
        tape_(dice_.chance(40)),
        // Drawn by itself, so that other cases stay as they were.
        dense_behind_images_(Dice(seed, number, 5).chance(4)),
        known_(Dice(seed, number, 8).chance(30)) {}

  Json make() {
    if (dense_behind_images_) return make_dense_behind_images();
    rows_ =
        large_ ? dice_.between(1, 15)
               : dice_.pick<int64_t>({1, 1, 2, 3, 5, 7, 8, 11, 15, 16, 16, 17, 20, 29, 32, 33, 40});
    const int64_t inputs = tape_ && dice_.chance(25) ? dice_.between(2, 3) : 1;
    for (int64_t i = 0; i < inputs; ++i) {
      while (!add(draw_input(dice_, large_), {})) {  // too large for this number of rows
      }
    }
    const int64_t layers = large_ ? dice_.between(1, 3) : dice_.between(1, 14);
    for (int64_t i = 0; i < layers; ++i) try_to_add();
    Json description{
        {"seed", seed_}, {"case", number_}, {"form", tape_ ? "tape" : "training"}, {"rows", rows_}};
    // Images in the lanes of vectors, which only some processors choose by themselves.
    if (rows_ % 16 == 0) description["lanes"] = dice_.chance(60);
    return finished(std::move(description));
  }

 private:
  Json finished(Json description) {
    tape_ ? finish_tape() : finish_training(description);
    description["layers"] = layers_;
    return description;
  }

  // A dense layer behind images of up to 224 x 224, with numbers of channels that fill no blocks,
  // and several images in a shard, because one has other layouts.
  Json make_dense_behind_images() {
    large_ = true;
    rows_ = dice_.between(2, 3);
    const int64_t before = dice_.pick<int64_t>({1, 1, 3, 3, 9, 11});
    const int64_t rows = dice_.pick<int64_t>({80, 97, 112, 112, 131, 160, 224});
    const int64_t columns = dice_.chance(60) ? rows : dice_.pick<int64_t>({81, 100, 112, 193, 224});
    add({{"type", "image_input"}, {"channels", before}, {"height", rows}, {"width", columns}}, {});
    const int64_t filters = dice_.pick<int64_t>(
        {9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22, 23, 25, 27, 30, 31});
    Json convolution{{"type", "convolution2d"}, {"filters", filters}, {"padding", "same"}};
    convolution["kernel"] = dice_.pick<int64_t>({1, 3});
    if (!add(convolution, {0})) {
      convolution["kernel"] = 1;
      add(convolution, {0});
    }
    const std::string then =
        dice_.pick<std::string>({"", "relu", "batch_normalization", "tanh", "addition"});
    const size_t images = values_.size() - 1;
    if (then == "addition") {
      add({{"type", then}}, {images, images});
    } else if (!then.empty()) {
      add(draw_layer(dice_, then, values_[images].shape), {images});
    }
    Json dense{{"type", "fully_connected"}};
    dense["units"] = dice_.between(1, 3);
    if (!add(dense, {values_.size() - 1})) {
      dense["units"] = 1;
      add(dense, {values_.size() - 1});
    }
    return finished({{"seed", seed_},
                     {"case", number_},
                     {"form", tape_ ? "tape" : "training"},
                     {"rows", rows_}});
  }

  Json names_of(const std::vector<size_t>& from) const {
    Json names = Json::array();
    for (size_t i : from) names.push_back(values_[i].name);
    return names;
  }
  std::vector<Shape> shapes_of(const std::vector<size_t>& from) const {
    std::vector<Shape> shapes;
    for (size_t i : from) shapes.push_back(values_[i].shape);
    return shapes;
  }

  // Returns false if the layer does not fit or would cost too much.
  bool add(Json layer, const std::vector<size_t>& from) {
    const bool shared = layer["type"] == "shared";
    const Json& what = shared ? layers_[owner_of(layer["layer"])] : layer;
    const bool input = from.empty();
    const int64_t steps = input ? 0 : values_[from[0]].steps, after = steps_after(layer, from);
    const auto measured = input ? measure({{"type", "relu"}}, {shape_of_input(layer)})
                                : measure(what, shapes_of(from), steps);
    if (!input && normalizes_alone(what, values_[from[0]])) return false;
    if (!measured || !affordable(*measured, shared, std::max<int64_t>(after, 1))) return false;
    layer["name"] = "layer_" + std::to_string(layers_.size());
    if (!input) layer["inputs"] = names_of(from);
    for (size_t i : from) values_[i].read = true;
    values_.push_back({layer["name"], measured->shape, false, after});
    layers_.push_back(std::move(layer));
    return true;
  }

  int64_t steps_after(const Json& layer, const std::vector<size_t>& from) const {
    if (from.empty()) return 0;
    const Value& x = values_[from[0]];
    if (layer["type"] == "pixels_to_steps") return x.shape[1] * x.shape[2];
    const bool ends = layer["type"] == "last_step" || layer["type"] == "global_average_pooling1d";
    return ends ? 0 : x.steps;
  }

  // Whether a layer would normalize over one value, which trainings refuse.
  bool normalizes_alone(const Json& layer, const Value& input) {
    const std::string type = layer["type"];
    const Shape& x = input.shape;
    const int64_t values = x.elements();
    const int64_t positions = values / x[0] * std::max<int64_t>(input.steps, 1);
    if (type == "layer_normalization") return values == 1;
    if (type == "channel_normalization") return x[0] == 1;
    if (type == "instance_normalization") return positions == 1;
    if (type == "group_normalization") return values <= layer["groups"].get<int64_t>();
    if (type != "batch_normalization" || positions > 1) return false;
    over_rows_ = over_rows_ || rows_ > 1;
    return rows_ == 1;
  }

  // The number of observations in the smallest shard.
  int64_t smallest(int64_t shard_size) const {
    return rows_ / ((rows_ + shard_size - 1) / shard_size);
  }

  static Shape shape_of_input(const Json& layer) {
    std::vector<int64_t> dims;
    for (const char* key : {"features", "channels", "length", "depth", "height", "width"}) {
      if (layer.contains(key)) dims.push_back(layer[key]);
    }
    return Shape(dims);
  }

  bool affordable(const Measured& m, bool shared, int64_t steps) {
    const int64_t parameters = shared ? 0 : m.parameters;
    const int64_t elements = elements_ + m.shape.elements() * rows_ * steps;
    const int64_t multiplications = multiplications_ + m.multiplications * rows_ * steps;
    if (elements > (large_ ? kElementsOfLarge : kElements) ||
        multiplications > (large_ ? kMultiplicationsOfLarge : kMultiplications) ||
        parameters_ + parameters > (dense_behind_images_ ? kParametersBehindImages : kParameters)) {
      return false;
    }
    elements_ = elements;
    multiplications_ = multiplications;
    parameters_ += parameters;
    return true;
  }

  size_t owner_of(const std::string& name) const {
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (layers_[i]["name"] == name) return i;
    }
    throw InvalidArgument("[generator] no layer `" + name + "`");
  }

  // Usually the newest value, sometimes any value, so that there are branches.
  size_t some_value() {
    const auto last = static_cast<int64_t>(values_.size()) - 1;
    return static_cast<size_t>(dice_.chance(65) ? last : dice_.between(0, last));
  }

  void try_to_add() {
    for (int attempt = 0; attempt < 20; ++attempt) {
      const size_t on = some_value();
      if (values_[on].steps > 0) continue;
      const std::string type = dice_.pick(types_for(values_[on].shape, known_));
      if (type == "pixels_to_steps") {
        if (add_steps(on)) return;
      } else if (type == "shared") {
        if (add_shared(on)) return;
      } else if (type == "addition" || type == "multiplication" || type == "concatenation") {
        if (add_join(type, on)) return;
      } else if (type != "softmax" || dice_.chance(30)) {
        if (add(draw_layer(dice_, type, values_[on].shape), {on})) return;
      }
    }
  }

  // The pixels of an image as a sequence, some layers of its steps, and one result.
  bool add_steps(size_t on) {
    constexpr int64_t most = 300;
    const Shape& x = values_[on].shape;
    const int64_t reserved = std::max<int64_t>(x[0], 100) * rows_;  // for the last layer
    elements_ += reserved;
    if (x[1] * x[2] > most || !add({{"type", "pixels_to_steps"}}, {on})) {
      elements_ -= reserved;
      return false;
    }
    for (int64_t i = dice_.between(0, 2); i > 0; --i) {
      Json layer{{"type", dice_.pick<std::string>({"batch_normalization", "batch_normalization",
                                                   "fully_connected", "gru", "self_attention",
                                                   "layer_normalization", "hard_swish"})}};
      if (layer["type"] == "gru") {
        layer["units"] = dice_.between(1, 9);
      } else if (layer["type"] == "self_attention") {
        layer["causal"] = dice_.chance(50);
      } else {
        layer = draw_layer(dice_, layer["type"], values_.back().shape);
      }
      add(layer, {values_.size() - 1});
    }
    elements_ -= reserved;
    const char* const end = dice_.chance(50) ? "last_step" : "global_average_pooling1d";
    return add({{"type", end}}, {values_.size() - 1});
  }

  bool add_shared(size_t on) {
    std::vector<std::string> owners;
    for (const auto& layer : layers_) {
      const bool of_steps = layer.contains("inputs") && takes_steps(layer);
      if (of_steps) continue;
      const std::string type = layer["type"];
      if (type.find("convolution") != std::string::npos || type == "fully_connected" ||
          type.find("_normalization") != std::string::npos || type == "tanh") {
        owners.push_back(layer["name"]);
      }
    }
    if (owners.empty()) return false;
    const std::string owner = dice_.pick(owners);
    const size_t at = owner_of(owner);
    const size_t its_input = index_of(layers_[at]["inputs"][0]);
    const Json& layer = layers_[at];
    const auto here = measure(layer, {values_[on].shape});
    const auto there = measure(layer, {values_[its_input].shape});
    // Parameters must have equal shapes. Only the extents of space may differ.
    const bool fits = here && there && here->parameters == there->parameters &&
                      values_[on].shape[0] == values_[its_input].shape[0] &&
                      (layer["type"] != "fully_connected" ||
                       values_[on].shape.elements() == values_[its_input].shape.elements());
    return fits && add({{"type", "shared"}, {"layer", owner}}, {on});
  }

  bool takes_steps(const Json& layer) const {
    return values_[index_of(layer["inputs"][0])].steps > 0;
  }

  size_t index_of(const std::string& name) const {
    for (size_t i = 0; i < values_.size(); ++i) {
      if (values_[i].name == name) return i;
    }
    throw InvalidArgument("[generator] no value `" + name + "`");
  }

  bool add_join(const std::string& type, size_t on) {
    std::vector<size_t> fitting;
    for (size_t i = 0; i < values_.size(); ++i) {
      const auto shapes = shapes_of({on, i});
      if (values_[i].steps == 0 && measure({{"type", type}}, shapes)) fitting.push_back(i);
    }
    if (fitting.empty()) return false;
    std::vector<size_t> from{on};
    const int64_t more = dice_.chance(75) ? 1 : dice_.between(2, 4);
    for (int64_t i = 0; i < more; ++i) {
      size_t other = dice_.pick(fitting);
      if (other == on && dice_.chance(80)) other = dice_.pick(fitting);
      from.push_back(other);
    }
    if (dice_.chance(50)) std::swap(from.front(), from.back());
    return add({{"type", type}}, from);
  }

  void finish_tape() {
    bool any = false;
    for (const auto& value : values_) any |= value.read;
    if (!any) add({{"type", "tanh"}}, {0});
  }

  std::vector<size_t> unread() const {
    std::vector<size_t> indices;
    for (size_t i = 0; i < values_.size(); ++i) {
      if (!values_[i].read) indices.push_back(i);
    }
    return indices;
  }

  // Joins all unread values to one output, and adds a loss.
  void finish_training(Json& description) {
    elements_ = multiplications_ = parameters_ =
        -(int64_t{1} << 40);  // the remaining layers must fit
    const bool squares = dice_.chance(35);
    std::vector<size_t> ends = unread();
    const int64_t classes = dice_.pick<int64_t>({2, 3, 5, 7, 10, 16, 17});
    const auto last = [&] { return values_.size() - 1; };
    if (ends.size() > 1 || !squares || values_[ends[0]].shape.elements() > 3000 ||
        dice_.chance(30)) {
      std::vector<size_t> joined;
      for (size_t end : ends) {
        if (dice_.chance(40) && values_[end].shape.rank() > 1) {
          const std::string axes = std::to_string(values_[end].shape.rank() - 1);
          add({{"type", dice_.chance(50) ? "flatten" : "global_average_pooling" + axes + "d"}},
              {end});
          end = last();
        }
        add({{"type", "fully_connected"}, {"units", classes}}, {end});
        joined.push_back(last());
      }
      if (joined.size() > 1) add({{"type", "addition"}}, joined);
    }
    if (!squares) {
      const bool image = dice_.chance(10);
      if (image) add({{"type", "reshape"}, {"size", {classes, 1, 1}}}, {last()});
      add({{"type", dice_.chance(90) ? "softmax" : "sigmoid"}}, {last()});
      if (image) add({{"type", "flatten"}}, {last()});
    }
    description["loss"] = squares ? "mean_squared_error" : "cross_entropy";
    description["iterations"] = dice_.chance(25) ? 2 : 1;
    description["training"] = draw_training(squares ? 0 : classes);
  }

  Json draw_training(int64_t classes) {
    int64_t shard_size = dice_.chance(40) || dense_behind_images_ ? 16 : dice_.between(1, rows_);
    while (over_rows_ && smallest(shard_size) < 2) ++shard_size;
    Json t{{"mini_batch_size", rows_},
           {"shard_size", shard_size},
           {"solver", dice_.pick<std::string>({"sgdm", "adam", "adamw", "rmsprop"})},
           {"initial_learning_rate", dice_.pick<double>({0.001, 0.01, 0.1})},
           {"seed", dice_.between(0, 1 << 30)}};
    if (dice_.chance(30)) t["l2"] = dice_.pick<double>({0, 0.01, 0.3});
    if (dice_.chance(20)) t["momentum"] = dice_.pick<double>({0, 0.5});
    if (dice_.chance(20)) t["epsilon"] = 1e-4;
    if (dice_.chance(15)) t["loss_scale"] = dice_.pick<double>({2, 128, 4096});
    if (dice_.chance(25)) {
      t["gradient_threshold"] = dice_.pick<double>({1e-3, 0.05, 1});
      t["gradient_threshold_method"] =
          dice_.pick<std::string>({"l2norm", "global-l2norm", "absolute-value"});
    }
    if (classes > 0 && dice_.chance(20)) {
      for (int64_t c = 0; c < classes; ++c) {
        t["class_weights"].push_back(dice_.chance(10) ? 0.0 : dice_.uniform(0.1, 4));
      }
    }
    if (dice_.chance(15)) t["freeze"].push_back(dice_.pick(values_).name);
    if (kernels::table_for({}).bf16 && dice_.chance(30)) t["precision"] = "bf16";
    return t;
  }

  const uint64_t seed_, number_;
  Dice dice_;
  bool large_, tape_;
  const bool dense_behind_images_;
  const bool known_;        // draws layers of known networks, too
  bool over_rows_ = false;  // a layer normalizes vectors over the observations of a shard
  int64_t rows_ = 1;
  int64_t elements_ = 0, multiplications_ = 0, parameters_ = 0;
  Json layers_ = Json::array();
  std::vector<Value> values_;
};

}  // namespace

nlohmann::ordered_json make_case(uint64_t seed, uint64_t number) {
  if (is_of_sequences(seed, number)) return make_sequence_case(seed, number);
  return Maker(seed, number).make();
}

Network network_of(const nlohmann::ordered_json& description) {
  Json network{{"layers", description["layers"]}};
  if (description.contains("loss")) network["loss"] = description["loss"];
  kernels::cpu::choose_lanes_anywhere(description.value("lanes", false));
  return Network::from_json(network);
}

TrainingOptions options_of(const nlohmann::ordered_json& description) {
  TrainingOptions options;
  const nlohmann::json fields =
      description.contains("training") ? description["training"] : Json::object();
  FieldReader reader(fields, "case");
  options.visit(reader);
  reader.finish();
  options.device = "cpu";
  options.threads = 1;
  options.shards.check_frequency = 0;
  return options.resolved();
}

}  // namespace lockstep::random_networks
