#include "lockstep/runs/sources/text_source.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/suggest.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/storage/object_store.h"
#include "lockstep/storage/s3_files.h"
#include "lockstep/train/evaluation/evaluation.h"

namespace lockstep {
namespace {

constexpr int kDeepestTextFolder = 32;
constexpr const char* kByteOrderMark = "\xEF\xBB\xBF";

bool is_text_name(const std::string& name) { return name.ends_with(".txt"); }

constexpr const char* kNumbers = "numbers";

TextUnits units_named(const std::string& name) {
  if (name == kNumbers) return TextUnits::words;
  std::vector<std::string> known = {kNumbers};
  for (const TextUnits units : {TextUnits::bytes, TextUnits::characters, TextUnits::words}) {
    if (name == name_of(units)) return units;
    known.emplace_back(name_of(units));
  }
  throw InvalidArgument("[text] tokens cannot be `" + name + "`", suggest(name, known));
}

void find_texts(FileSystem& files, const std::string& folder, int depth, TextFiles& found) {
  if (depth > kDeepestTextFolder) {
    throw DataError("[text] " + folder + " has folders in folders, more than " +
                        std::to_string(kDeepestTextFolder) + " deep",
                    "a link may lead back to a folder around it");
  }
  for (const std::string& name : files.list(folder)) {
    if (name.starts_with('.')) continue;
    const std::string path = join_path(folder, name);
    if (files.is_folder(path)) {
      find_texts(files, path, depth + 1, found);
    } else if (is_text_name(name)) {
      found.paths.push_back(path);
    } else {
      found.others.add(name);
    }
  }
}

// The words "0", "1", ...
Vocabulary numbers_below(int64_t count) {
  std::vector<std::string> words;
  for (int64_t i = 0; i < count; ++i) words.push_back(std::to_string(i));
  return Vocabulary::of(std::move(words), TextUnits::words);
}

[[noreturn]] void refuse_numbers(const TextFiles& text, std::string_view units) {
  throw InvalidArgument("[text] " + text.source +
                            " has numbers of tokens, but the vocabulary has " + std::string(units),
                        "a job that trains with files of tokens sets tokens = \"numbers\"");
}

bool has_numbers(const Vocabulary& vocabulary) {
  return vocabulary.units() == TextUnits::words && vocabulary == numbers_below(vocabulary.size());
}

// The tokens of a text, which errors and listings call by its name.
class NamedTokens final : public Tokens {
 public:
  NamedTokens(TokensPtr tokens, int64_t first, int64_t count, std::string name)
      : tokens_(std::move(tokens)), first_(first), count_(count), name_(std::move(name)) {}
  int64_t size() const override { return count_; }
  void copy(int64_t first, int64_t count, int32_t* to) const override {
    tokens_->copy(first_ + first, count, to);
  }
  std::string describe() const override { return name_; }

 private:
  TokensPtr tokens_;
  int64_t first_, count_;
  std::string name_;
};

class Noted final : public DatastoreWrapper {
 public:
  Noted(DatastorePtr store, std::vector<std::string> notices)
      : DatastoreWrapper(std::move(store)), notices_(std::move(notices)) {}
  std::vector<std::string> notices() const override { return notices_; }

 private:
  const std::vector<std::string> notices_;
};

}  // namespace

bool takes_text(const Network& network) {
  const std::vector<NetworkValue> inputs = network.inputs();
  const auto is_tokens = [](const NetworkValue& input) { return input.type == DType::i32; };
  if (std::none_of(inputs.begin(), inputs.end(), is_tokens)) return false;
  if (inputs.size() == 1) return true;
  throw InvalidArgument("[text] the network has tokens and further inputs, which files cannot give",
                        "a program can: combine() of token_windows() and other datastores");
}

const std::string& only_text(const std::vector<std::string>& names) {
  if (names.size() == 1) return names[0];
  throw InvalidArgument(
      "[text] a text is one .txt file or one folder, received " + counted(names.size(), "name"),
      "put the files into one folder");
}

TextFiles read_text_files(const std::string& path) {
  FileSystem& files = storage::files_of(path);
  TextFiles text{.source = path, .paths = {}, .texts = {}, .others = {}};
  if (files.is_folder(path)) {
    find_texts(files, path, 0, text);
    std::sort(text.paths.begin(), text.paths.end());
    if (text.paths.empty()) {
      throw DataError("[text] " + path + " has no text" + text.others.counts(),
                      std::string("a text is a .txt file, also in a folder of the folder") +
                          (text.others.has(".jsonl")
                               ? "; texts with classes may also be a .jsonl file, named itself"
                               : ""));
    }
  } else if (!files.exists(path)) {
    throw DataError("[text] " + path + " does not exist",
                    "LOCKSTEP_DATA can name another folder that is searched for data");
  } else if (is_token_file(path)) {
    if (storage::is_address(path)) {
      throw InvalidArgument("[text] " + path + " is not on this machine",
                            "files of tokens are mapped into memory; download it");
    }
    text.tokens = open_token_file(path);
  } else if (!is_text_name(path)) {
    throw DataError("[text] the network's input is tokens, but " + path + " is not a .txt file",
                    "use a .txt file, a folder of them, or a file of tokens: .npy, .bin, .tokens");
  } else {
    text.paths = {path};
  }
  for (const std::string& file : text.paths) {
    std::string read = read_text(files, file);
    if (read.starts_with(kByteOrderMark)) read.erase(0, std::string_view(kByteOrderMark).size());
    text.texts.push_back(std::move(read));
  }
  return text;
}

TokensPtr tokens_of(const TextFiles& text, const Vocabulary& vocabulary) {
  if (text.tokens) {
    if (!has_numbers(vocabulary)) refuse_numbers(text, name_of(vocabulary.units()));
    return part_of(text.tokens, 0, text.tokens->size());
  }
  std::vector<int32_t> all;
  for (size_t i = 0; i < text.texts.size(); ++i) {
    const std::vector<int32_t> some = vocabulary.encode(text.texts[i], text.paths[i]);
    all.insert(all.end(), some.begin(), some.end());
  }
  const auto count = static_cast<int64_t>(all.size());
  return std::make_shared<NamedTokens>(tokens_in_memory(std::move(all)), 0, count, text.source);
}

TokensPtr part_of(TokensPtr tokens, int64_t first, int64_t count) {
  std::string name = tokens->describe();
  return std::make_shared<NamedTokens>(std::move(tokens), first, count, std::move(name));
}

Vocabulary learn_vocabulary(const TextFiles& text, const std::string& name, int64_t most,
                            const Network& network) {
  const TextUnits units = units_named(name);
  if (name == kNumbers) {
    if (most == 0) return numbers_below(input_tokens(network));
    throw InvalidArgument("[data] max_tokens is not for tokens = \"numbers\"",
                          "the vocabulary is that of the network's token_input");
  }
  if (text.tokens) refuse_numbers(text, name);
  // All tokens are unknown to this one, so it refuses only what is not UTF-8, by file and position.
  if (units != TextUnits::bytes) tokens_of(text, Vocabulary::of({"<unknown>"}, units, true));
  const bool empty =
      std::all_of(text.texts.begin(), text.texts.end(), [](const auto& t) { return t.empty(); });
  if (empty) throw DataError("[text] " + text.source + " is empty");
  const std::vector<std::string_view> texts(text.texts.begin(), text.texts.end());
  return Vocabulary::learn(texts, {.units = units, .most = most, .unknown = most > 0});
}

Vocabulary vocabulary_of(const std::string& units, const TableColumns& columns) {
  const TextUnits known = units_named(units);
  if (known == TextUnits::bytes) return {};
  const bool named = !columns.inputs.empty() && !columns.inputs[0].empty();
  if (!named) throw InvalidArgument("[text] the model has no vocabulary");
  const std::vector<std::string>& tokens = columns.inputs[0];
  return Vocabulary::of(tokens, known, tokens[0] == "<unknown>");
}

Vocabulary vocabulary_of(const Model& model) {
  if (model.preparation.tokens.empty() || !takes_text(model.network)) {
    throw InvalidArgument("[text] the model has no vocabulary: no text of a job was its data");
  }
  Vocabulary vocabulary = vocabulary_of(model.preparation.tokens, model.network.columns());
  check_vocabulary(model.network, vocabulary);
  return vocabulary;
}

void check_vocabulary(const Network& network, const Vocabulary& vocabulary) {
  const int64_t room = input_tokens(network);
  if (room >= vocabulary.size()) return;
  throw InvalidArgument("[text] the text has " + counted(vocabulary.size(), "token") + " (" +
                            std::string(name_of(vocabulary.units())) +
                            "), but the network's token_input has room for " + std::to_string(room),
                        "set its vocabulary = " + std::to_string(vocabulary.size()));
}

DatastorePtr windows_of(const TextFiles& text, const TokensPtr& tokens,
                        const Vocabulary& vocabulary, const TokenWindowOptions& options) {
  DatastorePtr windows = token_windows(tokens, vocabulary, options);
  std::vector<std::string> notices = text.others.notices(text.source);
  if (notices.empty()) return windows;
  return std::make_shared<Noted>(std::move(windows), std::move(notices));
}

DatastorePtr open_texts(const std::vector<std::string>& paths, bool labeled, const Model& model,
                        const TextColumns& columns) {
  const Vocabulary vocabulary = vocabulary_of(model);
  const int64_t given = model.preparation.window_length;
  const int64_t length = given > 0 ? given : default_text_window;
  const bool classifies = classifies_texts(model.network);
  if ((!columns.text.empty() || !columns.label.empty()) &&
      !(classifies && std::ranges::any_of(paths, is_json_lines_name))) {
    throw InvalidArgument(std::string("[text] ") +
                              (columns.text.empty() ? "--label-column" : "--text-column") +
                              " is for .jsonl files" +
                              (classifies ? ", but there is none"
                                          : " of texts with classes, which the model has not"),
                          "leave it out");
  }
  if (classifies) {
    const Preparation& before = model.preparation;
    const TextColumns keys{.text = columns.text.empty() ? before.text_column : columns.text,
                           .label = columns.label.empty() ? before.label_column : columns.label};
    return labeled_texts(read_labeled_texts(paths, labeled, keys), vocabulary, length,
                         labeled ? model.classes : std::vector<std::string>());
  }
  const TextFiles text = read_text_files(only_text(paths));
  return windows_of(text, tokens_of(text, vocabulary), vocabulary, {.length = length});
}

}  // namespace lockstep
