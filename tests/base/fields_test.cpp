#include "lockstep/base/fields.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using nlohmann::json;

struct Options {
  int64_t mini_batch_size = 128;
  int64_t epochs = 30;
  double learn_rate = 0.01;
  bool verbose = true;
  std::string solver = "sgdm";
  std::string name = "net";
  Size2d stride = {1, 1};
  Size2d translation = {0, 0};
  Padding2d padding;
  int64_t validation_frequency = 50;

  void visit(FieldVisitor& v) {
    v.integer("mini_batch_size", mini_batch_size, "observations in a mini-batch", {.min = 1});
    v.integer("epochs", epochs, "passes over the data", {.min = 1, .max = 1000});
    v.number("learn_rate", learn_rate, "initial learning rate",
             {.min = 0, .max = 10, .min_excluded = true});
    v.flag("verbose", verbose, "print a table");
    v.text("solver", solver, "update rule", {"sgdm", "adam", "rmsprop"});
    v.text("name", name, "any name");
    v.size("stride", stride, "step of the window in elements", {.min = 1});
    v.range("translation", translation, "shift in pixels");
    v.padding("padding", padding, "elements added at the borders");
    v.integer_or("validation_frequency", validation_frequency, "epoch", "iterations between");
  }
};

struct Required {
  int64_t filters = 0;
  Size2d kernel = {0, 0};
  void visit(FieldVisitor& v) {
    v.integer("filters", filters, "number of filters", {.min = 1, .required = true});
    v.size("kernel", kernel, "extent of the window", {.min = 1, .required = true});
  }
};

// Knows "2*width" (32) and "half" (0.5) only.
double known_expressions(const std::string& text, const std::string& where) {
  if (text == "2*width") return 32;
  if (text == "half") return 0.5;
  throw InvalidArgument("[" + where + "] cannot evaluate '" + text + "'");
}

template <class T = Options>
T read(const char* text, const FieldReader::Expression& expression = {}) {
  const json object = json::parse(text);
  FieldReader reader(object, "training", expression);
  T options;
  options.visit(reader);
  reader.finish();
  return options;
}

// The message and the hint of the error, or "no error".
template <class T = Options>
std::string error_of(const char* text, const FieldReader::Expression& expression = {}) {
  try {
    read<T>(text, expression);
  } catch (const InvalidArgument& error) {
    return error.what() + (error.hint().empty() ? "" : " | " + error.hint());
  }
  return "no error";
}

TEST(FieldReader, FieldsThatAreNotThereKeepTheirDefaults) {
  const Options options = read("{}");
  EXPECT_EQ(options.mini_batch_size, 128);
  EXPECT_EQ(options.solver, "sgdm");
  EXPECT_EQ(options.validation_frequency, 50);
}

TEST(FieldReader, ReadsEveryKind) {
  const Options o = read(R"({"mini_batch_size": 7, "learn_rate": 1e-3, "verbose": false,
      "solver": "adam", "name": "x", "stride": [2, 3], "translation": [-4, 2],
      "padding": [1, 2, 3, 4], "validation_frequency": "epoch", "epochs": 5.0})");
  EXPECT_EQ(o.mini_batch_size, 7);
  EXPECT_EQ(o.epochs, 5);
  EXPECT_EQ(o.learn_rate, 1e-3);
  EXPECT_FALSE(o.verbose);
  EXPECT_EQ(o.solver, "adam");
  EXPECT_EQ(o.name, "x");
  EXPECT_EQ(o.stride, (Size2d{2, 3}));
  EXPECT_EQ(o.translation, (Size2d{-4, 2}));
  EXPECT_EQ(o.padding, (Padding2d{false, 1, 2, 3, 4}));
  EXPECT_EQ(o.validation_frequency, 0);
}

TEST(FieldReader, ReadsShortForms) {
  const Options o = read(R"({"stride": 2, "translation": 4, "padding": 1, "learn_rate": 1,
                            "validation_frequency": 10})");
  EXPECT_EQ(o.stride, (Size2d{2, 2}));
  EXPECT_EQ(o.translation, (Size2d{-4, 4}));
  EXPECT_EQ(o.padding, padding(1));
  EXPECT_EQ(o.learn_rate, 1.0);
  EXPECT_EQ(o.validation_frequency, 10);
  EXPECT_EQ(read(R"({"padding": "same"})").padding, same_padding);
  EXPECT_EQ(read(R"({"padding": [1, 2]})").padding, (Padding2d{false, 1, 1, 2, 2}));
}

struct Ranges {
  NumberRange angle{0, 0}, factor{1, 1};
  void visit(FieldVisitor& v) {
    v.number_range("angle", angle, "degrees", {.min = -360, .max = 360, .symmetric = true});
    v.number_range("factor", factor, "factors", {.min = 0.5, .max = 2});
  }
};

TEST(FieldReader, ReadsRangesOfNumbers) {
  const Ranges none = read<Ranges>("{}");
  EXPECT_EQ(none.angle, (NumberRange{0, 0}));
  EXPECT_EQ(none.factor, (NumberRange{1, 1}));
  const Ranges r = read<Ranges>(R"({"angle": 12.5, "factor": [0.5, 2]})");
  EXPECT_EQ(r.angle, (NumberRange{-12.5, 12.5}));
  EXPECT_EQ(r.factor, (NumberRange{0.5, 2}));
  EXPECT_EQ(read<Ranges>(R"({"factor": 1.5})").factor, (NumberRange{1.5, 1.5}));
  EXPECT_EQ(read<Ranges>(R"({"angle": ["half", "2*width"]})", known_expressions).angle,
            (NumberRange{0.5, 32}));
  EXPECT_EQ(error_of<Ranges>(R"({"factor": [0.1, 1]})"),
            "[training] factor must be a number, or [low, high] with low <= high, from 0.5 to 2, "
            "received [0.1,1]");
  for (const char* bad : {R"({"angle": -1})", R"({"angle": [1, 0]})", R"({"angle": [0, 361]})",
                          R"({"angle": [0]})", R"({"angle": [0, 1, 2]})", R"({"angle": "x"})",
                          R"({"angle": true})", R"({"angle": null})", R"({"angle": [0, null]})"}) {
    EXPECT_NE(error_of<Ranges>(bad).find("[training] angle must be"), std::string::npos) << bad;
  }
  FieldLister lister;
  Ranges ranges;
  ranges.visit(lister);
  EXPECT_EQ(lister.fields.at(1).type, "number, or [low, high] with low <= high, from 0.5 to 2");
  EXPECT_EQ(lister.fields.at(1).default_value, "[1,1]");
  nlohmann::ordered_json written;
  FieldWriter writer(written);
  ranges.angle = {-0.1, 7};
  ranges.visit(writer);
  EXPECT_EQ(read<Ranges>(written.dump().c_str()).angle, ranges.angle);
}

TEST(FieldReader, EvaluatesExpressionsInNumbers) {
  const Options o = read(R"({"mini_batch_size": "2*width", "learn_rate": "half",
      "stride": ["2*width", 1], "padding": "2*width", "validation_frequency": "2*width",
      "translation": "2*width"})",
                         known_expressions);
  EXPECT_EQ(o.mini_batch_size, 32);
  EXPECT_EQ(o.learn_rate, 0.5);
  EXPECT_EQ(o.stride, (Size2d{32, 1}));
  EXPECT_EQ(o.padding, padding(32));
  EXPECT_EQ(o.validation_frequency, 32);
  EXPECT_EQ(o.translation, (Size2d{-32, 32}));
  EXPECT_EQ(
      error_of(R"({"mini_batch_size": "half"})", known_expressions),
      "[training] mini_batch_size must be a whole number >= 1, received \"half\", which is 0.5");
  EXPECT_EQ(error_of(R"({"mini_batch_size": "x"})", known_expressions),
            "[training.mini_batch_size] cannot evaluate 'x'");
  EXPECT_EQ(error_of(R"({"mini_batch_size": "2*width"})"),
            "[training] mini_batch_size must be a whole number >= 1, received \"2*width\"");
}

TEST(FieldReader, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"mini_batch_size": -3})",
       "[training] mini_batch_size must be a whole number >= 1, received -3"},
      {R"({"mini_batch_size": 2.5})",
       "[training] mini_batch_size must be a whole number >= 1, received 2.5"},
      {R"({"mini_batch_size": 1e300})",
       "[training] mini_batch_size must be a whole number >= 1, received 1e+300"},
      {R"({"mini_batch_size": 18446744073709551615})",
       "[training] mini_batch_size must be a whole number >= 1, received 18446744073709551615"},
      {R"({"mini_batch_size": null})",
       "[training] mini_batch_size must be a whole number >= 1, received null"},
      {R"({"mini_batch_size": true})",
       "[training] mini_batch_size must be a whole number >= 1, received true"},
      {R"({"epochs": 1001})",
       "[training] epochs must be a whole number from 1 to 1000, received 1001"},
      {R"({"learn_rate": 0})", "[training] learn_rate must be a number > 0 and <= 10, received 0"},
      {R"({"learn_rate": "fast"})",
       "[training] learn_rate must be a number > 0 and <= 10, received \"fast\""},
      {R"({"verbose": 1})", "[training] verbose must be true or false, received 1"},
      {R"({"solver": "sgd"})",
       "[training] solver must be one of \"sgdm\", \"adam\", \"rmsprop\", received \"sgd\" | did "
       "you "
       "mean `sgdm`?"},
      {R"({"solver": 3})",
       "[training] solver must be one of \"sgdm\", \"adam\", \"rmsprop\", received 3"},
      {R"({"name": 3})", "[training] name must be text, received 3"},
      {R"({"stride": [1, 2, 3]})",
       "[training] stride must be one number or [rows, columns], each a whole number >= 1, "
       "received "
       "[1,2,3]"},
      {R"({"stride": [1, 0]})", "[training] stride must be a whole number >= 1, received 0"},
      {R"({"translation": [4, -4]})",
       "[training] translation must be one whole number >= 0 or [low, high] with low <= high, "
       "received [4,-4]"},
      {R"({"translation": -4})", "[training] translation must be a whole number >= 0, received -4"},
      {R"({"padding": "sane"})",
       "[training] padding must be \"same\", a whole number >= 0, [rows, columns] or [top, bottom, "
       "left, right], received \"sane\""},
      {R"({"padding": [1, 2, 3]})",
       "[training] padding must be \"same\", a whole number >= 0, [rows, columns] or [top, bottom, "
       "left, right], received [1,2,3]"},
      {R"({"validation_frequency": "epok"})",
       "[training] validation_frequency must be a whole number >= 1 or \"epoch\", received "
       "\"epok\""},
      {R"({"validation_frequency": 0})",
       "[training] validation_frequency must be a whole number >= 1, received 0"},
      {R"([1])", "[training] must hold named fields, received [1]"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(error_of(text), message) << text;
}

TEST(FieldReader, RefusesNumbersThatAreNotFinite) {
  for (double value : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    const json object = {{"rate", value}};
    FieldReader reader(object, "training");
    FieldVisitor& visitor = reader;
    double rate = 1;
    EXPECT_THROW(visitor.number("rate", rate, ""), InvalidArgument);
    int64_t count = 1;
    EXPECT_THROW(visitor.integer("rate", count, ""), InvalidArgument);
    EXPECT_EQ(rate, 1);
  }
}

struct WithList {
  std::vector<int64_t> size;
  void visit(FieldVisitor& v) { v.integers("size", size, "extents", {.min = 1, .required = true}); }
};

TEST(FieldReader, ReadsListsOfWholeNumbers) {
  EXPECT_EQ(read<WithList>(R"({"size": [2, 3, 4]})").size, (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(read<WithList>(R"({"size": 5})").size, (std::vector<int64_t>{5}));
  EXPECT_EQ(read<WithList>(R"({"size": ["2*width", 1]})", known_expressions).size,
            (std::vector<int64_t>{32, 1}));
  EXPECT_EQ(error_of<WithList>("{}"), "[training] size is missing (extents) | add it");
  EXPECT_EQ(error_of<WithList>(R"({"size": []})"),
            "[training] size must be one number or a list, each a whole number >= 1, received []");
  EXPECT_EQ(error_of<WithList>(R"({"size": [2, 0]})"),
            "[training] size must be a whole number >= 1, received 0");
  WithList some{{6, 7}};
  nlohmann::ordered_json written;
  FieldWriter writer(written);
  some.visit(writer);
  EXPECT_EQ(written.dump(), R"({"size":[6,7]})");
  FieldLister lister;
  some.visit(lister);
  EXPECT_EQ(lister.fields.at(0).type, "whole number >= 1, or a list of them");
  EXPECT_EQ(lister.fields.at(0).default_value, "required");
}

TEST(FieldReader, NamesUnknownFieldsWithTheNearestKnownOne) {
  EXPECT_EQ(error_of(R"({"solvr": "adam"})"),
            "[training] unknown field 'solvr' | did you mean `solver`?");
  EXPECT_EQ(error_of<Required>(R"({"filters": 1, "kernel": 3, "color": 1})"),
            "[training] unknown field 'color' | known names: filters, kernel");
}

TEST(FieldReader, NamesRequiredFieldsThatAreMissing) {
  EXPECT_EQ(error_of<Required>(R"({"kernel": 3})"),
            "[training] filters is missing (number of filters) | add it");
  EXPECT_EQ(
      error_of<Required>(R"({"filter": 3, "kernel": 3})"),
      "[training] filters is missing (number of filters) | is `filter` meant to be `filters`?");
  EXPECT_EQ(
      error_of<Required>(R"({"filters": 3, "kernal": 3})"),
      "[training] kernel is missing (extent of the window) | is `kernal` meant to be `kernel`?");
}

TEST(FieldReader, LeavesKeysOfTheCallerAlone) {
  const json object = {{"type", "convolution2d"}, {"filters", 8}, {"kernel", 3}};
  FieldReader reader(object, "layer 3 (convolution2d)", {}, {"type", "name"});
  Required fields;
  fields.visit(reader);
  EXPECT_NO_THROW(reader.finish());
  EXPECT_EQ(fields.filters, 8);
}

TEST(FieldWriter, WritesWhatReadingGivesBack) {
  const char* text = R"({"mini_batch_size":7,"epochs":5,"learn_rate":0.001,"verbose":false,)"
                     R"("solver":"adam","name":"x","stride":[2,3],"translation":[-4,2],)"
                     R"("padding":[1,2],"validation_frequency":"epoch"})";
  Options options = read(text);
  nlohmann::ordered_json written;
  FieldWriter writer(written);
  options.visit(writer);
  EXPECT_EQ(written.dump(), text);  // in the order of visiting
  options.padding = {false, 1, 2, 3, 4};
  options.validation_frequency = 9;
  options.visit(writer);
  EXPECT_EQ(written["padding"].dump(), "[1,2,3,4]");
  EXPECT_EQ(written["validation_frequency"], 9);
  options.padding = same_padding;
  options.visit(writer);
  EXPECT_EQ(written["padding"], "same");
  options.learn_rate = std::numeric_limits<double>::infinity();
  EXPECT_THROW(options.visit(writer), InvalidArgument);
}

TEST(FieldLister, TellsWhatDocumentationNeeds) {
  FieldLister lister;
  Options options;
  options.validation_frequency = 0;
  options.visit(lister);
  ASSERT_EQ(lister.fields.size(), 10u);
  EXPECT_EQ(lister.fields[0].name, "mini_batch_size");
  EXPECT_EQ(lister.fields[0].type, "whole number >= 1");
  EXPECT_EQ(lister.fields[0].default_value, "128");
  EXPECT_EQ(lister.fields[0].help, "observations in a mini-batch");
  EXPECT_EQ(lister.fields[2].type, "number > 0 and <= 10");
  EXPECT_EQ(lister.fields[2].default_value, "0.01");
  EXPECT_EQ(lister.fields[3].default_value, "true");
  EXPECT_EQ(lister.fields[4].type, "one of \"sgdm\", \"adam\", \"rmsprop\"");
  EXPECT_EQ(lister.fields[4].default_value, "\"sgdm\"");
  EXPECT_EQ(lister.fields[6].default_value, "[1,1]");
  EXPECT_EQ(lister.fields[8].default_value, "0");
  EXPECT_EQ(lister.fields[9].type, "whole number >= 1 or \"epoch\"");
  EXPECT_EQ(lister.fields[9].default_value, "\"epoch\"");
  FieldLister required;
  Required().visit(required);
  EXPECT_EQ(required.fields[0].default_value, "required");
}

struct Windows {
  Size3d kernel{1, 1, 1};
  Padding1d along;
  Padding3d around;
  void visit(FieldVisitor& v) {
    v.size("kernel", kernel, "of a window", {.min = 1});
    v.padding("along", along, "of a sequence");
    v.padding("around", around, "of an image with depth");
  }
};

TEST(Fields, WindowsAlongOneAndThreeAxes) {
  const auto both_ways = [](const char* text, const Windows& wanted) {
    const Windows o = read<Windows>(text);
    EXPECT_EQ(o.kernel, wanted.kernel) << text;
    EXPECT_EQ(o.along, wanted.along) << text;
    EXPECT_EQ(o.around, wanted.around) << text;
    nlohmann::ordered_json written;
    FieldWriter writer(written);
    Windows copy = o;
    copy.visit(writer);
    const Windows again = read<Windows>(written.dump().c_str());
    EXPECT_EQ(again.kernel, o.kernel) << written;
    EXPECT_EQ(again.along, o.along) << written;
    EXPECT_EQ(again.around, o.around) << written;
  };
  both_ways("{}", {});
  both_ways(R"({"kernel": 3, "along": 2, "around": 1})",
            {{3, 3, 3}, Padding1d::all(2), Padding3d::all(1)});
  both_ways(R"({"kernel": [1, 2, 3], "along": [1, 2], "around": [1, 2, 3]})",
            {{1, 2, 3}, {false, {1}, {2}}, {false, {1, 2, 3}, {1, 2, 3}}});
  both_ways(R"({"along": "same", "around": [1, 2, 3, 4, 5, 6]})",
            {{1, 1, 1}, {.same = true}, {false, {1, 3, 5}, {2, 4, 6}}});
  EXPECT_NE(error_of<Windows>(R"({"kernel": [1, 2]})").find("[depth, rows, columns]"),
            std::string::npos);
  EXPECT_NE(error_of<Windows>(R"({"kernel": 0})").find(">= 1"), std::string::npos);
  EXPECT_NE(error_of<Windows>(R"({"along": [1]})").find("[before, after]"), std::string::npos);
  EXPECT_NE(error_of<Windows>(R"({"around": [1, 2]})").find("six"), std::string::npos);
  EXPECT_NE(error_of<Windows>(R"({"around": -1})").find(">= 0"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
