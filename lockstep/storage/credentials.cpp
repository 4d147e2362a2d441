#include "lockstep/storage/credentials.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/variable.h"
#include "lockstep/base/suggest.h"
#include "lockstep/base/text.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/storage/assumed_role.h"
#include "lockstep/storage/http.h"
#include "lockstep/storage/network_wait.h"
#include "lockstep/storage/profiles.h"

namespace lockstep::storage {
namespace {

constexpr std::time_t renew_before = 300;  // seconds before keys expire
constexpr double between_renewals = 10;    // seconds, if they fail while the old keys serve

std::string stripped(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string named(const Profile& profile) {
  return "the profile `" + printable(profile.name) + "`";
}

// Keys from a JSON document. `source` appears in messages, the document never does.
Credentials parsed_keys(const std::string& text, const std::string& source) {
  const auto document = parse_json_or_discard<nlohmann::json>(text);
  const auto field = [&](const char* name) {
    const bool there =
        document.is_object() && document.contains(name) && document[name].is_string();
    return there ? document[name].get<std::string>() : std::string();
  };
  const Credentials keys{field("AccessKeyId"), field("SecretAccessKey"), field("Token"),
                         parsed_time(field("Expiration"))};
  if (keys.access_key.empty() || keys.secret_key.empty()) {
    throw DataError("[s3] " + source + " returned no AccessKeyId and SecretAccessKey");
  }
  return keys;
}

std::optional<Credentials> keys_of_environment() {
  Credentials keys{variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"),
                   variable("AWS_SECURITY_TOKEN")};
  // As botocore, which looks at the older name first.
  if (keys.session_token.empty()) keys.session_token = variable("AWS_SESSION_TOKEN");
  if (keys.access_key.empty() && keys.secret_key.empty()) return {};
  if (keys.access_key.empty() || keys.secret_key.empty()) {
    throw DataError("[s3] only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set");
  }
  return keys;
}

// The pair in one file. Halves in two files are not a pair.
std::optional<Credentials> keys_in(const ProfileSettings& settings, const Profile& profile,
                                   const char* file) {
  const auto value = [&](const char* name) {
    const auto found = settings.find(name);
    return found == settings.end() ? std::string() : found->second;
  };
  const bool any =
      settings.contains("aws_access_key_id") || settings.contains("aws_secret_access_key");
  if (!any) return {};
  Credentials keys{value("aws_access_key_id"), value("aws_secret_access_key"),
                   value("aws_session_token")};
  // botocore looks at the older name first.
  if (const std::string old = value("aws_security_token"); !old.empty()) keys.session_token = old;
  if (keys.access_key.empty() || keys.secret_key.empty()) {
    throw DataError("[s3] " + named(profile) + " has only one of aws_access_key_id and " +
                        "aws_secret_access_key in the " + file,
                    "both belong in one file");
  }
  for (const std::string& text : {keys.access_key, keys.secret_key, keys.session_token}) {
    if (text.find('\n') == std::string::npos) continue;
    throw DataError("[s3] " + named(profile) + ": a key has several lines in the " + file,
                    "lines that are indented more deeply than a setting continue it");
  }
  return keys;
}

[[noreturn]] void refuse_by_name(const Profile& profile, const std::string& what) {
  throw Unsupported(
      "[s3] " + named(profile) + " asks for keys by " + what + ", which Lockstep does not support",
      "name a profile with keys or a role in AWS_PROFILE; `aws configure "
      "export-credentials --profile " +
          printable(profile.name) + " --format env` prints temporary keys for the environment");
}

// An answer with status 200 within several attempts.
std::string fetched(const HttpRequest& request, const std::string& source, int attempts) {
  std::string problem;
  for (int i = 0; i < attempts; ++i) {
    if (retries_stopped()) throw Cancelled("[s3] " + source + ": " + stopped_request);
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(200 << i));
    const HttpAnswer answer = send(request);
    if (answer.status == 200) return answer.body;
    problem = answer.status == 0 ? answer.error : "status " + std::to_string(answer.status);
  }
  throw DataError("[s3] " + source + " returned no keys: " + problem);
}

// Keys and a token travel without encryption: only within this machine, or to the addresses that
// AWS's container services have.
void check_container_url(const std::string& url) {
  const size_t scheme = url.find("://");
  const std::string rest = scheme == std::string::npos ? "" : url.substr(scheme + 3);
  const std::string authority = rest.substr(0, rest.find_first_of("/?#"));
  if (authority.find_first_of("@\\") != std::string::npos) {
    throw InvalidArgument("[s3] AWS_CONTAINER_CREDENTIALS_FULL_URI is not an address for keys",
                          "it has no user: the host alone stands before the path");
  }
  if (url.starts_with("https://")) return;
  const std::string host = authority.starts_with('[') ? authority.substr(0, authority.find(']') + 1)
                                                      : authority.substr(0, authority.find(':'));
  const bool digits = host.find_first_not_of("0123456789.") == std::string::npos;
  const bool near = host == "localhost" || host == "[::1]" || (digits && host.starts_with("127."));
  const bool plain = url.starts_with("http://");
  if (plain &&
      (near || host == "169.254.170.2" || host == "169.254.170.23" || host == "[fd00:ec2::23]")) {
    return;
  }
  throw InvalidArgument(
      "[s3] AWS_CONTAINER_CREDENTIALS_FULL_URI is not an address for keys",
      "it begins with https://, or names this machine or AWS's container service");
}

std::optional<Credentials> keys_of_container() {
  std::string url = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  const std::string relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  if (!relative.empty()) {
    if (!relative.starts_with('/')) {
      throw InvalidArgument("[s3] AWS_CONTAINER_CREDENTIALS_RELATIVE_URI does not begin with /");
    }
    url = "http://169.254.170.2" + relative;
  }
  if (url.empty()) return {};
  check_container_url(url);
  HttpRequest request{.url = url, .seconds = 5, .use_proxy = false};
  std::string token = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const std::string file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (!file.empty()) token = read_text(local_files(), file);
  token = stripped(token);
  if (token.find_first_of("\r\n") != std::string::npos) {
    throw DataError("[s3] the container's authorization token has several lines");
  }
  if (!token.empty()) request.headers.emplace_back("authorization", token);
  const std::string source = "the container's address of credentials";
  return parsed_keys(fetched(request, source, 3), source);
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
  if (token.status != 200) return {};  // no such service: this is not an instance
  const std::string roles = base + "/latest/meta-data/iam/security-credentials/";
  request = {.url = roles,
             .headers = {{"x-aws-ec2-metadata-token", stripped(token.body)}},
             .seconds = 5,
             .use_proxy = false};
  const std::string source = "the instance's metadata";
  std::string role = fetched(request, source, 3);
  role = stripped(role.substr(0, role.find('\n')));
  request.url = roles + percent_encoded(role, false);
  return parsed_keys(fetched(request, source, 3), source);
}

// Whether the profile asks for a role by other keys. A web identity is a source of its own.
bool has_role(const Profile& profile) {
  return profile.settings.contains("role_arn") &&
         !profile.settings.contains("web_identity_token_file");
}

bool has_half_a_pair(const Profile& profile) {
  return profile.settings.contains("aws_access_key_id") ||
         profile.settings.contains("aws_secret_access_key");
}

// The sources of keys other than the environment, in botocore's order.
class Chain {
 public:
  explicit Chain(const Profiles& profiles) : profiles_(profiles), visited_{profiles.used().name} {}

  std::optional<Credentials> of_role(const Profile& profile) {
    if (!has_role(profile)) return {};
    Role role{.arn = profile.setting("role_arn"),
              .session_name = profile.setting("role_session_name"),
              .external_id = profile.setting("external_id"),
              .duration_seconds = profile.setting("duration_seconds"),
              .where = named(profile)};
    const std::string source = profile.setting("source_profile");
    const std::string kind = profile.setting("credential_source");
    const auto invalid = [&](const std::string& what, const std::string& hint = {}) {
      return InvalidArgument("[s3] " + named(profile) + " " + what, hint);
    };
    if (role.arn.empty()) throw invalid("has an empty role_arn");
    if (profile.settings.contains("mfa_serial")) {
      refuse_by_name(profile, "a device of multi-factor authentication (mfa_serial)");
    }
    if (source.empty() == kind.empty()) {
      throw invalid(source.empty()
                        ? "has role_arn, but neither source_profile nor credential_source"
                        : "has both source_profile and credential_source");
    }
    const std::string& duration = role.duration_seconds;
    if (duration.find_first_not_of("0123456789") != std::string::npos || duration.size() > 6) {
      throw invalid("has a duration_seconds that is not a number of seconds");
    }
    return assume_role(
        profiles_, role,
        kind.empty() ? of_source_profile(profile, source) : of_credential_source(profile, kind));
  }

  // `own`: of the profile in use, whose web identity the environment may set.
  std::optional<Credentials> of_profile(const Profile& profile, bool own) {
    if (auto keys = of_web_identity(profile, own)) return keys;
    const auto has = [&](const char* name) { return profile.settings.contains(name); };
    if (has("sso_account_id") || has("sso_role_name")) {
      refuse_by_name(profile, "single sign-on (sso_account_id, sso_role_name)");
    }
    if (auto keys = keys_in(profile.in_credentials_file, profile, "credentials file")) return keys;
    if (has("login_session")) refuse_by_name(profile, "`aws login` (login_session)");
    if (has("credential_process")) refuse_by_name(profile, "a program (credential_process)");
    if (auto keys = keys_in(profile.in_config_file, profile, "configuration")) return keys;
    // Here botocore goes on to the keys of the machine, though the profile names others.
    for (const char* const name : {"sso_session", "sso_start_url"}) {
      if (has(name)) refuse_by_name(profile, std::string("single sign-on (") + name + ")");
    }
    for (const char* const name : {"source_profile", "credential_source"}) {
      if (has(name)) {
        throw InvalidArgument("[s3] " + named(profile) + " has " + name + ", but no role_arn");
      }
    }
    refuse_misspelled(profile);
    return {};
  }

 private:
  Credentials of_source_profile(const Profile& profile, const std::string& name) {
    if (!profiles_.has(name)) {
      throw InvalidArgument("[s3] " + named(profile) + " names the source_profile `" +
                                printable(name) + "`, which does not exist",
                            printable(suggest(name, profiles_.names())));
    }
    const Profile& source = profiles_.profile_of(name);
    // A profile may hold the keys for its own role.
    const bool visited = std::find(visited_.begin(), visited_.end(), name) != visited_.end();
    const bool itself = name == profile.name;
    if (visited && !(itself && has_half_a_pair(source))) {
      throw InvalidArgument("[s3] " + named(profile) + " names the source_profile `" +
                            printable(name) + "`: the profiles form a cycle");
    }
    visited_.push_back(name);
    std::optional<Credentials> keys =
        has_half_a_pair(source) || !has_role(source) ? of_profile(source, false) : of_role(source);
    if (keys) return std::move(*keys);
    throw DataError("[s3] " + named(source) + ", the source_profile of " + named(profile) +
                    ", has no keys");
  }

  static Credentials of_credential_source(const Profile& profile, const std::string& kind) {
    std::optional<Credentials> keys;
    if (kind == "Environment") {
      keys = keys_of_environment();
    } else if (kind == "EcsContainer") {
      keys = keys_of_container();
    } else if (kind == "Ec2InstanceMetadata") {
      keys = keys_of_instance();
    } else {
      const std::vector<std::string> kinds{"Environment", "EcsContainer", "Ec2InstanceMetadata"};
      throw InvalidArgument("[s3] " + named(profile) + " has the credential_source `" +
                                printable(kind) + "`, which does not exist",
                            suggest(kind, kinds));
    }
    if (keys) return std::move(*keys);
    throw DataError("[s3] " + named(profile) + " has the credential_source " + kind +
                    ", but there are no keys");
  }

  std::optional<Credentials> of_web_identity(const Profile& profile, bool own) {
    const auto chosen = [&](const char* in_environment, const char* in_profile) {
      const std::string value = own ? variable(in_environment) : "";
      return value.empty() ? profile.setting(in_profile) : value;
    };
    const std::string file = chosen("AWS_WEB_IDENTITY_TOKEN_FILE", "web_identity_token_file");
    if (file.empty()) return {};
    const bool by_environment = own && file == variable("AWS_WEB_IDENTITY_TOKEN_FILE");
    const Role role{.arn = chosen("AWS_ROLE_ARN", "role_arn"),
                    .session_name = chosen("AWS_ROLE_SESSION_NAME", "role_session_name"),
                    .where = by_environment ? "AWS_WEB_IDENTITY_TOKEN_FILE" : named(profile)};
    if (role.arn.empty()) {
      throw InvalidArgument(
          "[s3] " + role.where + " names the token of a web identity, but no role",
          by_environment ? "set AWS_ROLE_ARN" : "the profile needs role_arn");
    }
    return assume_role_by_token(profiles_, role, file);
  }

  // A setting that is nearly one of these. Other tools have settings of their own.
  static void refuse_misspelled(const Profile& profile) {
    static const std::vector<std::string> known{
        "aws_access_key_id",  "aws_secret_access_key", "role_arn",
        "source_profile",     "credential_source",     "web_identity_token_file",
        "credential_process", "sso_account_id",        "sso_role_name"};
    static const std::vector<std::string> others{
        "aws_session_token", "aws_security_token", "aws_account_id",          "role_session_name",
        "external_id",       "mfa_serial",         "duration_seconds",        "region",
        "sso_region",        "services",           "sso_registration_scopes", "role_name"};
    for (const auto& [name, unused] : profile.settings) {
      if (std::find(others.begin(), others.end(), name) != others.end()) continue;
      const std::string near = nearest_name(name, known);
      if (near.empty()) continue;
      const bool empty = near == name;
      throw InvalidArgument("[s3] " + named(profile) + " has no keys, but " +
                                (empty ? "an empty " : "the unknown setting ") + printable(name),
                            empty ? "" : "did you mean `" + near + "`?");
    }
  }

  const Profiles& profiles_;
  std::vector<std::string> visited_;
};

// What names an identity and would be ignored if the keys of the machine were used.
void refuse_ignored(const Profiles& profiles) {
  if (!profiles.missing_file().empty()) {
    throw InvalidArgument("[s3] " + printable(profiles.missing_file()) + ", which does not exist",
                          "correct the path, or unset the variable");
  }
  if (!variable("AWS_ROLE_ARN").empty()) {
    throw InvalidArgument("[s3] AWS_ROLE_ARN is set, but AWS_WEB_IDENTITY_TOKEN_FILE is not",
                          "set both, or write a profile with role_arn and source_profile");
  }
  for (const char* const name : {"AWS_CREDENTIAL_FILE", "BOTO_CONFIG"}) {
    const std::string file = variable(name);
    if (file.empty() || file == "/dev/null") continue;
    throw Unsupported(std::string("[s3] ") + name + " names a file of boto 2, which is not read",
                      "write the keys into ~/.aws/credentials, or unset the variable");
  }
}

Credentials found_keys() {
  if (variable("LOCKSTEP_S3_ANONYMOUS") == "1") return {};
  const Profiles profiles;  // a wrong name of a profile is an error in any case
  if (auto keys = keys_of_environment()) return std::move(*keys);
  Chain chain(profiles);
  const Profile& profile = profiles.used();
  if (auto keys = chain.of_role(profile)) return std::move(*keys);
  if (auto keys = chain.of_profile(profile, true)) return std::move(*keys);
  refuse_ignored(profiles);
  if (auto keys = keys_of_container()) return std::move(*keys);
  if (auto keys = keys_of_instance()) return std::move(*keys);
  const std::string used =
      profiles.named_by().empty() ? "a profile" : named(profile) + " (" + profiles.named_by() + ")";
  throw DataError("[s3] no keys found: neither AWS_ACCESS_KEY_ID, nor " + used +
                      ", nor a container's address, nor the role of an instance has any",
                  "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or LOCKSTEP_S3_ANONYMOUS=1 "
                  "for public data");
}

}  // namespace

struct CredentialSource::State {
  Mutex mutex;
  std::optional<Credentials> keys LOCKSTEP_GUARDED_BY(mutex);
  std::optional<TimeLimit> later LOCKSTEP_GUARDED_BY(mutex);  // after a renewal that failed
};

CredentialSource::CredentialSource() : state_(std::make_unique<State>()) {}
CredentialSource::~CredentialSource() = default;

Credentials CredentialSource::get() {
  State& s = *state_;
  const MutexLock lock(s.mutex);
  std::optional<Credentials>& keys = s.keys;
  const std::time_t now = std::time(nullptr);
  if (keys && (keys->expires == 0 || now + renew_before < keys->expires)) return *keys;
  const bool valid = keys && now < keys->expires;
  if (valid && s.later && !s.later->reached()) return *keys;
  try {
    keys = found_keys();
    s.later.reset();
  } catch (const Error&) {
    if (!valid) throw;
    s.later.emplace(between_renewals);  // the old keys still serve
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

}  // namespace lockstep::storage
