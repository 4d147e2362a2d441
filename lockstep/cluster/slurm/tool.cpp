#include "lockstep/cluster/slurm/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/process/child_process.h"

namespace lockstep {
namespace {

constexpr size_t most_output = size_t{16} << 20;
constexpr int look_milliseconds = 100;

std::vector<std::string> tool_environment() {
  std::vector<std::string> words{"env", "-i"};
  for (const char* name : {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "LD_LIBRARY_PATH",
                           "SLURM_CONF", "SLURM_JOB_ID", "SSH_AUTH_SOCK"}) {
    if (const char* value = std::getenv(name)) words.push_back(std::string(name) + "=" + value);
  }
  return words;
}

std::vector<std::string> words_of(const ToolCall& call) {
  if (!call.login.empty()) {
    // Slurm stores the environment of sbatch, and a login shell's may hold secrets.
    std::vector<std::string> words{
        "sh", "-c",
        "exec env -i PATH=\"$PATH\" HOME=\"$HOME\" USER=\"$USER\" "
        "LOGNAME=\"$LOGNAME\" ${SLURM_CONF:+SLURM_CONF=\"$SLURM_CONF\"} "
        "${LOCKSTEP_HOME:+LOCKSTEP_HOME=\"$LOCKSTEP_HOME\"} "
        "${XDG_STATE_HOME:+XDG_STATE_HOME=\"$XDG_STATE_HOME\"} "
        "${LD_LIBRARY_PATH:+LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH\"} \"$@\"",
        "sh"};
    words.insert(words.end(), call.command.begin(), call.command.end());
    return ssh_command(call.login, words);
  }
  std::vector<std::string> words = tool_environment();
  words.insert(words.end(), call.command.begin(), call.command.end());
  return words;
}

// A file in memory with this content, to be read from its beginning.
Descriptor input_file(const std::string& text) {
  Descriptor file(::memfd_create("lockstep-input", MFD_CLOEXEC));
  size_t done = 0;
  while (file.get() >= 0 && done < text.size()) {
    const ssize_t count = ::write(file.get(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  if (file.get() < 0 || done < text.size() || ::lseek(file.get(), 0, SEEK_SET) != 0) {
    throw Error("[cluster] no file in memory: " + std::system_category().message(errno));
  }
  return file;
}

// Reads until the end of the file. Returns false at the limit.
bool read_all(int descriptor, const TimeLimit& limit, const std::function<bool()>& stop_wanted,
              std::string& text) {
  std::array<char, 4096> chunk;
  while (text.size() < most_output) {
    pollfd waiting{descriptor, POLLIN, 0};
    const int pause = stop_wanted ? std::min(look_milliseconds, limit.milliseconds_left())
                                  : limit.milliseconds_left();
    const int ready = ::poll(&waiting, 1, pause);
    if (stop_wanted && stop_wanted()) throw Cancelled("[cluster] stopped by a signal");
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0 && !limit.reached()) continue;
    if (ready <= 0) return false;
    const ssize_t count = ::read(descriptor, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    text.append(chunk.data(), static_cast<size_t>(count));
  }
  return true;
}

}  // namespace

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::vector<std::string> ssh_command(const std::string& login,
                                     const std::vector<std::string>& command,
                                     const std::vector<std::string>& options) {
  std::vector<std::string> words = tool_environment();
  words.insert(words.end(), {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o",
                             "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"});
  words.insert(words.end(), options.begin(), options.end());
  std::string line;
  for (const std::string& word : command) line += (line.empty() ? "" : " ") + shell_quoted(word);
  words.insert(words.end(), {login, line});
  return words;
}

ToolResult run_tool(const ToolCall& call) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error("[cluster] cannot create a pipe: " + std::system_category().message(errno));
  }
  const Descriptor ours(ends[0]);
  Descriptor theirs(ends[1]);
  const Descriptor input = input_file(call.input);
  ChildProcess child({.command = words_of(call), .input = input.get(), .output = theirs.get()});
  theirs.close();
  const TimeLimit limit(call.seconds);
  ToolResult result;
  if (!read_all(ours.get(), limit, call.stop_wanted, result.output) || !child.wait(limit)) {
    throw Timeout("[cluster] " + call.command.front() +
                  (call.login.empty() ? "" : " on " + call.login) + " does not answer within " +
                  std::to_string(static_cast<int>(call.seconds)) + " seconds: " + result.output);
  }
  result.succeeded = child.how() == "exited with status 0";
  while (result.output.ends_with('\n')) result.output.pop_back();
  return result;
}

std::string output_of_tool(const ToolCall& call, const std::string& hint) {
  ToolResult result = run_tool(call);
  if (result.succeeded) return std::move(result.output);
  throw Error("[cluster] " + call.command.front() +
                  (call.login.empty() ? "" : " on " + call.login) + " failed: " + result.output,
              hint);
}

}  // namespace lockstep
