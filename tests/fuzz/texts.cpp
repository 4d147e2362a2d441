// Texts with classes, files of tokens, and vocabularies.
#include <variant>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/text/text.h"
#include "lockstep/runs/sources/text_source.h"
#include "tests/fuzz/arrays.h"
#include "tests/fuzz/scratch.h"

namespace lockstep::fuzz {
namespace {

// Whether all tokens are bytes.
void check_tokens(const Datastore& store) {
  for (int64_t i = 0; i < store.size(); ++i) {
    const Example example = store.read(i);
    for (const int32_t token : std::get<IntegerArray>(example.inputs.at(0)).values) {
      if (token < 0 || token > 255) throw InternalError("[fuzz] a token that is not a byte");
    }
  }
}

void read_tokens(const std::string& path) {
  const TokensPtr tokens = open_token_file(path);
  std::vector<int32_t> all(static_cast<size_t>(tokens->size()));
  tokens->copy(0, tokens->size(), all.data());
  tokens->describe();
  const DatastorePtr windows = token_windows(tokens, Vocabulary(), {.length = 3, .stride = 2});
  check_tokens(*windows);
}

void read_texts(const std::string& path, bool labeled) {
  const LabeledTexts texts = read_labeled_texts({path}, labeled);
  if (texts.labels.size() != texts.files.texts.size()) {
    throw InternalError("[fuzz] another number of labels than of texts");
  }
  check_tokens(*labeled_texts(texts, Vocabulary(), 5));
}

void read_vocabulary(const std::string& text) {
  const Vocabulary vocabulary = Vocabulary::from_json(text, "the model");
  if (Vocabulary::from_json(vocabulary.to_json(), "the model") != vocabulary) {
    throw InternalError("[fuzz] another vocabulary is read back");
  }
}

}  // namespace

// The first byte chooses the kind of the file.
void parse(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  static const Scratch folder;
  folder.empty();
  const auto file = [&](const std::string& name) {
    folder.write(name, bytes.subspan(1));
    return folder.path() + "/" + name;
  };
  switch (std::to_integer<int>(bytes.front()) % 6) {
    case 0:
      return read_texts(file("texts.jsonl"), true);
    case 1:
      return read_texts(file("texts.jsonl"), false);
    case 2:
      return read_tokens(file("a.npy"));
    case 3:
      return read_tokens(file("a.bin"));
    case 4:
      return read_tokens(file("a.tokens"));
    default:
      return read_vocabulary(text_of(bytes.subspan(1)));
  }
}

std::vector<Bytes> seeds() {
  const std::string tokens = raw_bytes<uint16_t>({1, 2, 3, 4, 5});
  const std::string lines =
      "{\"text\": \"a b\", \"label\": \"x\"}\n\n{\"label\": 3, \"text\": \"\\u00e4\"}\r\n";
  return {bytes_of(std::string("\0", 1) + lines),
          bytes_of("\1\xEF\xBB\xBF" + lines),
          bytes_of("\2" + npy_file("<u2", "(5,)", tokens)),
          bytes_of("\2" + npy_file("<i8", "(2,)", raw_bytes<int64_t>({7, 12}))),
          bytes_of("\3" + tokens),
          bytes_of("\4LSTOKEN1" + raw_bytes<uint64_t>({2}) + tokens),
          bytes_of("\5{\"units\": \"characters\", \"unknown\": true, \"tokens\": [\"<unknown>\", "
                   "\"a\", \"\\u00e4\"]}"),
          bytes_of("\5{\"units\": \"words\", \"unknown\": false, \"tokens\": [\"a\", \"bc\"]}")};
}

}  // namespace lockstep::fuzz
