#include "apps/lockstep/image_options.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"
#include "lockstep/base/text.h"
#include "lockstep/runs/run_data.h"

namespace lockstep::command {
namespace {

Option& one_of(Option& option, const std::vector<std::string>& words) {
  std::string type;
  for (const std::string& word : words) type += (type.empty() ? "" : "|") + word;
  return option.type_name(type).check([words](const std::string& value) {
    for (const std::string& word : words) {
      if (word == value) return std::string();
    }
    return "`" + value + "` is not valid: " + suggest(value, words);
  });
}

}  // namespace

void add_labels(Subcommand& sub, std::string& labels, const std::string& usual) {
  Option option = sub.add_option("--labels", labels,
                                 "Folders that name the class of an image: the first below the "
                                 "data's folder, the nearest to the image, or the whole path "
                                 "(default: " +
                                     usual + ")");
  one_of(option, {"first", "nearest", "path"});
}

void add_fitting(Subcommand& sub, Fitting& given, const std::string& resized) {
  const Option resize = sub.add_flag(
      "--resize", given.resize, "Resize images to " + resized + ", also if the training did not");
  sub.add_flag("--crop", given.crop,
               "Crop images at their center to the network's input, also if the training did not")
      .excludes(resize);
  sub.add_option("--resize-shorter", given.resize_shorter,
                 "Pixels of the shorter side to which images are resized before they are cropped; "
                 "0: not resized (default: as in the training)")
      .type_name("N")
      .not_negative()
      .excludes(resize);
}

Fitting fitting_of(const Model& model, const Fitting& given) {
  const Preparation& before = model.preparation;
  if (given.resize) return {.resize = true};
  Fitting fit{before.resize && !given.crop, before.crop || given.crop, before.resize_shorter};
  if (given.resize_shorter < 0) return fit;
  if (!fit.crop) {
    throw InvalidArgument("--resize-shorter is for images that are cropped afterwards",
                          "add --crop, or use --resize alone");
  }
  fit.resize_shorter = given.resize_shorter;
  return fit;
}

DatastorePtr fitted(DatastorePtr images, const std::vector<Shape>& sizes, const Fitting& fit) {
  if (sizes.size() != 1 || sizes[0].rank() != 3) return images;
  const int64_t height = sizes[0][1], width = sizes[0][2];
  if (!fit.crop) return resized(std::move(images), height, width);
  if (fit.resize_shorter > 0) images = shorter_resized(std::move(images), fit.resize_shorter);
  return center_cropped(std::move(images), height, width);
}

LeastSize least_of(const Model& model, const Fitting& fit) {
  Preparation preparation = model.preparation;
  preparation.resize = fit.resize;
  preparation.crop = fit.crop;
  preparation.resize_shorter = fit.resize_shorter;
  return least_decoded(preparation, model.network);
}

PixelClasses pixel_classes_of(const Model& model) {
  PixelClasses classes{.names = model.classes,
                       .values = model.preparation.pixel_values,
                       .ignored = model.preparation.ignored_value};
  const int64_t maps = model.network.output_shapes().at(0)[0];
  for (int64_t c = std::ssize(classes.names); c < maps; ++c) {
    classes.names.push_back(std::to_string(c));
  }
  return classes;
}

void add_orientation(Subcommand& sub, std::string& orientation) {
  Option option = sub.add_option("--orientation", orientation,
                                 "Images as stored, or turned as their EXIF orientation says "
                                 "(default: as in the training)");
  one_of(option, {"stored", "exif"});
}

bool upright(const Model& model, const std::string& orientation) {
  return orientation.empty() ? model.preparation.upright : orientation == "exif";
}

void add_bad_images(Subcommand& sub, std::string& bad_images, const std::string& help) {
  Option option = sub.add_option("--bad-images", bad_images, help);
  one_of(option, {"stop", "skip"});
}

void add_text_column(Subcommand& sub, std::string& column) {
  sub.add_option("--text-column", column,
                 "Key of the texts in .jsonl files (default: that of the training)")
      .type_name("NAME");
}

void refuse_text_column(const char* command) {
  throw InvalidArgument(std::string("[") + command +
                            "] --text-column is for .jsonl files, but the network's input is not "
                            "text",
                        "leave it out");
}

std::function<void(const std::string&)> Notes::printer() {
  return [this](const std::string& text) {
    if (printed_.insert(text).second) print_note(text);
  };
}

void Notes::print_new(const std::vector<DatastorePtr>& stores) {
  for (const std::string& text : notices_of(stores)) printer()(text);
}

void print_skipped(const std::vector<UnreadableImage>& skipped) {
  if (skipped.empty()) return;
  std::fprintf(stderr, "note: %s\n", printable(skipped_text(skipped)).c_str());
}

nlohmann::ordered_json skipped_json(const std::vector<UnreadableImage>& skipped) {
  nlohmann::ordered_json images = nlohmann::ordered_json::array();
  for (const UnreadableImage& image : skipped) {
    images.push_back({{"name", image.name}, {"reason", image.reason}});
  }
  return images;
}

}  // namespace lockstep::command
