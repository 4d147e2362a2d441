// Texts with classes: folders of .txt files, and .jsonl files.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/suggest.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/described.h"
#include "lockstep/runs/sources/text_source.h"
#include "lockstep/storage/s3_files.h"

namespace lockstep {
namespace {

constexpr const char* kTextKey = "text";
constexpr const char* kLabelKey = "label";

// The value of a key as text: a text, or for labels also an integer.
std::string value_of(const nlohmann::json& object, const char* key, bool integers,
                     const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) {
    std::vector<std::string> keys;
    for (const auto& item : object.items()) keys.push_back(item.key());
    throw DataError("[text] " + where + " has no key `" + key + "`", suggest(key, keys));
  }
  if (found->is_string()) return found->get<std::string>();
  if (integers && found->is_number_integer()) return found->dump();
  throw DataError("[text] " + where + ": `" + key + "` is not a text" +
                  (integers ? " or an integer" : ""));
}

void take_lines(const std::string& path, bool labeled, LabeledTexts& texts) {
  const std::string all = read_text(storage::files_of(path), path);
  std::string_view left = all;
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  if (left.starts_with(mark)) left.remove_prefix(mark.size());
  for (int64_t number = 1; !left.empty(); ++number) {
    const size_t end = left.find('\n');
    const std::string_view line = left.substr(0, end);
    left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = path + " line " + std::to_string(number);
    nlohmann::json object;
    try {
      object = parse_json<nlohmann::json>(line, {.unique_keys = true});
    } catch (const JsonError& error) {
      throw DataError("[text] " + where + ": " + error.what());
    }
    if (!object.is_object()) throw DataError("[text] " + where + " is not a JSON object");
    texts.files.texts.push_back(value_of(object, kTextKey, false, where));
    texts.labels.push_back(labeled ? value_of(object, kLabelKey, true, where) : "");
    if (labeled && texts.labels.back().empty()) {
      throw DataError("[text] " + where + ": `" + kLabelKey + "` is empty");
    }
    texts.files.paths.push_back(where);
  }
}

void take_files(const std::string& path, bool labeled, LabeledTexts& texts) {
  TextFiles read = read_text_files(path);
  const size_t root = path.size() + (path.ends_with('/') ? 0 : 1);
  for (size_t i = 0; i < read.paths.size(); ++i) {
    std::string label;
    if (labeled) {
      const std::string name = read.paths[i].size() > root ? read.paths[i].substr(root) : "";
      const size_t slash = name.find('/');
      if (slash == std::string::npos) {
        throw DataError("[text] " + read.paths[i] + " is not in a folder of a class",
                        "put each text into a folder with the name of its class, or use a .jsonl "
                        "file");
      }
      label = name.substr(0, slash);
    }
    texts.labels.push_back(std::move(label));
    texts.files.paths.push_back(std::move(read.paths[i]));
    texts.files.texts.push_back(std::move(read.texts[i]));
  }
}

ImageLabels label_numbers(const LabeledTexts& texts, std::vector<std::string> classes) {
  if (classes.empty()) {
    const std::set<std::string> names(texts.labels.begin(), texts.labels.end());
    classes.assign(names.begin(), names.end());
  }
  ImageLabels labels{.labels = {}, .classes = std::move(classes)};
  for (size_t i = 0; i < texts.labels.size(); ++i) {
    const auto at = std::find(labels.classes.begin(), labels.classes.end(), texts.labels[i]);
    if (at == labels.classes.end()) {
      throw DataError("[text] " + texts.files.paths[i] + " has the class `" + texts.labels[i] +
                          "`, which is not among the " +
                          counted(static_cast<int64_t>(labels.classes.size()), "class", "classes") +
                          " of the training",
                      suggest(texts.labels[i], labels.classes));
    }
    labels.labels.push_back(at - labels.classes.begin());
  }
  return labels;
}

}  // namespace

bool classifies_texts(const Network& network) {
  const std::vector<NetworkValue> outputs = network.outputs();
  return !outputs.empty() && !outputs[0].sequence;
}

LabeledTexts read_labeled_texts(const std::vector<std::string>& paths, bool labeled) {
  if (paths.empty()) throw InvalidArgument("[text] no texts given");
  LabeledTexts texts;
  for (const std::string& path : paths) {
    texts.files.source += (texts.files.source.empty() ? "" : ", ") + path;
    FileSystem& files = storage::files_of(path);
    if (path.ends_with(".jsonl") && files.exists(path) && !files.is_folder(path)) {
      take_lines(path, labeled, texts);
    } else if (labeled && files.exists(path) && !files.is_folder(path)) {
      throw DataError("[text] " + path + " has no classes",
                      "use a folder with a folder of .txt files for each class, or a .jsonl file");
    } else {
      take_files(path, labeled, texts);
    }
  }
  if (texts.labels.empty()) throw DataError("[text] " + texts.files.source + " has no text");
  for (size_t i = 0; i < texts.labels.size(); ++i) {
    if (texts.files.texts[i].empty()) throw DataError("[text] " + texts.files.paths[i] + ": empty");
  }
  return texts;
}

DatastorePtr labeled_texts(const LabeledTexts& texts, const Vocabulary& vocabulary, int64_t most,
                           std::vector<std::string> classes) {
  ImageLabels labels = label_numbers(texts, std::move(classes));
  std::vector<IntegerArray> sequences;
  int64_t long_ones = 0, unknown = 0, all = 0;
  for (size_t i = 0; i < texts.labels.size(); ++i) {
    const std::string& where = texts.files.paths[i];
    std::vector<int32_t> tokens = vocabulary.encode(texts.files.texts[i], where + ", text");
    if (tokens.empty())
      throw DataError("[text] " + where + " has no " + std::string(name_of(vocabulary.units())));
    if (static_cast<int64_t>(tokens.size()) > most) {
      ++long_ones;
      tokens.resize(static_cast<size_t>(most));
    }
    if (vocabulary.has_unknown()) unknown += std::count(tokens.begin(), tokens.end(), 0);
    const auto steps = static_cast<int64_t>(tokens.size());
    all += steps;
    sequences.push_back({{steps}, std::move(tokens)});
  }
  std::vector<std::string> notices;
  if (long_ones > 0) {
    notices.push_back(counted(long_ones, "text") + " of " + texts.files.source +
                      (long_ones == 1 ? " is" : " are") + " cut to the first " +
                      counted(most, "token") + " (window_length)");
  }
  if (unknown > 0) {
    notices.push_back(std::to_string(unknown) + " of the " + counted(all, "token") + " of " +
                      texts.files.source + (unknown == 1 ? " is" : " are") +
                      " not in the vocabulary (" + std::string(name_of(vocabulary.units())) + ")");
  }
  const bool bytes = vocabulary.units() == TextUnits::bytes;
  return std::make_shared<Described>(
      sequence_datastore(std::move(sequences), std::move(labels)),
      Described::Description{.source = texts.files.source,
                             .names = texts.files.paths,
                             .columns = bytes ? std::vector<std::string>() : vocabulary.tokens(),
                             .notices = std::move(notices)});
}

}  // namespace lockstep
