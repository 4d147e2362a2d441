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
#include "lockstep/base/text.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/described.h"
#include "lockstep/runs/sources/text_source.h"
#include "lockstep/storage/s3_files.h"

namespace lockstep {
namespace {

// Reads the lines of a .jsonl file.
class JsonLines {
 public:
  JsonLines(const std::string& path, const TextColumns& columns)
      : path_(path),
        text_(columns.text.empty() ? "text" : columns.text),
        label_(columns.label.empty() ? "label" : columns.label) {}

  void take(bool labeled, LabeledTexts& texts) const {
    const std::string all = read_text(storage::files_of(path_), path_);
    std::string_view left = all;
    constexpr std::string_view mark = "\xEF\xBB\xBF";
    if (left.starts_with(mark)) left.remove_prefix(mark.size());
    for (int64_t number = 1; !left.empty(); ++number) {
      const size_t end = left.find('\n');
      const std::string_view line = left.substr(0, end);
      left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      const std::string where = path_ + " line " + std::to_string(number);
      const nlohmann::json object = object_of(line, where);
      texts.files.texts.push_back(text_of(object, where));
      texts.labels.push_back(labeled ? label_of(object, where) : "");
      texts.files.paths.push_back(where);
    }
  }

 private:
  static nlohmann::json object_of(std::string_view line, const std::string& where) {
    nlohmann::json object;
    try {
      object = parse_json<nlohmann::json>(line, {.unique_keys = true});
    } catch (const JsonError& error) {
      throw DataError("[text] " + where + ": " + error.what());
    }
    if (!object.is_object()) throw DataError("[text] " + where + " is not a JSON object");
    return object;
  }

  static const nlohmann::json& value_of(const nlohmann::json& object, const std::string& key,
                                        const char* column, const std::string& where) {
    if (const auto found = object.find(key); found != object.end()) return *found;
    constexpr size_t kMost = 12, kLongest = 40;
    std::vector<std::string> keys;
    for (const auto& item : object.items()) {
      keys.push_back(item.key().substr(0, kLongest));
    }
    const std::string name(column);
    throw DataError("[text] " + where + " has no key `" + key + "`, but " +
                        (keys.empty() ? "none at all" : list_of_some_names(keys, kMost)),
                    "name the key: " + name + "_column in [data], or --" + name + "-column");
  }

  std::string text_of(const nlohmann::json& object, const std::string& where) const {
    const nlohmann::json& value = value_of(object, text_, "text", where);
    if (value.is_string()) return value.get<std::string>();
    throw DataError("[text] " + where + ": `" + text_ + "` is not a text");
  }

  std::string label_of(const nlohmann::json& object, const std::string& where) const {
    const nlohmann::json& value = value_of(object, label_, "label", where);
    if (value.is_number_integer()) return value.dump();
    if (!value.is_string()) {
      throw DataError("[text] " + where + ": `" + label_ + "` is not a text or an integer");
    }
    std::string label = value.get<std::string>();
    if (label.empty()) throw DataError("[text] " + where + ": `" + label_ + "` is empty");
    return label;
  }

  const std::string& path_;
  const std::string text_, label_;
};

// Folders of classes without a text, which are then not classes.
void note_empty_folders(const std::string& path, const TextFiles& read,
                        std::vector<std::string>& notices) {
  FileSystem& files = storage::files_of(path);
  if (!files.is_folder(path)) return;
  std::vector<std::string> names = files.list(path);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (name.starts_with('.') || !files.is_folder(join_path(path, name))) continue;
    const std::string begin = join_path(path, name) + "/";
    if (std::ranges::none_of(read.paths, [&](const auto& p) { return p.starts_with(begin); })) {
      notices.push_back("the folder " + name + " of " + path + " has no texts");
    }
  }
}

void take_files(const std::string& path, bool labeled, LabeledTexts& texts) {
  TextFiles read = read_text_files(path);
  for (std::string& notice : read.others.notices(path)) texts.notices.push_back(std::move(notice));
  if (labeled) note_empty_folders(path, read, texts.notices);
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

bool is_json_lines_name(const std::string& name) { return name.ends_with(".jsonl"); }

LabeledTexts read_labeled_texts(const std::vector<std::string>& paths, bool labeled,
                                const TextColumns& columns) {
  if (paths.empty()) throw InvalidArgument("[text] no texts given");
  LabeledTexts texts;
  for (const std::string& path : paths) {
    texts.files.source += (texts.files.source.empty() ? "" : ", ") + path;
    FileSystem& files = storage::files_of(path);
    if (is_json_lines_name(path) && files.exists(path) && !files.is_folder(path)) {
      JsonLines(path, columns).take(labeled, texts);
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
  std::vector<std::string> notices = texts.notices;
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
