// Options of commands that read images and texts, and what they tell of them.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "apps/lockstep/command_line.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/formats/model.h"

namespace lockstep::command {

// --labels and --bad-images, as in [data] of a job. `usual` says what holds without the option.
void add_labels(Subcommand& sub, std::string& labels, const std::string& usual = "first");
void add_bad_images(Subcommand& sub, std::string& bad_images, const std::string& help);

// --text-column, for commands that read texts.
void add_text_column(Subcommand& sub, std::string& column);
// Throws InvalidArgument: a network whose input is not text has none.
[[noreturn]] void refuse_text_column(const char* command);

// How images get the size of the network's input (see Preparation), by the options of a command, or
// else as in the training of the model.
struct Fitting {
  bool resize = false, crop = false;
  int64_t resize_shorter = 0;

  bool any() const { return resize || crop; }
};
// --resize, --resize-shorter and --crop. -1: resize_shorter was not given.
inline constexpr Fitting no_fitting{.resize_shorter = -1};
void add_fitting(Subcommand& sub, Fitting& given, const std::string& resized);
// Throws InvalidArgument for --resize-shorter where images are not cropped.
Fitting fitting_of(const Model& model, const Fitting& given);
// Images that `fit` gives the size of the only shape; others if that is not the shape of images.
DatastorePtr fitted(DatastorePtr images, const std::vector<Shape>& sizes, const Fitting& fit);

// The size that decoded images need at least, if the training of the model has scaled them.
LeastSize least_of(const Model& model, const Fitting& fit);

// What the pixels of the label images of a model stand for: as in its training.
PixelClasses pixel_classes_of(const Model& model);

// --orientation, and whether images are turned by it, or else as in the training of the model.
void add_orientation(Subcommand& sub, std::string& orientation);
bool upright(const Model& model, const std::string& orientation);

// Adds to an error about one image how to go on without it.
inline constexpr const char* skip_hint = "--bad-images skip leaves out what cannot be read";

// Prints what datastores tell as notes on standard error, each once.
class Notes {
 public:
  // A function that prints a note, for EvaluationOptions::notice. It refers to this object.
  std::function<void(const std::string&)> printer();
  // Prints the notices that were not printed yet.
  void print_new(const std::vector<DatastorePtr>& stores);

 private:
  std::set<std::string> printed_;
};

void print_skipped(const std::vector<UnreadableImage>& skipped);
// [{"name": ..., "reason": ...}, ...]
nlohmann::ordered_json skipped_json(const std::vector<UnreadableImage>& skipped);

}  // namespace lockstep::command
