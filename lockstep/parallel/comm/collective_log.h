// The last collectives of a group member, for error messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep {

// One thread at a time.
class CollectiveLog {
 public:
  // Begins the next collective. `name` is not copied and must stay valid.
  void begin(const char* name, size_t bytes) {
    ++sequence_;
    now() = {sequence_, name, bytes, false};
  }
  void end() { now().complete = true; }
  uint64_t sequence() const { return sequence_; }
  // "all_gather number 17"
  std::string present() const {
    const Entry& e = ring_[sequence_ % ring_.size()];
    return std::string(e.name) + " number " + std::to_string(sequence_);
  }
  // "barrier 1 (0 bytes), all_gather 2 (12 bytes, not complete)"
  std::string text() const {
    std::string text;
    for (size_t i = 1; i <= ring_.size(); ++i) {
      const Entry& e = ring_[(sequence_ + i) % ring_.size()];
      if (e.sequence == 0) continue;
      text += (text.empty() ? "" : ", ") + std::string(e.name) + " " + std::to_string(e.sequence) +
              " (" + std::to_string(e.bytes) + " bytes" + (e.complete ? ")" : ", not complete)");
    }
    return text;
  }

 private:
  struct Entry {
    uint64_t sequence = 0;
    const char* name = "nothing";
    size_t bytes = 0;
    bool complete = false;
  };
  Entry& now() { return ring_[sequence_ % ring_.size()]; }

  uint64_t sequence_ = 0;
  std::array<Entry, 16> ring_;
};

}  // namespace lockstep
