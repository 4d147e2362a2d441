#include "lockstep/storage/assumed_role.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/text.h"
#include "lockstep/storage/answers.h"
#include "lockstep/storage/http.h"
#include "lockstep/storage/network_wait.h"

namespace lockstep::storage {
namespace {

constexpr int sts_attempts = 4;
constexpr int64_t wrong_clock = 240;  // seconds

struct TokenService {
  Endpoint endpoint;
  std::string region;
};

TokenService token_service(const Profiles& profiles) {
  TokenService service;
  service.region = profiles.region();
  std::string from;
  const std::string url = profiles.endpoint("sts", from);
  const bool anywhere = service.region.empty();
  if (anywhere) service.region = "us-east-1";
  if (!is_region(service.region))
    throw InvalidArgument("[s3] AWS_REGION is not a name of a region");
  if (!url.empty()) {
    service.endpoint = parsed_endpoint(url, from);
  } else {
    service.endpoint =
        anywhere ? Endpoint{"https", "sts.amazonaws.com"} : aws_endpoint("sts", service.region);
  }
  return service;
}

// Whether another attempt may succeed.
bool is_worth_repeating(const HttpAnswer& answer) {
  const std::string code = code_of(answer);
  return answer.status == 0 || answer.status == 429 || answer.status >= 500 ||
         code == "Throttling" || code == "ThrottlingException" || code == "RequestLimitExceeded" ||
         code == "IDPCommunicationError";
}

// How far the clock of STS is ahead of the local one; 0 if that is not the problem.
int64_t clock_difference(const HttpAnswer& answer) {
  std::tm parts{};
  const std::string date = answer.header("date");
  if (answer.status != 400 && answer.status != 403) return 0;
  if (strptime(date.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts) == nullptr) return 0;
  const int64_t shift = timegm(&parts) - std::time(nullptr);
  return std::abs(shift) > wrong_clock ? shift : 0;
}

// Without `source` the request is not signed.
Credentials asked_for(const Profiles& profiles, const Role& role, Pairs fields,
                      const Credentials* source) {
  fields.emplace_back("Version", "2011-06-15");
  fields.emplace_back("RoleArn", role.arn);
  fields.emplace_back("RoleSessionName", role.session_name.empty()
                                             ? "lockstep-" + std::to_string(std::time(nullptr))
                                             : role.session_name);
  if (!role.external_id.empty()) fields.emplace_back("ExternalId", role.external_id);
  if (!role.duration_seconds.empty()) fields.emplace_back("DurationSeconds", role.duration_seconds);
  const TokenService service = token_service(profiles);
  const std::string problem = "[s3] the role " + printable(role.arn) + " (" +
                              printable(role.where) + ") cannot be assumed at " +
                              service.endpoint.url() + ": ";
  HttpAnswer answer;
  int64_t shift = 0;
  for (int attempt = 0; attempt < sts_attempts; ++attempt) {
    if (retries_stopped()) throw Cancelled(problem + stopped_request);
    if (attempt > 0) std::this_thread::sleep_for(std::chrono::milliseconds(100 << attempt));
    HttpRequest request{.method = "POST",
                        .url = service.endpoint.url() + "/",
                        .headers = {{"content-type", "application/x-www-form-urlencoded"}},
                        .body = encoded_query(fields),
                        .seconds = 10};
    if (source != nullptr) {
      const Pairs more = sign({.method = "POST",
                               .host = service.endpoint.host,
                               .path = "/",
                               .headers = request.headers,
                               .payload_digest = sha256(request.body)},
                              *source, service.region, "sts", std::time(nullptr) + shift);
      request.headers.insert(request.headers.end(), more.begin(), more.end());
    }
    request.headers.emplace_back("host", service.endpoint.host);
    answer = send(request);
    if (answer.status == 200) break;
    if (const int64_t difference = clock_difference(answer); difference != 0 && shift == 0) {
      shift = difference;
    } else if (!is_worth_repeating(answer)) {
      break;
    }
  }
  if (answer.status == 0 && answer.error == stopped_request) {
    throw Cancelled(problem + stopped_request);
  }
  if (answer.status != 200) {
    throw DataError(problem + reason_of(answer),
                    "check the role, its trust policy and the keys that ask for it");
  }
  const Credentials keys{
      element(answer.body, "AccessKeyId"), element(answer.body, "SecretAccessKey"),
      element(answer.body, "SessionToken"), parsed_time(element(answer.body, "Expiration"))};
  if (keys.access_key.empty() || keys.secret_key.empty() || keys.session_token.empty() ||
      keys.expires == 0) {
    throw DataError(problem + "the answer has no keys, or does not say when they expire");
  }
  return keys;
}

}  // namespace

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

Credentials assume_role(const Profiles& profiles, const Role& role, const Credentials& source) {
  return asked_for(profiles, role, {{"Action", "AssumeRole"}}, &source);
}

Credentials assume_role_by_token(const Profiles& profiles, const Role& role,
                                 const std::string& token_file) {
  std::string token = read_text(local_files(), token_file);
  token.erase(token.find_last_not_of(" \t\r\n") + 1);
  if (token.empty()) {
    throw DataError("[s3] " + printable(token_file) + ", the token of a web identity, is empty");
  }
  return asked_for(profiles, role,
                   {{"Action", "AssumeRoleWithWebIdentity"}, {"WebIdentityToken", token}}, nullptr);
}

}  // namespace lockstep::storage
