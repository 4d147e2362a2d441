#include "lockstep/train/state/identity.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/engine/device/devices.h"
#include "lockstep/engine/nn/custom_layer.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::some_digits;

Network small_network() {
  Network network{image_input({.height = 28, .width = 28, .channels = 1}),
                  fully_connected({.units = 10}), softmax()};
  network.initialize(1);
  return network;
}

const Listings kListings{Digest{1, 2}, Digest{3, 4}, {}, {}};

ordered_json identity(const TrainingOptions& options = {}, const Network& network = small_network(),
                      const TrainingData& data = {some_digits(20), some_digits(20, 10)},
                      int64_t iterations_per_epoch = 10) {
  return identity_of(network, data, options.resolved(), kListings, iterations_per_epoch);
}

// Receipts of this version begin with this text, which must never change.
TEST(Identity, OfATrainingWithoutAnyOptionNamesNothingThatHasADefault) {
  EXPECT_EQ(
      identity().dump(),
      R"({"data":"00000000000000010000000000000002",)"
      R"("network.layers":[)"
      R"({"channels":1,"height":28,"name":"image_input_1","type":"image_input","width":28},)"
      R"({"inputs":["image_input_1"],"name":"fully_connected_1","type":"fully_connected","units":10},)"
      R"({"inputs":["fully_connected_1"],"name":"softmax_1","type":"softmax"}],)"
      R"("network.loss":"cross_entropy","training.device":"cpu",)"
      R"("validation_data":"00000000000000030000000000000004","version":2})");
}

TEST(Identity, NamesWhatHasNoDefault) {
  TrainingOptions options;
  options.solver.type = "adam", options.solver.momentum = 0.8, options.freeze = {"a", "b"};
  options.schedule.types = {"warmup", "cosine"}, options.schedule.epochs = {0.25};
  options.max_epochs = 7, options.schedule.final_factor = 1;
  TrainingData data{some_digits(20)};
  data.augmentation.reflect_x = true, data.augmentation.translate_x = {-1, 2};
  data.noise.salt_and_pepper = 0.5;
  data.random_crop = true;
  ordered_json found = identity(options, small_network(), data);
  for (const char* always : {"network.layers", "network.loss"}) found.erase(always);
  EXPECT_EQ(found.dump(),
            R"({"augmentation.reflect_x":true,"augmentation.translate_x":[-1,2],)"
            R"("data":"00000000000000010000000000000002","noise.salt_and_pepper":0.5,)"
            R"("random_crop":true,"training.device":"cpu","training.final_factor":1.0,)"
            R"("training.freeze":["a","b"],)"
            R"("training.learning_rate_schedule":["warmup","cosine"],"training.momentum":0.8,)"
            R"("training.schedule_iterations":[3.0,67.0],"training.solver":"adam","version":2})");
}

TEST(Identity, NamesTheRangesOfARandomResizedCrop) {
  TrainingData data{some_digits(20)};
  const ordered_json plain = identity({}, small_network(), data);
  data.resized_crop.emplace();
  ordered_json found = identity({}, small_network(), data);
  EXPECT_EQ(found["resized_crop"].dump(),
            R"({"area":[0.08,1.0],"ratio":[0.75,1.3333333333333333]})");
  found.erase("resized_crop");
  EXPECT_EQ(found, plain);
}

TEST(Identity, NamesTheAugmentationOfTheUser) {
  TrainingData data{some_digits(20)};
  const ordered_json plain = identity({}, small_network(), data);
  data.own_augmentation = {[](AugmentedExample&) {}, "smoke"};
  ordered_json found = identity({}, small_network(), data);
  EXPECT_EQ(found["augmentation.function"], "smoke");
  found.erase("augmentation.function");
  EXPECT_EQ(found, plain);
}

TEST(Identity, ADefaultThatIsWrittenOutLeavesNoTrace) {
  for (const char* solver : {"sgdm", "adam", "adamw", "rmsprop"}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      TrainingOptions options;
      options.solver.type = solver, options.precision.type = precision;
      const ordered_json plain = identity(options);
      TrainingOptions written = options.resolved();
      EXPECT_EQ(identity(written), plain);
      written.solver.initial_learning_rate *= 0.5;
      EXPECT_NE(identity(written), plain);
    }
  }
}

TEST(Identity, OfATrainingThatIsNotDeterministicIsAnother) {
  const ordered_json plain = identity();
  set_deterministic(false);
  const ordered_json other = identity();
  set_deterministic(true);
  EXPECT_EQ(other["training.deterministic"], false);
  EXPECT_NE(other, plain);
}

bool is_left_out(const std::string& option) {
  std::set<std::string> names{"device"};  // the network's device counts
  for (const auto& name : TrainingOptions::free_fields()) names.insert(name);
  for (const auto& name : TrainingOptions::ending_fields()) names.insert(name);
  return names.count(option) == 1;
}

// Returns another value of the same type.
ordered_json changed(const ordered_json& value, const FieldInfo& field) {
  if (value == "epoch" || value == "longest") return 3;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>() + 1;
  const bool factor = field.type.starts_with("number >= 1");
  if (value.is_number()) return (value.get<double>() + (factor ? 3 : 0.125)) / 2;
  for (const std::string& choice : field.choices) {
    if (value.is_string() && value != choice) return choice;
    if (value.is_array() && (value.empty() || value[0] != choice)) return {choice};
  }
  if (value.is_string()) return value.get<std::string>() + "1";
  if (field.type.find("text") != std::string::npos) return ordered_json::array({"other"});
  return ordered_json::array({0.75});
}

TEST(Identity, EveryOptionIsInItUnlessOnlySpeedOrTheEndDependsOnIt) {
  FieldLister lister;
  TrainingOptions options;
  options.visit(lister);
  for (const FieldInfo& field : lister.fields) {
    ordered_json values;
    FieldWriter writer(values);
    TrainingOptions().resolved().visit(writer);
    values[field.name] = changed(values[field.name], field);
    const json plain = values;
    FieldReader reader(plain, "training");
    TrainingOptions other;
    other.visit(reader);
    EXPECT_EQ(identity(other) == identity(), is_left_out(field.name)) << field.name;
  }
}

TEST(Identity, OnlySchedulesThatLastAsLongAsTheEpochsKnowTheirNumber) {
  for (const char* schedule :
       {"none", "piecewise", "exponential", "polynomial", "cosine", "cyclical", "warmup"}) {
    TrainingOptions five, eight;
    five.schedule.types = eight.schedule.types = {schedule};
    five.max_epochs = 5, eight.max_epochs = 8;
    const std::string name = schedule;
    const bool stretched = name == "polynomial" || name == "cosine" || name == "warmup";
    EXPECT_EQ(identity(five) != identity(eight), stretched) << schedule;
    const auto difference = schedule_difference(identity(eight), identity(five));
    ASSERT_EQ(difference.has_value(), stretched) << schedule;
    if (!stretched) continue;
    EXPECT_NE(difference->what.find("[50.0] iterations there, but [80.0] here"), std::string::npos)
        << difference->what;
    eight.schedule.epochs = {5};
    EXPECT_EQ(identity(five), identity(eight)) << schedule;
    eight.solver.momentum = 0.5;
    EXPECT_FALSE(schedule_difference(identity(eight), identity(five))) << "in more than that";
  }
  TrainingOptions five, eight;
  five.schedule.types = eight.schedule.types = {"cosine"};
  five.schedule.function = eight.schedule.function = [](const ScheduleStep&) { return 0.1; };
  five.max_epochs = 5;
  EXPECT_EQ(identity(five), identity(eight)) << "the function decides";
}

// A layer that is not in the registry.
struct Offset {
  static constexpr const char* kType = "identity_test_offset";
  static constexpr const char* kHelp = "adds nothing";
  double by = 0.5;
  void visit(FieldVisitor& v) { v.number("by", by, "how much"); }
  Value build(LayerBuilder&, Value x) const { return x; }
};

TEST(Identity, FieldsOfLayersWithTheirDefaultsLeaveNoTrace) {
  Network network{image_input({.height = 28, .width = 28, .channels = 1}),
                  convolution2d({.filters = 3, .kernel = {5, 5}}), dropout({.probability = 0.25})};
  network.add(custom_layer(Offset{}), "a");
  network.add(custom_layer(Offset{.by = 2}), "b");
  network.add_shared("a", "c");
  EXPECT_EQ(
      network.canonical_layers().dump(),
      R"([{"channels":1,"height":28,"name":"image_input_1","type":"image_input","width":28},)"
      R"({"filters":3,"inputs":["image_input_1"],"kernel":[5,5],"name":"convolution2d_1",)"
      R"("type":"convolution2d"},)"
      R"({"inputs":["convolution2d_1"],"name":"dropout_1","probability":0.25,"type":"dropout"},)"
      R"({"inputs":["dropout_1"],"name":"a","type":"identity_test_offset"},)"
      R"({"by":2.0,"inputs":["a"],"name":"b","type":"identity_test_offset"},)"
      R"({"inputs":["b"],"layer":"a","name":"c","type":"shared"}])");
}

// Defaults are part of the format of identities: with another default the same text would describe
// another training.
TEST(Identity, DefaultsStay) {
  std::vector<std::string> present;
  const auto list = [&](const std::string& table, const std::vector<FieldInfo>& fields) {
    for (const FieldInfo& f : fields) {
      if (table == "training" && is_left_out(f.name)) continue;
      present.push_back(table + "." + f.name + " " + f.default_value);
    }
  };
  const auto list_struct = [&](const std::string& table, auto fields) {
    FieldLister lister;
    fields.visit(lister);
    list(table, lister.fields);
  };
  list_struct("augmentation", Augmentation());
  list_struct("noise", InputNoise());
  list_struct("training", TrainingOptions());
  for (const LayerInfo& layer : layer_registry()) list(layer.type, layer.fields);
  std::ifstream file(LOCKSTEP_SOURCE_FOLDER "/tests/train/identity_defaults.txt");
  ASSERT_TRUE(file);
  std::set<std::string> known;
  for (std::string line; std::getline(file, line);) known.insert(line);
  for (const std::string& line : present) {
    EXPECT_EQ(known.erase(line), 1u)
        << "identity_defaults.txt has no line `" << line
        << "`: add it for a new field; for another default raise identity_version and keep what "
           "reads the version before";
  }
  for (const std::string& line : known) ADD_FAILURE() << "no field has `" << line << "` any more";
}

}  // namespace
}  // namespace lockstep
