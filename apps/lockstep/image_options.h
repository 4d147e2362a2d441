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

// Whether images get the size of the network's input, by the options of a command, or else as in
// the training of the model.
struct Fitting {
  bool resize = false, crop = false;
};
Fitting fitting_of(const Model& model, bool resize, bool crop);

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
