// Model files: safetensors files with the network as JSON in the metadata.
#pragma once

#include <string>
#include <vector>

#include "lockstep/engine/formats/safetensors.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

class FileSystem;

// The name of the model in the folder of a run.
inline constexpr const char* run_model_name = "model.safetensors";

// How the data of a training were read, so that others can be read alike. The defaults are those of
// job files.
struct Preparation {
  // Images of other sizes than the network's input are resized to it (and targets to its output),
  // or cut to it at their center, before which their shorter side gets `resize_shorter` pixels, if
  // that is not 0.
  bool resize = false, crop = false;
  int64_t resize_shorter = 0;
  bool scaled = false;           // JPEG files are decoded at the smallest scale that suffices
  bool upright = false;          // images are turned as their EXIF orientation says
  std::string labels = "first";  // the folders that name classes: "first", "nearest", "path"
  bool header = true;            // the first line of tables names their columns
  // Of texts: what a token is ("bytes", "characters", "words", "numbers"; "": no text was read),
  // and the tokens of an example. The vocabulary is in Network::columns().
  std::string tokens = {};
  int64_t window_length = 0;
  // Keys of texts and labels in .jsonl files. "": `text` and `label`.
  std::string text_column = {}, label_column = {};
  // What the targets are: "columns" of the table (Network::columns() has their names), of sequences
  // also the "next_step" or the "inputs"; "": labels, or others.
  std::string targets = {};
  // Of label images: the value of each class, a number or red, green and blue, and that of pixels
  // without a class (PixelClasses); empty: class k is the number k, and all pixels have one.
  std::vector<std::vector<int64_t>> pixel_values = {};
  std::vector<int64_t> ignored_value = {};
  // Of tables: columns of texts, those that are left out, and whether missing values are filled in
  // ("refuse", "mean", "flag"; see MissingValues).
  std::vector<std::string> categories = {}, ignored_columns = {};
  std::string missing = "refuse";

  friend bool operator==(const Preparation&, const Preparation&) = default;
};

// A network with the names of its classes, if it classifies.
struct Model {
  Network network;
  std::vector<std::string> classes;
  // Digest of the contents, as stored in the file and verified by reading. "" if the file has no
  // digest; damage to its values is then not detected.
  std::string digest = {};
  Preparation preparation = {};
};

// Writes parameters and state (tensors "<layer>.<parameter>", row-major f32). The metadata has
// "lockstep.network" (Network::to_json), "lockstep.classes" (a JSON list), "lockstep.format" ("1"),
// "lockstep.digest" (model_digest()) and, of a network that learned from tables, "lockstep.columns"
// (Network::columns(); read into the network), and "lockstep.preparation" for one that is not the
// default. docs/model-file.md describes the file for others. Atomic. Throws FileError, and
// InvalidArgument for a network without values or a class name that is not UTF-8.
void save_model(FileSystem& files, const std::string& path, const Network& network,
                const std::vector<std::string>& classes, const Preparation& preparation = {});

// Reads a model. Throws DataError, naming the file, if it is damaged, is not a model, does not fit
// its own network, or has a digest that differs from that of its contents. A file without a digest
// is accepted. Throws FileError if the file cannot be read.
Model load_model(FileSystem& files, const std::string& path);

// Whether a safetensors file has the description of a network, as models do. Thread-safe.
bool describes_network(const SafetensorsFile& file);

// The same with bytes, for other processes. `name` identifies the file in error messages. These
// four functions are thread-safe.
std::vector<std::byte> encode_model(const Network& network, const std::vector<std::string>& classes,
                                    const Preparation& preparation = {});
Model decode_model(std::vector<std::byte> bytes, const std::string& name = "the model");

// Returns a digest of the file's contents. It does not depend on the order and white space of the
// header. It covers the number of metadata entries without "lockstep.digest", the key and text of
// each entry, sorted by key, the number of tensors and, sorted by name, each tensor's name, type
// and shape as text ("3x2 f32"), and bytes, row-major. See Digester for the encoding. Thread-safe.
std::string model_digest(const SafetensorsFile& file);

// Returns the message for the user about a file without a digest.
std::string no_digest_text(const std::string& path);

// Whether all values of a network are finite.
bool all_finite(const Network& network);

// Throws DataError, naming `name`, the first tensor with values that are not finite, and their
// number. To be called before a network is used; load_model() does not check this.
void require_finite(const Network& network, const std::string& name);
// The same for one f32 tensor, which is named in the error.
void require_finite(const Tensor& tensor, const std::string& tensor_name, const std::string& name);

}  // namespace lockstep
