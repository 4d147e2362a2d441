#include "lockstep/cluster/remote/join.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/os/addresses.h"
#include "lockstep/base/os/build_id.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/host_name.h"
#include "lockstep/base/os/processor.h"
#include "lockstep/cluster/remote/agent_process.h"
#include "lockstep/parallel/messages/serialize.h"

namespace lockstep {
namespace {

constexpr const char* kHeading = "lockstep-key 1";
constexpr size_t kMostKeyBytes = 4096;
constexpr size_t kKeyCharacters = 40;

[[noreturn]] void fail_key_file(const std::string& path, const std::string& why,
                                const std::string& hint = "") {
  throw FileError("[key file] " + path + ": " + why, hint);
}

std::string read_all_of(int descriptor, const std::string& path) {
  std::string text;
  char chunk[512];
  while (text.size() <= kMostKeyBytes) {
    const ssize_t n = ::read(descriptor, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_key_file(path, std::strerror(errno));
    text.append(chunk, static_cast<size_t>(n));
    // A starter leaves standard input open.
    if (n == 0 || text.find("\nend\n") != std::string::npos) break;
  }
  return text;
}

int64_t number_of(const char* name, const char* text) {
  int64_t number = 0;
  const char* const end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, number);
  if (error != std::errc() || at != end || number < 0) {
    throw InvalidArgument(std::string("[join] the variable ") + name + " is not a number: " + text,
                          "give --index");
  }
  return number;
}

// "::1" in "[::1]:4000".
std::string host_in(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host.starts_with('[') && host.ends_with(']') ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

JobKey JobKey::fresh() {
  const ChannelKeys server = ChannelKeys::fresh();
  return {server.public_key, ChannelKeys::fresh(), server.secret_key};
}

std::string JobKey::text() const {
  std::string all = std::string(kHeading) + "\nserver " + server_key + "\nmember " +
                    guest.public_key + "\nmember-secret " + guest.secret_key + "\n";
  if (!server_secret.empty()) all += "server-secret " + server_secret + "\n";
  return all + "end\n";
}

JobKey JobKey::parse(const std::string& text, const std::string& where) {
  std::istringstream lines(text);
  std::string line;
  JobKey key;
  bool ended = false;
  if (!std::getline(lines, line) || line != kHeading) {
    throw DataError("[key file] " + where + " is not a key file",
                    "lockstep worker --new-key FILE makes one");
  }
  while (!ended && std::getline(lines, line)) {
    const size_t blank = line.find(' ');
    const std::string name = line.substr(0, blank);
    const std::string value = blank == std::string::npos ? "" : line.substr(blank + 1);
    ended = name == "end";
    for (const auto& [known, to] :
         {std::pair("server", &key.server_key), std::pair("member", &key.guest.public_key),
          std::pair("member-secret", &key.guest.secret_key),
          std::pair("server-secret", &key.server_secret)}) {
      if (name == known && value.size() == kKeyCharacters) *to = value;
    }
  }
  if (!ended || key.server_key.empty() || key.guest.public_key.empty() ||
      key.guest.secret_key.empty()) {
    throw DataError("[key file] " + where + " is damaged", "copy the whole file");
  }
  return key;
}

void write_key_file(const std::string& path, const JobKey& key) {
  const Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file) fail_key_file(path, std::strerror(errno));
  const std::string text = key.text();
  if (::fchmod(file.get(), S_IRUSR | S_IWUSR) != 0 ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fsync(file.get()) != 0) {
    const int why = errno;
    ::unlink(path.c_str());
    fail_key_file(path, std::strerror(why));
  }
}

JobKey read_key_file(const std::string& path) {
  if (path == "-") {
    return JobKey::parse(read_all_of(STDIN_FILENO, "standard input"), "standard input");
  }
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail_key_file(path, std::strerror(errno));
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) fail_key_file(path, std::strerror(errno));
  if (!S_ISREG(about.st_mode)) fail_key_file(path, "it is not a file");
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    fail_key_file(path, "other users can read it", "chmod 600 " + path);
  }
  return JobKey::parse(read_all_of(file.get(), path), path);
}

JoinRequest JoinRequest::of_this_process(int64_t index, int64_t size) {
  JoinRequest request;
  request.index = index;
  request.size = size;
  request.pid = getpid();
  request.host = host_name();
  if (request.host.empty()) request.host = "unknown";
  request.build = build_of_this();
  request.processor = processor_vendor() + " " + processor_model();
  return request;
}

std::string JoinRequest::name() const {
  // The text comes from outside.
  std::string plain;
  for (const char c : host.substr(0, 64)) {
    plain += std::isalnum(static_cast<unsigned char>(c)) || std::strchr(".-_", c) ? c : '?';
  }
  return "process " + std::to_string(pid) + " on " + plain;
}

std::string difference_to_this(const JoinRequest& request, bool same_processor) {
  const JoinRequest own = JoinRequest::of_this_process(-1, -1);
  if (request.version != own.version) return "it has another version of the contract for joining";
  if (request.build != own.build) {
    return "its executable is another build than the client's: all hosts must run the same file";
  }
  if (same_processor && request.processor != own.processor) {
    return "its processor is another model than the client's (" + request.processor.substr(0, 80) +
           ", not " + own.processor + "), which would change the results";
  }
  return "";
}

JobIndex index_of_engine() {
  struct Names {
    const char *index, *size;
  };
  for (const Names names :
       {Names{"SLURM_PROCID", "SLURM_NTASKS"}, Names{"PMIX_RANK", "OMPI_COMM_WORLD_SIZE"},
        Names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        Names{"JOB_COMPLETION_INDEX", nullptr}}) {
    const char* const index = std::getenv(names.index);
    if (index == nullptr) continue;
    const char* const size = names.size ? std::getenv(names.size) : nullptr;
    return {number_of(names.index, index), size ? number_of(names.size, size) : -1};
  }
  return {};
}

void join_job(const JoinOptions& options) {
  if (!options.started) leave_at_signals();
  const JobKey key = read_key_file(options.key_file);
  // Without a route it would try until its patience ends, and the client would wait for it.
  if (options.started) address_towards(host_in(options.address));
  JobIndex job{options.index, options.size};
  if (job.index < 0 && !options.started) job = index_of_engine();
  const ChannelTicket ticket{0, "tcp://" + options.address, key.server_key, key.guest.public_key,
                             key.guest.secret_key};
  const Bytes question = encode(JoinRequest::of_this_process(job.index, job.size));
  const auto answer =
      decode<JoinAnswer>(ask_as_guest(ticket, question, TimeLimit(options.patience)));
  if (!answer.refusal.empty()) throw InvalidArgument("[join] refused: " + answer.refusal);
  run_as_host(answer.start, {.started = options.started});
}

}  // namespace lockstep
