// 128-bit XXH3 digests (Collet), which tell whether two byte sequences are equal. They detect
// faults and differences. They do not protect against deliberate changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

struct Digest {
  uint64_t high = 0;
  uint64_t low = 0;

  // 32 hexadecimal digits, lower case.
  std::string to_string() const;
  // Inverse of to_string(). Throws InvalidArgument for any other text.
  static Digest parse(std::string_view text);

  friend bool operator==(const Digest&, const Digest&) = default;
};

// Digest of `size` bytes at `data`. Thread-safe.
Digest digest_of(const void* data, size_t size);

// Digest of a sequence of items. add() also hashes the kind of the item and the length of a text,
// so that the boundaries between items count. bytes() hashes the bytes alone. Not thread-safe.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(Digester&&) noexcept;
  Digester& operator=(Digester&&) noexcept;

  void bytes(const void* data, size_t size);
  void add(std::string_view text);
  void add(uint64_t number);
  void add(const Digest& digest);
  Digest finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
