#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/memory_room.h"
#include "lockstep/data/datastores/sequences/numpy_file.h"
#include "lockstep/data/datastores/text/text.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens are little-endian");

// The start of a file. The tokens follow.
struct TokenFileHead {
  std::array<char, 8> magic = {'L', 'S', 'T', 'O', 'K', 'E', 'N', '1'};
  uint64_t width = 0;  // bytes of a token: 2 or 4
};

class TokensInMemory final : public Tokens {
 public:
  explicit TokensInMemory(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {}
  int64_t size() const override { return static_cast<int64_t>(tokens_.size()); }
  void copy(int64_t first, int64_t count, int32_t* to) const override {
    std::copy_n(tokens_.begin() + first, count, to);
  }
  std::string describe() const override { return counted(size(), "token") + " in memory"; }

 private:
  std::vector<int32_t> tokens_;
};

// Where the tokens lie in a file.
struct TokenLayout {
  size_t offset = 0, width = 2;  // bytes
  size_t count = 0;
  bool is_signed = false;
};

[[noreturn]] void refuse_tokens(const std::string& path, const std::string& what,
                                const std::string& hint) {
  throw DataError("[token_file] " + path + " " + what, hint);
}

TokenLayout layout_of(std::span<const std::byte> bytes, const std::string& path) {
  if (bytes.empty()) refuse_tokens(path, "is empty", "");
  TokenLayout layout;
  if (path.ends_with(".npy")) {
    const NumpyIntegers array = numpy_integers(bytes, path);
    layout = {array.offset, array.width, array.count, array.is_signed};
    const size_t elements = bytes.size() - layout.offset;
    if (elements / layout.width != layout.count || elements % layout.width != 0) {
      refuse_tokens(path,
                    "has " + counted(static_cast<int64_t>(bytes.size()), "byte") +
                        ", but an array of " + counted(static_cast<int64_t>(layout.count), "token"),
                    "it may not have been written to its end");
    }
    return layout;
  }
  if (!path.ends_with(".bin")) {
    TokenFileHead head;
    const bool whole = bytes.size() >= sizeof head;
    if (whole) std::memcpy(&head, bytes.data(), sizeof head);
    if (!whole || head.magic != TokenFileHead{}.magic || (head.width != 2 && head.width != 4)) {
      refuse_tokens(path, "is not a file of tokens, or is damaged",
                    "write_token_file() makes one of a text");
    }
    layout = {sizeof head, head.width, 0, head.width == 4};
  }
  const size_t rest = bytes.size() - layout.offset;
  if (rest % layout.width != 0) {
    refuse_tokens(path, "is damaged: its last token is cut",
                  "tokens have " + std::to_string(layout.width) + " bytes each");
  }
  layout.count = rest / layout.width;
  return layout;
}

// Tokens as numbers of a type. Those beyond int32_t become the nearest one, which no vocabulary
// has.
template <class T>
void copy_tokens(const std::byte* from, int64_t count, int32_t* to) {
  for (int64_t i = 0; i < count; ++i) {
    T token = 0;
    std::memcpy(&token, from + static_cast<size_t>(i) * sizeof token, sizeof token);
    constexpr auto kMost = std::numeric_limits<int32_t>::max();
    if constexpr (sizeof token < sizeof *to || std::is_same_v<T, int32_t>) {
      to[i] = static_cast<int32_t>(token);
    } else if (std::cmp_greater(token, kMost)) {
      to[i] = kMost;
    } else {
      to[i] = std::cmp_less(token, 0) ? -1 : static_cast<int32_t>(token);
    }
  }
}

using TokenCopy = void (*)(const std::byte* from, int64_t count, int32_t* to);

TokenCopy copy_of(const TokenLayout& layout) {
  switch (layout.width) {
    case 1:
      return layout.is_signed ? copy_tokens<int8_t> : copy_tokens<uint8_t>;
    case 2:
      return layout.is_signed ? copy_tokens<int16_t> : copy_tokens<uint16_t>;
    case 4:
      return layout.is_signed ? copy_tokens<int32_t> : copy_tokens<uint32_t>;
    default:
      return layout.is_signed ? copy_tokens<int64_t> : copy_tokens<uint64_t>;
  }
}

class MappedTokens final : public Tokens {
 public:
  explicit MappedTokens(const std::string& path) : path_(path), bytes_(map(path)) {
    try {
      layout_ = layout_of(bytes_, path);
    } catch (...) {
      unmap();
      throw;
    }
    copy_ = copy_of(layout_);
  }
  ~MappedTokens() override { unmap(); }
  MappedTokens(const MappedTokens&) = delete;
  MappedTokens& operator=(const MappedTokens&) = delete;

  int64_t size() const override { return static_cast<int64_t>(layout_.count); }
  void copy(int64_t first, int64_t count, int32_t* to) const override {
    copy_(bytes_.data() + layout_.offset + static_cast<size_t>(first) * layout_.width, count, to);
  }
  std::string describe() const override { return "file " + path_; }

 private:
  static std::span<const std::byte> map(const std::string& path) {
    const auto refuse = [&](const std::string& why) {
      throw FileError("[token_file] cannot read " + path + ": " + why);
    };
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) refuse(std::strerror(errno));
    if (!S_ISREG(status.st_mode)) refuse("it is not a file");
    const auto size = static_cast<size_t>(status.st_size);
    if (size == 0) return {};
    void* const mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
    if (mapped == MAP_FAILED) refuse(errno == ENOMEM ? out_of_memory_text() : std::strerror(errno));
    return {static_cast<const std::byte*>(mapped), size};
  }
  void unmap() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }

  std::string path_;
  std::span<const std::byte> bytes_;
  TokenLayout layout_;
  TokenCopy copy_ = nullptr;
};

// Calls `line` for each line of a file, its line break included.
void for_each_line(const std::string& path, const std::function<void(std::string_view)>& line) {
  std::string rest;
  local_files().read_in_chunks(path, [&](std::span<const std::byte> chunk) {
    std::string_view text(reinterpret_cast<const char*>(chunk.data()), chunk.size());
    for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      rest += text.substr(0, end + 1);
      line(rest);
      rest.clear();
      text.remove_prefix(end + 1);
    }
    rest += text;
  });
  if (!rest.empty()) line(rest);
}

// Appends tokens to a file.
class TokenWriter {
 public:
  TokenWriter(WritableFile& file, int64_t vocabulary_size)
      : file_(file), size_(vocabulary_size), narrow_(vocabulary_size <= 65'536) {
    TokenFileHead head;
    head.width = narrow_ ? 2 : 4;
    file_.append(std::as_bytes(std::span(&head, 1)));
  }
  void add(std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) {
      if (token >= 0 && token < size_) continue;
      throw InvalidArgument("[token_file] token " + std::to_string(token) + " is not among the " +
                            counted(size_, "token") + " of the vocabulary, counted from 0");
    }
    if (!narrow_) return file_.append(std::as_bytes(tokens));
    short_.assign(tokens.begin(), tokens.end());
    file_.append(std::as_bytes(std::span(short_)));
  }

 private:
  WritableFile& file_;
  const int64_t size_;
  const bool narrow_;
  std::vector<uint16_t> short_;
};

}  // namespace

TokensPtr tokens_in_memory(std::vector<int32_t> tokens) {
  return std::make_shared<TokensInMemory>(std::move(tokens));
}

TokensPtr open_token_file(const std::string& path) { return std::make_shared<MappedTokens>(path); }

bool is_token_file(std::string_view path) {
  return path.ends_with(".npy") || path.ends_with(".bin") || path.ends_with(".tokens");
}

void write_token_file(const std::string& path, int64_t vocabulary_size,
                      const std::function<std::span<const int32_t>()>& next) {
  write_atomically(local_files(), path, [&](WritableFile& file) {
    TokenWriter writer(file, vocabulary_size);
    for (auto tokens = next(); !tokens.empty(); tokens = next()) writer.add(tokens);
  });
}

void write_token_file(const std::string& path, const Vocabulary& vocabulary,
                      const std::string& text_file) {
  constexpr size_t kTogether = 1 << 16;
  write_atomically(local_files(), path, [&](WritableFile& file) {
    TokenWriter writer(file, vocabulary.size());
    std::vector<int32_t> tokens;
    int64_t number = 0;
    for_each_line(text_file, [&](std::string_view line) {
      if (++number == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
      const std::vector<int32_t> more = vocabulary.encode(line, text_file, number);
      tokens.insert(tokens.end(), more.begin(), more.end());
      if (tokens.size() < kTogether) return;
      writer.add(tokens);
      tokens.clear();
    });
    writer.add(tokens);
  });
}

}  // namespace lockstep
