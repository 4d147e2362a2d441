#include "lockstep/cluster/remote/host_process.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <sstream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/own_executable.h"
#include "lockstep/cluster/remote/agent_process.h"

namespace lockstep {
namespace {

// Exit statuses of shells and of ssh: there is no such program, or it cannot be run.
constexpr int kCannotRun = 126, kNotFound = 127;

}  // namespace

std::string HostProcess::end() {
  if (!command) return "it was ended";
  if (reason.empty()) {
    outside = command->signaled() && !command->own_fault();
    const int status = command->exit_status();
    hopeless = hopeless || status == kCannotRun || status == kNotFound;
  }
  return "its process " + command->how();
}

bool HostProcess::is_stopped() {
  if (!command || !look_for_stop.reached()) return false;
  look_for_stop = TimeLimit(kLookForStop);
  const bool before = std::exchange(stopped, command->stopped());
  return before && stopped;
}

std::vector<std::string> command_for(const std::string& launch, const std::string& host,
                                     const std::string& address, const std::string& key_file) {
  std::vector<std::string> words;
  std::istringstream text(launch);
  for (std::string word; text >> word;) {
    const size_t at = word.find("{host}");
    if (at != std::string::npos) word.replace(at, 6, host);
    words.push_back(word);
  }
  if (words.empty()) throw InvalidArgument("[hosts] the launch command is empty for " + host);
  // If the file was replaced, the agent will report that the new one is another build.
  const std::string path = own_executable();
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("/._+-=@%,:", c) != nullptr;
  };
  if (path.empty() || !std::all_of(path.begin(), path.end(), plain)) {
    throw InvalidArgument("[hosts] the path of this executable (" + path +
                              ") cannot be named on a command line for another host",
                          "move it to a path of letters, digits and ./_+-=@%,:");
  }
  if (!std::all_of(key_file.begin(), key_file.end(), plain)) {
    throw InvalidArgument("[hosts] the path of key files (" + key_file +
                              ") cannot be named on a command line for another host",
                          "choose a folder of letters, digits and ./_+-=@%,:");
  }
  words.insert(words.end(), {path, host_argument, address, key_file});
  return words;
}

std::string last_words(int descriptor) {
  constexpr off_t kMost = 400;
  const off_t size = lseek(descriptor, 0, SEEK_END);
  std::string text(static_cast<size_t>(std::clamp<off_t>(size, 0, kMost)), ' ');
  const ssize_t n = pread(descriptor, text.data(), text.size(), std::max<off_t>(size - kMost, 0));
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

}  // namespace lockstep
