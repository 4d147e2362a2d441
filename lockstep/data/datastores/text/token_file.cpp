#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/memory_room.h"
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

class MappedTokens final : public Tokens {
 public:
  explicit MappedTokens(const std::string& path) : path_(path) {
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) refuse(std::strerror(errno));
    if (!S_ISREG(status.st_mode)) refuse("it is not a file");
    bytes_ = static_cast<size_t>(status.st_size);
    TokenFileHead head;
    const auto read = ::pread(file.get(), &head, sizeof head, 0);
    if (read != static_cast<ssize_t>(sizeof head) || head.magic != TokenFileHead{}.magic ||
        (head.width != 2 && head.width != 4) || (bytes_ - sizeof head) % head.width != 0) {
      throw DataError("[token_file] " + path + " is not a file of tokens, or is damaged",
                      "write_token_file() makes one of a text");
    }
    width_ = head.width;
    void* const mapped = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file.get(), 0);
    if (mapped == MAP_FAILED) refuse(errno == ENOMEM ? out_of_memory_text() : std::strerror(errno));
    mapped_ = static_cast<const std::byte*>(mapped);
  }
  ~MappedTokens() override { ::munmap(const_cast<std::byte*>(mapped_), bytes_); }
  MappedTokens(const MappedTokens&) = delete;
  MappedTokens& operator=(const MappedTokens&) = delete;

  int64_t size() const override {
    return static_cast<int64_t>((bytes_ - sizeof(TokenFileHead)) / width_);
  }
  void copy(int64_t first, int64_t count, int32_t* to) const override {
    const std::byte* const from =
        mapped_ + sizeof(TokenFileHead) + static_cast<size_t>(first) * width_;
    if (width_ == 4) {
      std::memcpy(to, from, static_cast<size_t>(count) * width_);
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      uint16_t token = 0;
      std::memcpy(&token, from + 2 * i, sizeof token);
      to[i] = token;
    }
  }
  std::string describe() const override { return "file " + path_; }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw FileError("[token_file] cannot read " + path_ + ": " + why);
  }

  std::string path_;
  size_t bytes_ = 0, width_ = 2;
  const std::byte* mapped_ = nullptr;
};

// Calls `line` for each line of a file, its line break included.
void for_each_line(const std::string& path, const std::function<void(std::string_view)>& line) {
  std::string rest;
  local_files().read_in_pieces(path, [&](std::span<const std::byte> piece) {
    std::string_view text(reinterpret_cast<const char*>(piece.data()), piece.size());
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
