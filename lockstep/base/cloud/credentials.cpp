#include "lockstep/base/cloud/credentials.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "lockstep/base/cloud/http.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/variable.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/time_limit.h"

extern char** environ;

namespace lockstep::cloud {
namespace {

constexpr std::time_t renew_before = 300;  // seconds before keys expire

std::string stripped(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

// The value of a setting in the section of a profile.
std::string setting_in(const std::string& path, const std::string& section,
                       const std::string& other_section, const std::string& name) {
  if (path.empty() || !local_files().exists(path)) return {};
  std::istringstream lines(read_text(local_files(), path));
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    const bool nested = line.starts_with(' ') || line.starts_with('\t');
    line = stripped(line);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line[0] == '[') {
      const std::string title = stripped(line.substr(1, line.find(']') - 1));
      inside = title == section || title == other_section;
      continue;
    }
    const size_t equals = line.find('=');
    if (!inside || nested || equals == std::string::npos) continue;
    if (stripped(line.substr(0, equals)) == name) return stripped(line.substr(equals + 1));
  }
  return {};
}

std::string home_file(const char* name) {
  const std::string home = variable("HOME");
  return home.empty() ? "" : join_path(home, name);
}

std::time_t parsed_time(const std::string& text) {
  std::tm parts{};
  const char* const rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return 0;
  std::time_t time = timegm(&parts);
  const char* zone = rest;
  while (*zone == '.' || (*zone >= '0' && *zone <= '9')) ++zone;  // fractions of a second
  int hours = 0, minutes = 0;
  if ((*zone == '+' || *zone == '-') && std::sscanf(zone + 1, "%2d:%2d", &hours, &minutes) >= 1) {
    const std::time_t shift = hours * 3600 + minutes * 60;
    time += *zone == '+' ? -shift : shift;
  }
  return time;
}

// Keys from a JSON document. `place` appears in messages, the document never does.
Credentials parsed_keys(const std::string& text, const std::string& place, const char* access,
                        const char* secret, const char* token) {
  const auto document = parse_json_or_discard<nlohmann::json>(text);
  const auto field = [&](const char* name) {
    const bool there =
        document.is_object() && document.contains(name) && document[name].is_string();
    return there ? document[name].get<std::string>() : std::string();
  };
  const Credentials keys{field(access), field(secret), field(token),
                         parsed_time(field("Expiration"))};
  if (keys.access_key.empty() || keys.secret_key.empty()) {
    throw DataError("[s3] " + place + " gave no " + access + " and " + secret);
  }
  return keys;
}

// Output of a shell command, at most 1 MB within 60 seconds.
std::string output_of(const std::string& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw FileError("[s3] credential_process: no pipe");
  Descriptor from(ends[0]), to(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to.get(), 1);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // to end its children as well
  std::string shell = "/bin/sh", option = "-c", text = command;
  char* arguments[] = {shell.data(), option.data(), text.data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawn(&child, shell.c_str(), &actions, &attributes, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw FileError("[s3] credential_process: " + std::string(strerror(error)));
  to.close();
  const TimeLimit limit(60);
  std::string output;
  bool whole = false;
  while (!limit.reached() && output.size() < (size_t{1} << 20)) {
    pollfd wait{from.get(), POLLIN, 0};
    if (poll(&wait, 1, limit.milliseconds_left()) <= 0) continue;
    std::array<char, 4096> part;
    const ssize_t got = ::read(from.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      whole = got == 0;
      break;
    }
    output.append(part.data(), static_cast<size_t>(got));
  }
  int status = 0;
  pid_t ended = 0;
  while (whole && (ended = waitpid(child, &status, WNOHANG)) == 0 && !limit.reached()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (ended == 0) {
    kill(-child, SIGKILL);
    waitpid(child, &status, 0);
    throw DataError("[s3] credential_process did not end within 60 seconds");
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw DataError("[s3] credential_process failed (exit code " +
                    std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1) + ")");
  }
  return output;
}

std::optional<Credentials> keys_of_environment() {
  Credentials keys{variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"),
                   variable("AWS_SESSION_TOKEN")};
  if (keys.access_key.empty() && keys.secret_key.empty()) return {};
  if (keys.access_key.empty() || keys.secret_key.empty()) {
    throw DataError("[s3] only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set");
  }
  return keys;
}

std::optional<Credentials> keys_of_profile() {
  Credentials keys{profile_setting("aws_access_key_id"), profile_setting("aws_secret_access_key"),
                   profile_setting("aws_session_token")};
  if (!keys.access_key.empty() && !keys.secret_key.empty()) return keys;
  const std::string process = profile_setting("credential_process");
  if (process.empty()) return {};
  return parsed_keys(output_of(process), "credential_process", "AccessKeyId", "SecretAccessKey",
                     "SessionToken");
}

// An answer with status 200 within several attempts.
std::string fetched(const HttpRequest& request, const std::string& place, int attempts) {
  std::string problem;
  for (int i = 0; i < attempts; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(200 << i));
    const HttpAnswer answer = send(request);
    if (answer.status == 200) return answer.body;
    problem = answer.status == 0 ? answer.error : "status " + std::to_string(answer.status);
  }
  throw DataError("[s3] " + place + " gave no keys: " + problem);
}

std::optional<Credentials> keys_of_container() {
  std::string url = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  const std::string relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  if (!relative.empty()) url = "http://169.254.170.2" + relative;
  if (url.empty()) return {};
  HttpRequest request{.url = url, .seconds = 5, .use_proxy = false};
  std::string token = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const std::string file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (!file.empty()) token = stripped(read_text(local_files(), file));
  if (!token.empty()) request.headers.emplace_back("authorization", token);
  return parsed_keys(fetched(request, "the container's address of credentials", 3),
                     "the container's address of credentials", "AccessKeyId", "SecretAccessKey",
                     "Token");
}

std::optional<Credentials> keys_of_instance() {
  const std::string disabled = variable("AWS_EC2_METADATA_DISABLED");
  if (disabled == "true" || disabled == "True" || disabled == "TRUE") return {};
  std::string base = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (base.empty()) base = "http://169.254.169.254";
  while (base.ends_with('/')) base.pop_back();
  HttpRequest request{.method = "PUT",
                      .url = base + "/latest/api/token",
                      .headers = {{"x-aws-ec2-metadata-token-ttl-seconds", "21600"}},
                      .seconds = 2,
                      .use_proxy = false};
  const HttpAnswer token = send(request);
  if (token.status != 200) return {};  // no such service: this is no instance
  const std::string roles = base + "/latest/meta-data/iam/security-credentials/";
  request = {.url = roles,
             .headers = {{"x-aws-ec2-metadata-token", token.body}},
             .seconds = 5,
             .use_proxy = false};
  std::string role = fetched(request, "the instance's metadata", 3);
  role = stripped(role.substr(0, role.find('\n')));
  request.url = roles + percent_encoded(role, false);
  return parsed_keys(fetched(request, "the instance's metadata", 3), "the instance's metadata",
                     "AccessKeyId", "SecretAccessKey", "Token");
}

Credentials found_keys() {
  if (variable("LOCKSTEP_S3_ANONYMOUS") == "1") return {};
  for (const auto& place :
       {keys_of_environment, keys_of_profile, keys_of_container, keys_of_instance}) {
    if (std::optional<Credentials> keys = place()) return std::move(*keys);
  }
  throw DataError(
      "[s3] no keys found: neither AWS_ACCESS_KEY_ID, nor a profile, nor a container's address, "
      "nor "
      "the role of an instance",
      "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or LOCKSTEP_S3_ANONYMOUS=1 for public "
      "data");
}

}  // namespace

std::string profile_setting(const std::string& name) {
  std::string profile = variable("AWS_PROFILE");
  if (profile.empty()) profile = "default";
  std::string keys = variable("AWS_SHARED_CREDENTIALS_FILE"), config = variable("AWS_CONFIG_FILE");
  if (keys.empty()) keys = home_file(".aws/credentials");
  if (config.empty()) config = home_file(".aws/config");
  const std::string value = setting_in(keys, profile, profile, name);
  return value.empty() ? setting_in(config, "profile " + profile,
                                    profile == "default" ? profile : "profile " + profile, name)
                       : value;
}

struct CredentialSource::State {
  Mutex mutex;
  std::optional<Credentials> keys LOCKSTEP_GUARDED_BY(mutex);
};

CredentialSource::CredentialSource() : state_(std::make_unique<State>()) {}
CredentialSource::~CredentialSource() = default;

Credentials CredentialSource::get() {
  State& s = *state_;
  const MutexLock lock(s.mutex);
  std::optional<Credentials>& keys = s.keys;
  const std::time_t now = std::time(nullptr);
  if (keys && (keys->expires == 0 || now + renew_before < keys->expires)) return *keys;
  try {
    keys = found_keys();
  } catch (const Error&) {
    if (!keys || now >= keys->expires) throw;  // the old keys still serve
  }
  return *keys;
}

void CredentialSource::renew(const Credentials& refused) {
  State& s = *state_;
  const MutexLock lock(s.mutex);
  const bool same = s.keys && s.keys->access_key == refused.access_key &&
                    s.keys->session_token == refused.session_token;
  if (same) s.keys.reset();
}

}  // namespace lockstep::cloud
