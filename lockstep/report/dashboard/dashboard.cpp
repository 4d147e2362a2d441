#include "lockstep/report/dashboard/dashboard.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/text.h"
#include "lockstep/report/dashboard/machine_use.h"
#include "lockstep/report/dashboard/run_list.h"
#include "lockstep/report/dashboard/web_server.h"
#include "lockstep/report/pages/page_files.h"
#include "lockstep/report/pages/run_log.h"
#include "lockstep/report/pages/run_page.h"
#include "lockstep/report/pages/sweep_page.h"
#include "lockstep/runs/folders/stop_request.h"
#include "lockstep/runs/sweeps/driver.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr int kIntervalMs = 500;
constexpr size_t kMostWatched = 16;
constexpr int64_t kMostAtOnce = int64_t{4} << 20;  // bytes of a log in one event
// With this many bytes of events, the remaining logs wait for the next interval.
constexpr size_t kMostEventBytes = size_t{8} << 20;

constexpr const char* kPage = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Lockstep dashboard</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/file/dygraph.min.css">
<link rel="stylesheet" href="/file/style.css">
</head>
<body>
<noscript>The dashboard needs JavaScript.</noscript>
<script src="/file/dygraph.min.js"></script>
<script src="/file/base.js"></script>
<script src="/file/curves.js"></script>
<script src="/file/log.js"></script>
<script src="/file/curve_group.js"></script>
<script src="/file/charts.js"></script>
<script src="/file/report.js"></script>
<script src="/file/sweep.js"></script>
<script src="/file/run_table.js"></script>
<script src="/file/dashboard.js"></script>
</body>
</html>
)";

std::string event_text(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string event(const char* name, const ordered_json& data) {
  return std::string("event: ") + name + "\ndata: " + event_text(data) + "\n\n";
}

// What one browser follows.
struct Watch {
  std::string id, file;
  RunLog log;
};

class Source {
 public:
  // `owner` keeps the list and the machine.
  Source(std::shared_ptr<const void> owner, const RunList& list, const MachineUse& machine,
         std::vector<Watch> watched, int64_t since)
      : owner_(std::move(owner)),
        list_(list),
        machine_(machine),
        watched_(std::move(watched)),
        version_(since) {}

  std::string next() {
    std::string text;
    if (const int64_t now = list_.version(); now != version_) {
      text += event("runs", {{"version", now}, {"runs", list_.summaries(version_)}});
      version_ = now;
    }
    for (Watch& w : watched_) {
      if (text.size() > kMostEventBytes) break;
      w.log.follow(w.file, kMostAtOnce);
      if (w.log.restarted()) {
        text += event("restart", {{"id", w.id}});
        w.log.clear();
      } else if (w.log.added() > 0) {
        text += event("log", {{"id", w.id}, {"log", w.log.columns()}});
        w.log.clear();
      }
    }
    if (intervals_++ % 4 == 0) text += event("machine", machine_.json());
    return text;
  }

 private:
  const std::shared_ptr<const void> owner_;
  const RunList& list_;
  const MachineUse& machine_;
  std::vector<Watch> watched_;
  int64_t version_;
  int64_t intervals_ = 0;
};

int64_t whole_number(const std::string& text) {
  if (text.empty() || text.size() > 18 ||
      text.find_first_not_of("0123456789") != std::string::npos) {
    return 0;
  }
  return std::stoll(text);
}

// Of a list with commas.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

// What requests are answered from. The server's threads share it, because one that waits for a disk
// may outlive the dashboard.
struct Dashboard::State : std::enable_shared_from_this<Dashboard::State> {
  explicit State(const DashboardOptions& options) : list(options.folders, options.store) {}

  RunList list;
  MachineUse machine;

  void refresh() {
    list.refresh();
    machine.refresh();
  }
  std::string folder_of(const WebRequest& request) const {
    std::string folder = list.folder(request.parameter("id"));
    if (folder.empty()) throw InvalidArgument("[dashboard] there is no such run");
    return folder;
  }
  WebResponse answer(const WebRequest& request);
  WebResponse post(const WebRequest& request);
  WebResponse events(const WebRequest& request);
};

WebResponse Dashboard::State::events(const WebRequest& request) {
  std::vector<Watch> watched;
  // "id:position:mark,id:position:mark"
  for (const std::string& one : parts_of(request.parameter("watch"))) {
    if (watched.size() >= kMostWatched) break;
    const size_t colon = std::min(one.find(':'), one.size());
    const std::string id = one.substr(0, colon), folder = list.folder(id);
    if (folder.empty()) continue;
    watched.push_back({id, join_path(folder, "log.jsonl"), {}});
    const std::string rest = one.substr(std::min(colon + 1, one.size()));
    const size_t second = std::min(rest.find(':'), rest.size());
    watched.back().log.skip_to(whole_number(rest.substr(0, second)),
                               rest.substr(std::min(second + 1, rest.size())));
  }
  const auto source =
      std::make_shared<Source>(shared_from_this(), list, machine, std::move(watched),
                               whole_number(request.parameter("since")));
  return {.events = [source] { return source->next(); }};
}

WebResponse Dashboard::State::post(const WebRequest& request) {
  if (request.path == "/api/stop") {
    request_stop(local_files(), folder_of(request));
    return {.body = "{}"};
  }
  if (request.path == "/api/stop-trial") {
    const int64_t trial = whole_number(request.parameter("trial"));
    const std::string folder = folder_of(request);
    if (trial < 1 || !holds_sweep(folder)) {
      throw InvalidArgument("[dashboard] there is no such trial");
    }
    request_trial_stop(folder, trial);
    return {.body = "{}"};
  }
  if (request.path == "/api/notes") {
    const auto json = parse_json_or_discard<nlohmann::json>(request.body);
    if (!json.is_object() || !json.contains("tags") || !json["tags"].is_array() ||
        !json.contains("note") || !json["note"].is_string()) {
      throw InvalidArgument("[dashboard] notes need \"tags\" and \"note\"");
    }
    std::vector<std::string> tags;
    for (const auto& tag : json["tags"]) {
      if (!tag.is_string()) throw InvalidArgument("[dashboard] tags are texts");
      tags.push_back(tag.get<std::string>());
    }
    list.annotate(request.parameter("id"), tags, json["note"].get<std::string>());
    list.refresh();
    return {.body = "{}"};
  }
  return {.status = 404, .body = "{}"};
}

WebResponse Dashboard::State::answer(const WebRequest& request) {
  if (request.method == "POST") return post(request);
  const std::string& path = request.path;
  if (path == "/") return {.type = "text/html", .body = kPage};
  constexpr std::string_view files = "/file/";
  if (path.starts_with(files)) {
    const std::string name = path.substr(files.size());
    return {.type = name.ends_with(".css") ? "text/css" : "text/javascript",
            .body = std::string(page_file(name))};
  }
  if (path == "/api/runs") {
    refresh();
    const int64_t version = list.version();
    return {.body = event_text(
                {{"version", version}, {"runs", list.summaries()}, {"sweeps", list.sweeps()}})};
  }
  if (path == "/api/filter") {
    // A filter that is being written is wrong most of the time: no failure of the request.
    try {
      return {.body = event_text({{"ids", list.fitting(request.parameter("text"))}})};
    } catch (const InvalidArgument& e) {
      return {.body = event_text({{"error", e.what()}, {"hint", e.hint()}})};
    }
  }
  if (path == "/api/differences") {
    return {.body = event_text(list.differences(parts_of(request.parameter("ids"))))};
  }
  if (path == "/api/sweep") return {.body = event_text(sweep_data(folder_of(request)))};
  if (path == "/api/run") {
    refresh();
    return {.body = event_text(run_data(folder_of(request)))};
  }
  if (path == "/api/log") {
    RunLog log;
    log.follow(join_path(folder_of(request), "log.jsonl"), std::numeric_limits<int64_t>::max());
    return {.body = event_text(log.columns())};
  }
  if (path == "/report") {
    const std::string folder = folder_of(request);
    return {.type = "text/html",
            .body = report_page(holds_sweep(folder) ? sweep_data(folder) : run_data(folder)),
            .own_policy = true};
  }
  if (path == "/events") return events(request);
  return {.status = 404, .body = "{}"};
}

Dashboard::Dashboard(DashboardOptions options) {
  const auto state = std::make_shared<State>(options);
  server_ = std::make_unique<WebServer>(
      options.port, [state](const WebRequest& request) { return state->answer(request); },
      kIntervalMs, [state] { state->refresh(); });
}
Dashboard::~Dashboard() = default;

std::string Dashboard::address() const { return server_->address(); }

}  // namespace lockstep
