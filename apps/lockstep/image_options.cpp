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

Fitting fitting_of(const Model& model, bool resize, bool crop) {
  if (resize || crop) return {resize, crop};
  return {model.preparation.resize, model.preparation.crop};
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
