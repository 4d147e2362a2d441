#include "lockstep/runs/jobs/pixel_classes.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/sources/data_source.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kClasses = "pixel_classes";
constexpr const char* kIgnored = "ignored_value";

[[noreturn]] void refuse(const char* key, const json& value, const char* expected) {
  throw InvalidArgument("[data] " + std::string(key) + " is " + value.dump().substr(0, 80),
                        expected);
}

// A number, or red, green and blue.
std::vector<int64_t> value_of(const json& value, const char* key) {
  constexpr const char* expected = "one whole number from 0 to 255, or a color [red, green, blue]";
  if (value.is_number_integer()) return {value.get<int64_t>()};
  if (!value.is_array() || value.size() != 3) refuse(key, value, expected);
  std::vector<int64_t> color;
  for (const json& part : value) {
    if (!part.is_number_integer()) refuse(key, value, expected);
    color.push_back(part.get<int64_t>());
  }
  return color;
}

PixelClasses classes_of(const json& value) {
  PixelClasses classes;
  if (value.is_object()) {
    for (const auto& [name, number] : value.items()) {
      classes.names.push_back(name);
      classes.values.push_back(value_of(number, kClasses));
    }
    return classes;
  }
  if (!value.is_array()) {
    refuse(kClasses, value, "a list of names, or a table { name = value, ... }");
  }
  for (const json& name : value) {
    if (!name.is_string()) refuse(kClasses, value, "names are texts");
    classes.names.push_back(name.get<std::string>());
  }
  return classes;
}

json as_json(const std::vector<int64_t>& value) {
  return value.size() == 1 ? json(value[0]) : json(value);
}

}  // namespace

void take_pixel_classes(json& table, JobData& data) {
  if (!table.is_object()) return;
  const auto take = [&](const char* key) {
    json value = table.contains(key) ? table[key] : json();
    table.erase(key);
    return value;
  };
  const json classes = take(kClasses), ignored = take(kIgnored);
  if (classes.is_null()) {
    if (ignored.is_null()) return;
    throw InvalidArgument("[data] ignored_value is for label images, but pixel_classes is missing",
                          "name the classes of the pixels");
  }
  data.pixel_classes = classes_of(classes);
  if (!ignored.is_null()) data.pixel_classes.ignored = value_of(ignored, kIgnored);
  data.pixel_classes.check();
}

void put_pixel_classes(const JobData& data, ordered_json& table) {
  const PixelClasses& classes = data.pixel_classes;
  if (classes.names.empty()) return;
  if (classes.values.empty()) {
    table[kClasses] = classes.names;
  } else {
    for (size_t i = 0; i < classes.names.size(); ++i) {
      table[kClasses][classes.names[i]] = as_json(classes.values[i]);
    }
  }
  if (!classes.ignored.empty()) table[kIgnored] = as_json(classes.ignored);
}

std::vector<FieldInfo> pixel_class_fields() {
  return {{kClasses, "list of texts, or table", "none",
           "label images: `targets` are PNG files with a class for each pixel. Names, of which the "
           "first is the number 0; or a table by name of numbers (gray values, indices of "
           "palettes), { road = 7 }, or colors, { road = [128, 64, 128] }; its classes are sorted "
           "bytewise"},
          {kIgnored, "whole number from 0 to 255, or [red, green, blue]", "none",
           "label images: the value of pixels that have no class and do not count"}};
}

void check_pixel_classes(const JobData& data) {
  if (data.pixel_classes.names.empty()) return;
  const auto refuse_data = [](const std::string& why, const char* hint) {
    throw InvalidArgument("[data] pixel_classes is for label images, but " + why, hint);
  };
  if (data.targets.empty()) {
    refuse_data("targets is missing", "set targets to the folder of the label images");
  }
  if (data.targets == image_targets_inputs || data.targets == targets_next_step ||
      is_table_file(data.targets)) {
    refuse_data("targets is " + data.targets, "a folder of PNG files, named as the images");
  }
  if (data.train.size() > 1 || is_table_file(data.train.at(0))) {
    refuse_data("train is not one folder of images",
                "a network that labels pixels has one input, an image");
  }
}

}  // namespace lockstep
