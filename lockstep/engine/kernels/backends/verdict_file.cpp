#include "lockstep/engine/kernels/backends/verdict_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/user_folder.h"
#include "lockstep/base/utc_time.h"

namespace lockstep::kernels {
namespace {

using ordered_json = nlohmann::ordered_json;

constexpr size_t kMostBytes = size_t{1} << 20;

std::string reason_of(int number) { return std::system_category().message(number); }

ordered_json json_of(const Verdict& verdict) {
  ordered_json kernels = ordered_json::array();
  for (const KernelVerdict& k : verdict.kernels) {
    kernels.push_back({{"kernel", k.kernel},
                       {"type", k.type},
                       {"state", to_string(k.state)},
                       {"cases", k.cases},
                       {"seen", k.seen}});
  }
  return {{"state", to_string(verdict.state())},
          {"reason", verdict.reason},
          {"seconds", verdict.seconds},
          {"digest", verdict.digest().to_string()},
          {"kernels", kernels}};
}

TestState parse_state(const std::string& text) {
  for (const TestState s : {TestState::passed, TestState::not_tested, TestState::failed}) {
    if (to_string(s) == text) return s;
  }
  throw DataError("unknown state `" + text + "`");
}

Verdict parse_verdict(const nlohmann::json& object) {
  Verdict verdict;
  verdict.reason = object.at("reason").get<std::string>();
  verdict.seconds = object.at("seconds").get<double>();
  for (const auto& k : object.at("kernels")) {
    verdict.kernels.push_back({k.at("kernel").get<std::string>(), k.at("type").get<std::string>(),
                               parse_state(k.at("state").get<std::string>()),
                               k.at("cases").get<int>(), k.at("seen").get<std::string>()});
  }
  return verdict;
}

ordered_json json_of(const VerdictKey& key) {
  ordered_json versions = ordered_json::object();
  for (const auto& [name, version] : key.versions) versions[name] = version;
  return {{"uuid", key.uuid}, {"name", key.name}, {"versions", versions}};
}

std::string digest_of_text(const std::string& text) {
  return digest_of(text.data(), text.size()).to_string();
}

std::string dumped(const ordered_json& object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// Reads a file of this user that no other user can change. Sets `problem` if there is one that
// cannot be used.
std::optional<std::string> read_own(const std::string& path, std::string& problem) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) {
    if (errno != ENOENT && errno != ENOTDIR) problem = reason_of(errno);
    return std::nullopt;
  }
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) {
    problem = reason_of(errno);
  } else if (!S_ISREG(facts.st_mode)) {
    problem = "it is not a regular file";
  } else if (facts.st_uid != geteuid()) {
    problem = "it belongs to another user (number " + std::to_string(facts.st_uid) + ")";
  } else if ((facts.st_mode & 077) != 0) {
    problem = "other users may read or change it";
  } else if (facts.st_size < 0 || static_cast<size_t>(facts.st_size) > kMostBytes) {
    problem = "it is too large";
  }
  if (!problem.empty()) return std::nullopt;
  std::string text(static_cast<size_t>(facts.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = read(file.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return text;
}

}  // namespace

Digest VerdictKey::digest() const {
  const std::string text = dumped(json_of(*this));
  return digest_of(text.data(), text.size());
}

std::string verdict_folder() { return user_folder(UserFolder::state, "devices"); }

std::string verdict_path(const std::string& folder, const VerdictKey& key) {
  std::string name;
  for (const char c : key.uuid) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
  }
  return join_path(folder,
                   name.substr(0, 64) + "-" + key.digest().to_string().substr(0, 16) + ".json");
}

StoredVerdict read_verdict(const std::string& folder, const VerdictKey& key) {
  StoredVerdict stored;
  const std::string path = verdict_path(folder, key);
  const std::optional<std::string> text = read_own(path, stored.problem);
  if (text) {
    try {
      const auto object = parse_json<ordered_json>(*text);
      if (object.at("digest").get<std::string>() != digest_of_text(dumped(object.at("content")))) {
        throw DataError("its digest is wrong");
      }
      const auto& content = object.at("content");
      if (dumped(content.at("device")) != dumped(json_of(key))) {
        throw DataError("it is for another device");
      }
      stored.verdict = parse_verdict(parse_json<nlohmann::json>(dumped(content.at("verdict"))));
    } catch (const nlohmann::json::exception&) {
      stored.problem = "it is damaged";
    } catch (const DataError& error) {
      stored.problem = std::string("it is damaged: ") + error.what();
    }
  }
  if (!stored.problem.empty()) stored.problem = path + " is ignored: " + stored.problem;
  return stored;
}

void write_verdict(const std::string& folder, const VerdictKey& key, const Verdict& verdict) {
  FileSystem& files = local_files();
  if (!files.exists(folder)) {
    make_folders(files, folder);
    chmod(folder.c_str(), 0700);
  }
  const ordered_json content{
      {"device", json_of(key)}, {"tested", utc_now()}, {"verdict", json_of(verdict)}};
  const ordered_json object{{"digest", digest_of_text(dumped(content))}, {"content", content}};
  const std::string text = dumped(object) + "\n", path = verdict_path(folder, key),
                    temporary = path + "." + std::to_string(getpid()) + ".tmp";
  const auto fail = [&](const char* what, int number) {
    unlink(temporary.c_str());
    throw FileError("[self-test] cannot " + std::string(what) + " " + path + ": " +
                    reason_of(number));
  };
  {
    unlink(temporary.c_str());
    const Descriptor file(
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) fail("make", errno);
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t n = write(file.get(), text.data() + done, text.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("write", errno);
      done += static_cast<size_t>(n);
    }
    if (fsync(file.get()) != 0) fail("write", errno);
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) fail("write", errno);
}

std::string verdict_json(const Verdict& verdict) { return dumped(json_of(verdict)); }

}  // namespace lockstep::kernels
