// Helpers for the tests of lockstep/runs.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::testing {

// Runs each test in a separate folder, which is removed at the end.
class WithFolder : public ::testing::Test {
 protected:
  WithFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lockstep_XXXXXX").string();
    if (mkdtemp(pattern.data()) != nullptr) folder = pattern;
    std::filesystem::current_path(folder);
  }
  ~WithFolder() override {
    std::error_code ignored;
    std::filesystem::current_path(std::filesystem::temp_directory_path(), ignored);
    std::filesystem::remove_all(folder, ignored);
  }
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  std::string folder;
};

// "message | hint" of the error of type E that `call` throws.
template <class E>
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return std::string(error.what()) + " | " + error.hint();
  } catch (const std::exception& error) {
    return std::string("(another error) ") + error.what();
  }
  return "(nothing was thrown)";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace lockstep::testing

#define EXPECT_CONTAINS(text, part) EXPECT_PRED2(::lockstep::testing::contains, text, part)
