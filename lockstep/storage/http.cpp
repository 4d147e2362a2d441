#include "lockstep/storage/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>
#include <new>

#include "lockstep/base/error.h"
#include "lockstep/base/os/broken_pipe.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/storage/network_wait.h"

namespace lockstep::storage {
namespace {

constexpr int look_milliseconds = 200;  // between two looks for a stop request
constexpr size_t most_header_bytes = size_t{64} << 10;

// A multi handle with its open connections.
struct Connections {
  Connections() : multi(curl_multi_init()) {
    if (multi == nullptr) throw InternalError("[cloud] libcurl cannot start");
    curl_multi_setopt(multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, long{max_connections});
  }
  ~Connections() { curl_multi_cleanup(multi); }
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  CURLM* multi;
};

// Handles that no call uses at present.
class IdleConnections {
 public:
  std::unique_ptr<Connections> take() {
    const MutexLock lock(mutex_);
    if (idle_.empty()) return std::make_unique<Connections>();
    std::unique_ptr<Connections> last = std::move(idle_.back());
    idle_.pop_back();
    return last;
  }
  void give(std::unique_ptr<Connections> connections) {
    const MutexLock lock(mutex_);
    idle_.push_back(std::move(connections));
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Connections>> idle_ LOCKSTEP_GUARDED_BY(mutex_);
};

IdleConnections& idle_connections() {
  // Never destroyed: threads may still read while the program ends.
  static IdleConnections* const idle = [] {
    curl_global_init(CURL_GLOBAL_DEFAULT);
    return new IdleConnections;
  }();
  return *idle;
}

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// libcurl's own limit of the headers: CURLE_TOO_LARGE from 8.6 on, which older headers do not know.
bool is_header_limit(CURLcode code) {
  constexpr int too_large = 100;
  return code == CURLE_OUT_OF_MEMORY || static_cast<int>(code) == too_large;
}

// One request under way.
class Transfer {
 public:
  Transfer(const HttpRequest& request, HttpAnswer& answer) : request_(request), answer_(answer) {
    easy_ = curl_easy_init();
    if (easy_ == nullptr) throw InternalError("[cloud] libcurl cannot make a request");
    for (const auto& [name, value] : request.headers) {
      // A header without a value needs a semicolon to be sent at all.
      add_line(value.empty() ? name + ";" : name + ": " + value);
      has_type_ = has_type_ || name == "content-type";
    }
    if (!has_type_) add_line("Content-Type:");  // libcurl would send that of a web form
    add_line("Expect:");
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_PATH_AS_IS, 1L);  // keys may contain ".."
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT_MS, 10000L);
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, 20L);
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.seconds * 1000));
    set(CURLOPT_HTTPHEADER, lines_);
    set(CURLOPT_WRITEFUNCTION, add_body);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_HEADERFUNCTION, add_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);  // spreads connections over a store's addresses
    if (!request.use_proxy) set(CURLOPT_NOPROXY, "*");
    if (request.method == "HEAD") {
      set(CURLOPT_NOBODY, 1L);
    } else if (request.method == "PUT" || request.method == "POST") {
      set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
      set(CURLOPT_POSTFIELDS, request.body.data());  // not copied; the request outlives this
      set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    } else if (request.method != "GET") {
      set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    }
  }
  ~Transfer() {
    curl_easy_cleanup(easy_);
    curl_slist_free_all(lines_);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  CURL* easy() const { return easy_; }

  void give_up() {
    answer_ = {};
    answer_.error = stopped_request;
  }

  void finish(CURLcode code) {
    if (code == CURLE_OK) {
      curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &answer_.status);
      if (answer_.status == 0) answer_.error = "the answer has no status";
      return;
    }
    if (is_header_limit(code) && !has_body_) too_many_headers();
    answer_ = {};
    answer_.error = problem_.empty() ? curl_easy_strerror(code) : problem_;
  }

 private:
  template <class Value>
  void set(CURLoption option, Value value) {
    curl_easy_setopt(easy_, option, value);
  }
  void add_line(const std::string& line) {
    curl_slist* const longer = curl_slist_append(lines_, line.c_str());
    if (longer == nullptr) throw InternalError("[cloud] libcurl cannot hold a header");
    lines_ = longer;
  }

  void too_many_headers() {
    problem_ =
        "the answer has more than " + std::to_string(most_header_bytes >> 10) + " KiB of headers";
  }

  // Return another number than `size` to end the transfer.
  static size_t add_body(char* data, size_t, size_t size, void* target) {
    Transfer& t = *static_cast<Transfer*>(target);
    t.has_body_ = true;
    long status = 0;
    curl_easy_getinfo(t.easy_, CURLINFO_RESPONSE_CODE, &status);
    const bool success = status >= 200 && status < 300;
    const uint64_t asked = t.request_.most_bytes;
    const uint64_t most = success ? asked : std::max(asked, usual_answer);
    if (size > most - std::min<uint64_t>(most, t.answer_.body.size())) {
      t.problem_ =
          "the store sent more than the " + std::to_string(most) + " bytes that were requested";
      return 0;
    }
    try {
      t.answer_.body.append(data, size);
    } catch (const std::bad_alloc&) {  // must not pass through libcurl
      t.problem_ = "there is not enough memory for the answer";
      return 0;
    }
    return size;
  }
  static size_t add_header(char* data, size_t, size_t size, void* target) {
    Transfer& t = *static_cast<Transfer*>(target);
    t.header_bytes_ += size;
    if (t.header_bytes_ > most_header_bytes) {
      t.too_many_headers();
      return 0;
    }
    const std::string_view line(data, size);
    HttpAnswer& answer = t.answer_;
    if (line.starts_with("HTTP/")) answer.headers.clear();  // after "100 Continue"
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return size;
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t'))
      value.remove_prefix(1);
    while (!value.empty() && value.back() <= ' ') value.remove_suffix(1);
    answer.headers.emplace_back(lower_case(std::string(line.substr(0, colon))), value);
    return size;
  }

  const HttpRequest& request_;
  HttpAnswer& answer_;
  CURL* easy_ = nullptr;
  curl_slist* lines_ = nullptr;
  std::string problem_;  // why this ended the transfer
  size_t header_bytes_ = 0;
  bool has_body_ = false, has_type_ = false;
};

}  // namespace

std::string HttpAnswer::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

std::vector<HttpAnswer> send_all(const std::vector<HttpRequest>& requests,
                                 const AfterStop& after_stop) {
  const NoBrokenPipe no_signal;  // OpenSSL does not suppress it
  std::vector<HttpAnswer> answers(requests.size());
  std::vector<std::unique_ptr<Transfer>> running;
  std::unique_ptr<Connections> connections = idle_connections().take();
  CURLM* const multi = connections->multi;
  size_t next = 0;
  while (next < requests.size() || !running.empty()) {
    while (next < requests.size() && running.size() < size_t{max_connections}) {
      running.push_back(std::make_unique<Transfer>(requests[next], answers[next]));
      curl_multi_add_handle(multi, running.back()->easy());
      ++next;
    }
    int active = 0, left = 0;
    CURLMcode code = curl_multi_perform(multi, &active);
    if (code == CURLM_OK && active > 0)
      code = curl_multi_poll(multi, nullptr, 0, look_milliseconds, nullptr);
    if (code != CURLM_OK) {
      for (const auto& transfer : running) curl_multi_remove_handle(multi, transfer->easy());
      throw InternalError("[cloud] libcurl: " + std::string(curl_multi_strerror(code)));
    }
    while (const CURLMsg* const message = curl_multi_info_read(multi, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const auto done = std::find_if(running.begin(), running.end(), [&](const auto& transfer) {
        return transfer->easy() == message->easy_handle;
      });
      const CURLcode result = message->data.result;
      curl_multi_remove_handle(multi, message->easy_handle);
      (*done)->finish(result);
      running.erase(done);
    }
    if (!running.empty() && after_stop.out_of_time()) {
      for (const auto& transfer : running) {
        curl_multi_remove_handle(multi, transfer->easy());
        transfer->give_up();
      }
      running.clear();
      for (; next < requests.size(); ++next) answers[next].error = stopped_request;
    }
  }
  idle_connections().give(std::move(connections));
  return answers;
}

HttpAnswer send(const HttpRequest& request) {
  const AfterStop after_stop;
  return std::move(send_all({request}, after_stop)[0]);
}

}  // namespace lockstep::storage
