#include "lockstep/storage/requests.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/os/variable.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/storage/answers.h"
#include "lockstep/storage/credentials.h"
#include "lockstep/storage/network_wait.h"
#include "lockstep/storage/profiles.h"

namespace lockstep::storage {
namespace {

constexpr int max_corrections = 4;  // of region, clock and keys, for one request

bool is_temporary(const HttpAnswer& answer) {
  const long status = answer.status;
  return status == 0 || status == 408 || status == 429 || status == 500 || status == 502 ||
         status == 503 || status == 504 || (status == 400 && code_of(answer) == "RequestTimeout");
}

bool may_be_expired(const HttpAnswer& answer) {
  if (answer.status != 400 && answer.status != 401 && answer.status != 403) return false;
  const std::string code = code_of(answer);
  return code.empty() || code == "ExpiredToken" || code == "TokenRefreshRequired" ||
         code == "InvalidToken" || code == "InvalidAccessKeyId" || code == "RequestExpired";
}

// Seconds to wait before the next attempt: up to 5, or what the store asks for, up to 30.
double pause_after(int attempt, const std::vector<HttpAnswer>& answers,
                   const std::vector<size_t>& again) {
  thread_local std::minstd_rand random{std::random_device{}()};
  const double most = std::min(5.0, 0.1 * std::pow(2.0, std::min(attempt, 10)));
  double pause = most * std::uniform_real_distribution<double>(0.5, 1.0)(random);
  for (const size_t i : again) {
    const double asked = std::atof(answers[i].header("retry-after").c_str());
    if (asked > 0) pause = std::max(pause, std::min(asked, 30.0));
  }
  return pause;
}

// Waits, but not longer than a stop request permits. Returns false if there is no time left.
bool pause_for(double seconds, const AfterStop& after_stop) {
  constexpr double look = 0.05;
  for (const TimeLimit end(seconds); !end.reached();) {
    if (after_stop.out_of_time()) return false;
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(look, end.left())));
  }
  return !after_stop.out_of_time();
}

}  // namespace

struct Requests::State {
  std::string scheme = "https", host;  // host: "" for AWS
  std::string region;
  bool virtual_style = true, requester_pays = false;
  double patience = 60;
  CredentialSource credentials;
  std::atomic<int64_t> clock_shift = 0;  // seconds to add to the local clock

  Mutex mutex;
  std::map<std::string, std::string> regions LOCKSTEP_GUARDED_BY(mutex);  // by bucket

  std::string region_of(const std::string& bucket) {
    const MutexLock lock(mutex);
    const auto found = regions.find(bucket);
    return found == regions.end() ? region : found->second;
  }

  HttpRequest prepared(const Call& call, const Credentials& keys) {
    const std::string own_region = region_of(call.bucket);
    const bool in_host = virtual_style && call.bucket.find('.') == std::string::npos;
    std::string full_host = host.empty() ? aws_endpoint("s3", own_region).host : host;
    if (in_host) full_host = call.bucket + "." + full_host;
    SignedRequest request{.method = call.method,
                          .host = full_host,
                          .path = (in_host ? "/" : "/" + call.bucket + "/") + call.key,
                          .query = call.query,
                          .headers = call.headers,
                          .payload_digest = sha256(call.body)};
    if (requester_pays) request.headers.emplace_back("x-amz-request-payer", "requester");
    HttpRequest http{.method = call.method,
                     .url = scheme + "://" + full_host + percent_encoded(request.path, true),
                     .headers = request.headers,
                     .body = call.body,
                     .most_bytes = call.most_bytes};
    const std::string query = encoded_query(call.query);
    if (!query.empty()) http.url += "?" + query;
    http.headers.emplace_back("host", full_host);
    if (!keys.access_key.empty()) {
      const Pairs more = sign(request, keys, own_region, "s3", std::time(nullptr) + clock_shift);
      http.headers.insert(http.headers.end(), more.begin(), more.end());
    }
    return http;
  }

  // Corrects what the answer shows to be wrong here. Returns whether something was.
  bool correct(const Call& call, const HttpAnswer& answer, const Credentials& keys) {
    if (answer.status < 300 || answer.status == 404 || answer.status == 412) return false;
    std::string told = answer.header("x-amz-bucket-region");
    if (told.empty()) told = element(answer.body, "Region");
    if (is_region(told) && told != region_of(call.bucket)) {
      const MutexLock lock(mutex);
      regions[call.bucket] = told;
      return true;
    }
    if (answer.status == 403) {
      std::tm parts{};
      const std::string date = answer.header("date");
      if (strptime(date.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts) != nullptr) {
        const int64_t shift = timegm(&parts) - std::time(nullptr);
        if (std::abs(shift - clock_shift) > 240) {
          clock_shift = shift;
          return true;
        }
      }
    }
    if (may_be_expired(answer) && !keys.access_key.empty()) {
      credentials.renew(keys);
      const Credentials now = credentials.get();
      return now.access_key != keys.access_key || now.session_token != keys.session_token ||
             now.secret_key != keys.secret_key;
    }
    return false;
  }
};

Requests::Requests() : state_(std::make_unique<State>()) {
  State& s = *state_;
  const Profiles profiles;
  s.region = profiles.region();
  if (s.region.empty()) s.region = "us-east-1";
  if (!is_region(s.region)) throw InvalidArgument("[s3] AWS_REGION is not a name of a region");
  std::string from;
  const std::string url = profiles.endpoint("s3", from);
  if (!url.empty()) {
    const Endpoint endpoint = parsed_endpoint(url, from);
    s.scheme = endpoint.scheme;
    s.host = endpoint.host;
    s.virtual_style = false;
  }
  const std::string style = variable("LOCKSTEP_S3_ADDRESSING");
  if (!style.empty() && style != "path" && style != "virtual") {
    throw InvalidArgument("[s3] LOCKSTEP_S3_ADDRESSING is `" + style +
                          "`, but must be path or virtual");
  }
  if (!style.empty()) s.virtual_style = style == "virtual";
  s.requester_pays = variable("LOCKSTEP_S3_REQUESTER_PAYS") == "1";
  const std::string patience = variable("LOCKSTEP_S3_RETRY_SECONDS");
  if (!patience.empty()) {
    char* end = nullptr;
    s.patience = std::strtod(patience.c_str(), &end);
    if (*end != '\0' || !(s.patience >= 0 && s.patience <= 86400)) {
      throw InvalidArgument("[s3] LOCKSTEP_S3_RETRY_SECONDS is `" + patience +
                            "`, but must be between 0 and 86400");
    }
  }
}
Requests::~Requests() = default;

std::string Requests::identity() const {
  return state_->host.empty() ? "AWS" : state_->scheme + "://" + state_->host;
}

HttpAnswer Requests::perform(const Call& call) {
  return std::move(perform(std::vector<Call>{call})[0]);
}

std::vector<HttpAnswer> Requests::perform(const std::vector<Call>& calls) {
  std::vector<HttpAnswer> answers(calls.size());
  std::vector<int> corrections(calls.size(), 0);
  std::vector<size_t> open(calls.size());
  for (size_t i = 0; i < open.size(); ++i) open[i] = i;
  TimeLimit limit(state_->patience);
  const AfterStop after_stop;
  for (int attempt = 0; !open.empty(); ++attempt) {
    const Credentials keys = state_->credentials.get();
    std::vector<HttpRequest> requests;
    for (const size_t i : open) requests.push_back(state_->prepared(calls[i], keys));
    std::vector<HttpAnswer> received = send_all(requests, after_stop);
    std::vector<size_t> again;
    bool wait = false, progress = false;
    for (size_t k = 0; k < open.size(); ++k) {
      const size_t i = open[k];
      HttpAnswer& answer = answers[i] = std::move(received[k]);
      const std::string damage = calls[i].damage ? calls[i].damage(answer) : "";
      if (damage == changed_object) {  // trying again would not change it back
        answer = {};
        answer.status = 412;
      } else if (!damage.empty()) {
        answer = {};
        answer.error = damage;
      }
      if (is_temporary(answer)) {
        again.push_back(i);
        wait = true;
      } else if (corrections[i] < max_corrections && state_->correct(calls[i], answer, keys)) {
        ++corrections[i];
        again.push_back(i);
      } else {
        progress = true;
      }
    }
    if (attempt == 0 || progress) limit = TimeLimit(state_->patience);  // the store works
    open = std::move(again);
    if (open.empty() || !wait) continue;
    const double pause = pause_after(attempt, answers, open);
    if (pause >= limit.left()) break;
    if (!pause_for(pause, after_stop)) {
      for (const size_t i : open) {
        answers[i] = {};
        answers[i].error = stopped_request;
      }
      break;
    }
  }
  return answers;
}

}  // namespace lockstep::storage
