// Commands of a scheduler: run here, or by ssh on a login node of its cluster.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

struct ToolCall {
  std::vector<std::string> command;
  std::string login = {};  // "user@host": by ssh, which must not ask for a password; "": here
  std::string input = {};  // the command's standard input
  double seconds = 30;     // limit
  std::function<bool()> stop_wanted = {};  // asked now and then; true ends the command
};

struct ToolResult {
  bool succeeded = false;  // whether it exited with status 0
  std::string output;      // and errors, without the last line's end; at most 16 MiB
};

// The text as one word of a shell: in single quotes. Never throws.
std::string shell_quoted(const std::string& text);

// The words that run a command on a login node, with further options of ssh. ssh gets few variables
// of this process's environment, asks for nothing, and gives up a connection that is silent for
// half a minute.
std::vector<std::string> ssh_command(const std::string& login,
                                     const std::vector<std::string>& command,
                                     const std::vector<std::string>& options = {});

// Runs the command and waits for its end. Here it gets few variables of this process's environment
// (PATH, HOME, SLURM_CONF and the like), because others may hold secrets. Throws Timeout at the
// limit, Cancelled if a stop is wanted, Error if it cannot be started. Safe to call from several
// threads.
ToolResult run_tool(const ToolCall& call);

// Its output. Throws Error with it, and with the hint, if the command fails.
std::string output_of_tool(const ToolCall& call, const std::string& hint);

}  // namespace lockstep
