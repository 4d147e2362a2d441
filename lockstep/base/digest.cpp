#include "lockstep/base/digest.h"

#include <xxhash.h>

#include <array>
#include <new>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// The kind is hashed before each item, so that a number and a text with the same bytes differ.
enum class ItemKind : unsigned char { text = 't', number = 'n', digest = 'd' };

// Least significant byte first on every machine.
void put(unsigned char* to, uint64_t number) {
  for (int i = 0; i < 8; ++i) to[i] = static_cast<unsigned char>(number >> (8 * i));
}

}  // namespace

std::string Digest::to_string() const {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text(32, '0');
  for (size_t i = 0; i < 16; ++i) {
    text[i] = digits[high >> (60 - 4 * i) & 15];
    text[16 + i] = digits[low >> (60 - 4 * i) & 15];
  }
  return text;
}

Digest Digest::parse(std::string_view text) {
  std::array<uint64_t, 2> words{};
  bool good = text.size() == 32;
  for (size_t i = 0; good && i < 32; ++i) {
    const char c = text[i];
    uint64_t value = 0;
    if (c >= '0' && c <= '9') {
      value = static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = static_cast<uint64_t>(c - 'a') + 10;
    } else {
      good = false;
    }
    words[i / 16] = words[i / 16] << 4 | value;
  }
  if (!good) {
    throw InvalidArgument("[digest] a digest is 32 hexadecimal digits in lower case, received '" +
                          std::string(text.substr(0, 64)) + "'");
  }
  return {words[0], words[1]};
}

Digest digest_of(const void* data, size_t size) {
  const XXH128_hash_t hash = XXH3_128bits(data, size);
  return {hash.high64, hash.low64};
}

struct Digester::State {
  XXH3_state_t* hash = XXH3_createState();
  State() {
    if (hash == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(hash);
  }
  ~State() { XXH3_freeState(hash); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Digester::Digester() : state_(std::make_unique<State>()) {}
Digester::~Digester() = default;
Digester::Digester(Digester&&) noexcept = default;
Digester& Digester::operator=(Digester&&) noexcept = default;

void Digester::bytes(const void* data, size_t size) {
  if (size > 0) XXH3_128bits_update(state_->hash, data, size);
}

void Digester::add(std::string_view text) {
  std::array<unsigned char, 9> head{};
  head[0] = static_cast<unsigned char>(ItemKind::text);
  put(head.data() + 1, text.size());
  bytes(head.data(), head.size());
  bytes(text.data(), text.size());
}

void Digester::add(uint64_t number) {
  std::array<unsigned char, 9> item{};
  item[0] = static_cast<unsigned char>(ItemKind::number);
  put(item.data() + 1, number);
  bytes(item.data(), item.size());
}

void Digester::add(const Digest& digest) {
  std::array<unsigned char, 17> item{};
  item[0] = static_cast<unsigned char>(ItemKind::digest);
  put(item.data() + 1, digest.high);
  put(item.data() + 9, digest.low);
  bytes(item.data(), item.size());
}

Digest Digester::finish() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->hash);
  return {hash.high64, hash.low64};
}

}  // namespace lockstep
