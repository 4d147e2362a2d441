// Windows of a text and the tokens that follow.
#include <algorithm>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/data/datastores/text/text.h"

namespace lockstep {
namespace {

// The tokens of all windows, `shift` tokens later.
class TokenWindows final : public Datastore {
 public:
  TokenWindows(TokensPtr tokens, int64_t vocabulary_size, std::vector<std::string> columns,
               std::vector<std::string> classes, const TokenWindowOptions& options, int64_t shift)
      : tokens_(std::move(tokens)),
        vocabulary_size_(vocabulary_size),
        columns_(std::move(columns)),
        classes_(std::move(classes)),
        length_(options.length),
        stride_(options.stride == 0 ? options.length : options.stride),
        shift_(shift),
        size_((tokens_->size() - 2) / stride_ + 1) {}

  int64_t size() const override { return size_; }
  ExampleSpec spec() const override {
    ExampleSpec spec;
    spec.inputs[0].kind = ValueKind::array;
    spec.inputs[0].sequence = true;
    spec.inputs[0].type = DType::i32;
    spec.inputs[0].columns = columns_;
    return spec;
  }
  int64_t label(int64_t index) const override {
    check(index);
    return 0;
  }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::string name(int64_t index) const override {
    return "token " + std::to_string(check(index) * stride_);
  }
  std::string describe() const override { return tokens_->describe(); }
  std::optional<int64_t> steps(int64_t index, size_t value) const override {
    check(index);
    return value == 0 ? std::optional<int64_t>(steps_of(index)) : std::nullopt;
  }
  Example read(int64_t index) const override {
    IntegerArray window = window_of(index);
    const Digest content = digest_of_array(window.shape, window.values.data());
    return one_input(std::move(window), ClassLabel{0}, content);
  }
  Digest content_digest(int64_t index) const override {
    const IntegerArray window = window_of(index);
    return digest_of_array(window.shape, window.values.data());
  }

 private:
  int64_t check(int64_t index) const {
    if (index < 0 || index >= size_) {
      throw InvalidArgument("[datastore] no observation with index " + std::to_string(index) +
                            " among " + std::to_string(size_) + " (" + describe() + ")");
    }
    return index;
  }
  int64_t steps_of(int64_t index) const {
    return std::min(length_, tokens_->size() - 1 - index * stride_);
  }
  IntegerArray window_of(int64_t index) const {
    const int64_t first = check(index) * stride_ + shift_, steps = steps_of(index);
    IntegerArray window{{steps}, std::vector<int32_t>(static_cast<size_t>(steps))};
    tokens_->copy(first, steps, window.values.data());
    for (int64_t i = 0; i < steps; ++i) {
      const int32_t token = window.values[static_cast<size_t>(i)];
      if (token >= 0 && token < vocabulary_size_) continue;
      throw DataError("[token_windows] " + describe() + ": token " + std::to_string(first + i) +
                          " is " + std::to_string(token) + ", but the vocabulary has " +
                          counted(vocabulary_size_, "token") + ", counted from 0",
                      "a text is encoded by the vocabulary that reads it");
    }
    return window;
  }

  TokensPtr tokens_;
  int64_t vocabulary_size_;
  std::vector<std::string> columns_;  // the tokens of the vocabulary; none of bytes
  std::vector<std::string> classes_;
  int64_t length_, stride_, shift_, size_;
};

}  // namespace

DatastorePtr token_windows(const TokensPtr& tokens, const Vocabulary& vocabulary,
                           const TokenWindowOptions& options) {
  if (!tokens) throw InvalidArgument("[token_windows] the tokens are null");
  if (options.length < 1 || options.stride < 0) {
    throw InvalidArgument("[token_windows] windows of " + counted(options.length, "token") + ", " +
                          std::to_string(options.stride) + " apart, are not possible");
  }
  if (tokens->size() < 2) {
    throw DataError("[token_windows] " + tokens->describe() + " has " +
                    counted(tokens->size(), "token") + ", but one and a next one are needed");
  }
  const auto windows = [&](std::vector<std::string> columns, std::vector<std::string> classes,
                           int64_t shift) {
    return std::make_shared<TokenWindows>(tokens, vocabulary.size(), std::move(columns),
                                          std::move(classes), options, shift);
  };
  const bool bytes = vocabulary.units() == TextUnits::bytes;
  return with_targets(windows(bytes ? std::vector<std::string>() : vocabulary.tokens(), {""}, 0),
                      windows({}, vocabulary.tokens(), 1));
}

}  // namespace lockstep
