// Digests: XXH3 with 128 bits (Collet), for telling whether two things are the same bits. They
// detect faults and differences, not malice.
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
  // Inverse of to_string(). Throws InvalidArgument for anything else.
  static Digest parse(std::string_view text);

  friend bool operator==(const Digest&, const Digest&) = default;
};

// Digest of `size` bytes at `data`. Thread-safe.
Digest digest_of(const void* data, size_t size);

// Digest of a sequence of pieces. add() of text or numbers includes its length, so that the
// borders between pieces count. One thread at a time.
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
