// Helpers for the tests of lockstep/data.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastore.h"

namespace lockstep::testing {

// A separate folder for one test, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lockstep_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw Error("mkdtemp failed: " + pattern);
    path = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  // Writes a file and makes its folders.
  void write(const std::string& relative, const std::vector<std::byte>& bytes) const {
    const std::filesystem::path file = std::filesystem::path(path) / relative;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

  std::string path;
};

inline void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

inline std::vector<std::string> names_of(const Datastore& store) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < store.size(); ++i) names.push_back(store.name(i));
  return names;
}

// An image whose pixels depend on `salt` in an unordered way.
inline Image patterned(int64_t height, int64_t width, int64_t channels, uint32_t salt) {
  Image image{height, width, channels, {}};
  uint32_t state = salt * 2654435761u + 12345;
  for (int64_t i = 0; i < height * width * channels; ++i) {
    state = state * 1664525u + 1013904223u;
    image.pixels.push_back(static_cast<uint8_t>(state >> 24));
  }
  return image;
}

// `n` patterned images in memory, label i % 3, that counts its reads.
class MemoryStore : public Datastore {
 public:
  MemoryStore(int64_t n, int64_t height, int64_t width, int64_t channels) {
    for (int64_t i = 0; i < n; ++i) {
      images.push_back(patterned(height, width, channels, static_cast<uint32_t>(i)));
    }
  }

  int64_t size() const override { return static_cast<int64_t>(images.size()); }
  Example read(int64_t index) const override {
    ++reads;
    if (on_read) on_read(index);
    return one_input(images.at(static_cast<size_t>(index)), ClassLabel{label(index)},
                     content_digest(index));
  }
  int64_t label(int64_t index) const override { return index % 3; }
  const std::vector<std::string>& classes() const override { return names; }
  std::string name(int64_t index) const override { return "image " + std::to_string(index); }
  std::string describe() const override { return "memory"; }
  Digest content_digest(int64_t index) const override {
    const Image& image = images.at(static_cast<size_t>(index));
    return digest_of(image.pixels.data(), image.pixels.size());
  }

  std::vector<Image> images;
  std::vector<std::string> names{"a", "b", "c"};
  std::function<void(int64_t)> on_read;
  mutable std::atomic<int64_t> reads{0};
};

// The message of the Error of type E that `call` throws; fails otherwise.
template <class E>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

}  // namespace lockstep::testing
