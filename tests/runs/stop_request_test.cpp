#include "lockstep/runs/folders/stop_request.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

namespace lockstep {
namespace {

TEST(StopRequest, IsSeenOnceAndRemoved) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("lockstep_stop_request_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  FileSystem& files = local_files();
  request_stop(files, folder.string());  // of an earlier part of the run
  StopRequest request(files, folder.string());
  EXPECT_FALSE(files.exists((folder / "stop").string()));
  EXPECT_FALSE(request.made());
  request_stop(files, folder.string());
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  bool made = false;
  while (!made && std::chrono::steady_clock::now() < limit) {
    made = request.made();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(made);
  EXPECT_FALSE(files.exists((folder / "stop").string()));
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  EXPECT_FALSE(request.made());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep
