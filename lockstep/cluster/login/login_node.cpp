#include "lockstep/cluster/login/login_node.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <optional>
#include <system_error>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/own_executable.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/cluster/login/fetched_folder.h"
#include "lockstep/cluster/slurm/tool.h"
#include "lockstep/parallel/process/child_process.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Exit codes of the scripts on the login node, in addition to those of lockstep (0 to 3 and 130).
constexpr int no_folder = 73, no_files = 74, no_executable = 127, ssh_failed = 255;
constexpr double end_of_copy = 30;  // seconds for tar to end after ssh

Descriptor opened(const std::string& path, int flags) {
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC));
  if (!file) {
    throw FileError("[cluster] cannot open " + path + ": " + std::system_category().message(errno));
  }
  return file;
}

std::pair<Descriptor, Descriptor> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error("[cluster] cannot create a pipe: " + std::system_category().message(errno));
  }
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// A command there may take days, so its end has no limit.
int exit_code_of(ChildProcess& child, const std::function<bool()>& stop_wanted) {
  constexpr double look = 0.2;
  while (!child.wait(TimeLimit(look))) {
    if (!stop_wanted || !stop_wanted()) continue;
    child.kill();
    throw Cancelled("[cluster] stopped by a signal");
  }
  const std::string prefix = "exited with status ";
  return child.how().starts_with(prefix) ? std::stoi(child.how().substr(prefix.size()))
                                         : ssh_failed;
}

std::string content_of(int descriptor) {
  std::string text(4096, ' ');
  const ssize_t count = ::pread(descriptor, text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  std::replace(text.begin(), text.end(), '\r', ' ');
  while (text.ends_with('\n') || text.ends_with(' ')) text.pop_back();
  return text;
}

// A folder of this machine that is removed at the end of its life.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& in) : path_(join_path(in, ".lockstep-XXXXXX")) {
    if (::mkdtemp(path_.data()) == nullptr) {
      throw FileError("[cluster] no folder can be made in " + in + ": " +
                      std::system_category().message(errno));
    }
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(const std::string& name) const { return join_path(path_, name); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// tar would skip what it cannot read.
void check_readable(const std::string& path) {
  const auto refuse = [](const std::string& what, int error) {
    throw FileError("[cluster] cannot attach " + what + ": " +
                    std::system_category().message(error));
  };
  if (::access(path.c_str(), R_OK) != 0) refuse(path, errno);
  std::error_code error;
  if (!fs::is_directory(path, error)) return;
  for (fs::recursive_directory_iterator
           it(path, fs::directory_options::follow_directory_symlink, error),
       end;
       !error && it != end; it.increment(error)) {
    if (::access(it->path().c_str(), R_OK) != 0) refuse(it->path().string(), errno);
  }
  if (error) refuse(path, error.value());
}

}  // namespace

LoginNode::LoginNode(std::string name, ClusterProfile profile, std::function<bool()> stop_wanted)
    : name_(std::move(name)), profile_(std::move(profile)), stop_wanted_(std::move(stop_wanted)) {
  if (profile_.executable == "shared") {
    executable_ = shell_quoted(own_executable());
  } else if (profile_.executable == "shipped") {
    Digester digester;
    const auto bytes = local_files().read(own_executable_file);
    digester.bytes(bytes.data(), bytes.size());
    executable_ = "\"$base\"/shipped/" + digester.finish().to_string() + "/lockstep";
  } else {
    executable_ = shell_quoted(profile_.executable);
  }
}

// All files there lie in the profile's folder; without it, in the user's folders.
std::string LoginNode::prologue() const {
  std::string text = "umask 077\n";
  if (profile_.folder.empty()) {
    text += "base=${LOCKSTEP_HOME:-${XDG_STATE_HOME:-$HOME/.local/state}/lockstep}\n";
  } else {
    text += "base=" + shell_quoted(profile_.folder) + "\nexport LOCKSTEP_HOME=\"$base\"\n";
  }
  return text;
}

std::string LoginNode::in_new_folder() const {
  return "mkdir -p \"$base\" && work=$(mktemp -d \"$base/incoming-XXXXXX\") || exit " +
         std::to_string(no_folder) +
         "\ntrap 'cd /; rm -rf \"$work\"' EXIT\ntrap 'exit 129' HUP INT TERM PIPE\ncd \"$work\" || "
         "exit " +
         std::to_string(no_folder) + "\n";
}

std::string LoginNode::command_line(const std::vector<std::string>& arguments) const {
  std::string line =
      "[ -x " + executable_ + " ] || exit " + std::to_string(no_executable) + "\n" + executable_;
  for (const std::string& argument : arguments) {
    line += argument.starts_with("@/") ? " \"$work\"/" + shell_quoted(argument.substr(2))
                                       : " " + shell_quoted(argument);
  }
  return line;
}

int LoginNode::connect(const std::string& script, int input, int output) const {
  // ssh's own messages, apart from those of the command there.
  const Descriptor said(::memfd_create("lockstep-ssh", MFD_CLOEXEC));
  const std::string log =
      "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(said.get());
  // With output to a descriptor, errors go to this process's, as the shell's descriptor 3.
  std::vector<std::string> words{"sh", "-c", output < 0 ? "exec \"$@\"" : "exec \"$@\" 2>&3", "sh"};
  const std::vector<std::string> ssh =
      ssh_command(profile_.login, {"sh", "-c", script}, {"-E", log});
  words.insert(words.end(), ssh.begin(), ssh.end());
  const Descriptor nothing = opened("/dev/null", O_RDONLY);
  ChildOptions options{
      .command = words, .input = input < 0 ? nothing.get() : input, .output = output};
  if (output >= 0) options.descriptors = {STDERR_FILENO};
  ChildProcess child(options);
  const int code = exit_code_of(child, stop_wanted_);
  if (code == ssh_failed) {
    throw Error("[cluster] " + profile_.login +
                    " cannot be reached, or the connection was lost: " + content_of(said.get()),
                "ssh " + profile_.login +
                    " must work without a password; jobs that were submitted "
                    "continue: lockstep jobs list --cluster " +
                    name_);
  }
  return code;
}

int LoginNode::checked(int code, const std::string& what) const {
  const std::string where =
      profile_.folder.empty() ? "the user's folder" : "the folder " + profile_.folder;
  if (code == no_folder) {
    throw FileError("[cluster] " + where + " on " + profile_.login + " cannot be used",
                    "name another one: lockstep cluster add NAME --folder DIR");
  }
  if (code == no_files) {
    throw FileError("[cluster] " + what + " could not be copied to " + profile_.login,
                    "check free space in " + where + " there; the partial copy was removed");
  }
  if (code == no_executable) {
    throw Error("[cluster] " + profile_.login + " cannot run " +
                    (profile_.executable == "shipped"  ? "the executable that was copied there"
                     : profile_.executable == "shared" ? own_executable()
                                                       : profile_.executable),
                profile_.executable == "shipped"
                    ? "do the libraries that it needs exist there?"
                    : "install it there, or have it copied: lockstep cluster add NAME --executable "
                      "shipped");
  }
  return code;
}

void LoginNode::ship() {
  if (profile_.executable != "shipped") return;
  // Another user's file is not run.
  const ToolResult there =
      run_tool({.command = {"sh", "-c",
                            prologue() + "[ -x " + executable_ + " ] && [ -O " + executable_ +
                                " ] && echo there"},
                .login = profile_.login,
                .stop_wanted = stop_wanted_});
  if (there.succeeded && there.output.ends_with("there")) return;
  const auto copy = [&](const std::string& file, const char* name) {
    const std::string script =
        prologue() + "folder=" + executable_ +
        "; folder=${folder%/*}\nmkdir -p \"$folder\" || exit " + std::to_string(no_folder) +
        "\nnew=\"$folder/new-$$\"\ntrap 'rm -f \"$new\"' EXIT\ncat > \"$new\" && chmod 700 "
        "\"$new\" && mv -f \"$new\" \"$folder/\"" +
        shell_quoted(name) + " || exit " + std::to_string(no_files) + "\n";
    checked(connect(script, opened(file, O_RDONLY).get(), -1), "the executable");
  };
  // The executable comes last, because it shows that all is there.
  if (const std::string library = cuda_library_of(own_executable()); !library.empty()) {
    copy(library, cuda_library_name);
  }
  copy(own_executable_file, "lockstep");
}

std::string LoginNode::host_name() {
  return output_of_tool({.command = {"uname", "-n"}, .login = profile_.login},
                        "ssh " + profile_.login + " must work without a password (ssh-copy-id)");
}

std::string LoginNode::output_of(const std::vector<std::string>& arguments) {
  const ToolResult result = run_tool(
      {.command = {"sh", "-c", prologue() + command_line(arguments) + " || { echo; exit 1; }"},
       .login = profile_.login});
  if (!result.succeeded) {
    throw Error("[cluster] " + profile_.login + " cannot run the executable: " + result.output,
                "install it there, or have it copied: lockstep cluster add NAME --executable "
                "shipped");
  }
  return result.output;
}

int LoginNode::run(const std::vector<std::string>& arguments) {
  return checked(connect(prologue() + command_line(arguments) + "\n", -1, -1), "the command");
}

int LoginNode::run_with(const LoginFiles& files, const std::vector<std::string>& arguments) {
  const ScratchFolder scratch(fs::temp_directory_path().string());
  ClusterProfile there = profile_;
  there.login = there.folder = "";
  there.executable = "shared";
  there.attach = {};
  const auto write = [&](const std::string& name, const std::string& text) {
    write_atomically(local_files(), scratch.file(name), text);
  };
  write(name_ + ".toml", cluster_profile_text(there));
  for (const auto& [name, text] : files.texts) write(name, text);
  if (!files.attached.empty()) make_folders(local_files(), scratch.file("attached"));
  for (const auto& [name, path] : files.attached) {
    check_readable(path);
    fs::create_symlink(path, scratch.file("attached/" + name));
  }
  // After a failure tar ends the archive as if it were complete, so a last file shows that it is.
  write("complete", "");
  const std::string script = prologue() + in_new_folder() + "tar -xif - && rm complete || exit " +
                             std::to_string(no_files) + "\ncd \"$base\"\n" +
                             command_line(arguments) + " < /dev/null\n";
  auto [from_tar, to_ssh] = make_pipe();
  const Descriptor nothing = opened("/dev/null", O_RDONLY);
  ChildProcess tar({.descriptors = {STDERR_FILENO},
                    .command = {"sh", "-c",
                                "{ tar -chf - --exclude=./complete -C \"$0\" . && "
                                "tar -cf - -C \"$0\" ./complete; } 2>&3",
                                scratch.path()},
                    .input = nothing.get(),
                    .output = to_ssh.get()});
  to_ssh.close();
  const int code = connect(script, from_tar.get(), -1);
  from_tar.close();
  if (code == 0 && !(tar.wait(TimeLimit(end_of_copy)) && tar.how() == "exited with status 0")) {
    throw FileError("[cluster] tar " + tar.how() + " while it read the attached files");
  }
  return checked(code, "the job");
}

LoginNode::Fetched LoginNode::fetch(const std::vector<std::string>& arguments,
                                    const std::string& out) {
  FetchedFolder fetched(out);
  std::vector<std::string> all = arguments;
  all.insert(all.end(), {"--out", "fetched"});
  const std::string script = prologue() + in_new_folder() + command_line(all) +
                             " >&2 || exit $?\ntar -cf - fetched || exit " +
                             std::to_string(no_files) + "\n";
  auto [from_ssh, to_tar] = make_pipe();
  ChildProcess tar({.command = {"tar", "-xf", "-", "-C", fetched.path()}, .input = from_ssh.get()});
  from_ssh.close();
  const int code = connect(script, -1, to_tar.get());
  to_tar.close();
  const bool whole = tar.wait(TimeLimit(end_of_copy)) && tar.how() == "exited with status 0";
  if (checked(code, "the run") != 0) return {code, fetched.removed_unfinished()};
  if (!whole) throw FileError("[cluster] the run could not be written to " + out);
  fetched.finish("fetched");
  return {0, fetched.removed_unfinished()};
}

}  // namespace lockstep
