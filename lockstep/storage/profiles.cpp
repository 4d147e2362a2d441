#include "lockstep/storage/profiles.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/variable.h"
#include "lockstep/base/suggest.h"
#include "lockstep/base/text.h"

namespace lockstep::storage {
namespace {

constexpr const char* blanks = " \t\r\n\f\v";

std::string without_blanks(const std::string& text) {
  const size_t first = text.find_first_not_of(blanks);
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::string in_lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

using Sections = std::map<std::string, ProfileSettings>;

// Sections and settings as Python's configparser reads them, because botocore uses it: a setting
// may begin anywhere in its line, a line that is indented more deeply continues the setting before
// it, and [DEFAULT] belongs to all sections. Messages contain no values, which may be keys.
class SectionReader {
 public:
  explicit SectionReader(std::string path) : path_(std::move(path)) {}

  Sections read(std::string text) {
    if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      ++line_;
      const std::string value = without_blanks(line);
      if (value.empty()) {
        if (setting_ != nullptr) *setting_ += '\n';
      } else if (value[0] != '#' && value[0] != ';') {
        take(value, line.find_first_not_of(blanks));
      }
    }
    const auto defaults = sections_.find("DEFAULT");
    if (defaults != sections_.end()) {
      for (auto& [unused, settings] : sections_) {
        settings.insert(defaults->second.begin(), defaults->second.end());
      }
      sections_.erase("DEFAULT");
    }
    for (auto& [unused, settings] : sections_) {
      for (auto& [name, value] : settings) {
        value.erase(value.find_last_not_of(blanks) + 1);
      }
    }
    return std::move(sections_);
  }

 private:
  [[noreturn]] void damaged(const std::string& what) const {
    throw DataError("[s3] " + printable(path_) + ", line " + std::to_string(line_) + ": " + what);
  }

  void take(const std::string& value, size_t indent) {
    if (setting_ != nullptr && indent > indent_) {
      *setting_ += '\n' + value;
      return;
    }
    indent_ = indent;
    const size_t close = value.rfind(']');
    if (value[0] == '[' && close != std::string::npos && close > 1) {
      const std::string title = value.substr(1, close - 1);
      const bool fresh = sections_.try_emplace(title).second;
      if (!fresh && title != "DEFAULT") {
        damaged("a second section [" + printable(title) + "]");
      }
      section_ = &sections_.at(title);
      setting_ = nullptr;
      return;
    }
    if (section_ == nullptr) damaged("a setting stands before the first section");
    const size_t sign = value.find_first_of("=:");
    if (sign == std::string::npos || sign == 0) damaged("neither a section nor NAME = VALUE");
    const std::string name = in_lower_case(without_blanks(value.substr(0, sign)));
    const auto [at, fresh] = section_->try_emplace(name, without_blanks(value.substr(sign + 1)));
    if (!fresh) damaged("a second value for " + printable(name) + " in its section");
    setting_ = &at->second;
  }

  const std::string path_;
  int line_ = 0;
  Sections sections_;
  ProfileSettings* section_ = nullptr;
  std::string* setting_ = nullptr;
  size_t indent_ = 0;
};

// Words as a shell splits them, without expansions.
std::vector<std::string> shell_words_of(const std::string& text) {
  std::vector<std::string> words;
  bool inside = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && (c == ' ' || c == '\t')) {
      inside = false;
      continue;
    }
    if (!inside) words.emplace_back();
    inside = true;
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      words.back() += text[++i];
    } else {
      words.back() += c;
    }
  }
  return words;
}

// The settings of an indented block below a setting.
ProfileSettings nested_settings(const std::string& text) {
  ProfileSettings found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    found[without_blanks(line.substr(0, equals))] = without_blanks(line.substr(equals + 1));
  }
  return found;
}

// The path in a variable, else below the home; `named` tells which.
std::string path_of_file(const char* in_variable, const char* below_home, bool& named) {
  std::string path = variable(in_variable);
  const std::string home = variable("HOME");
  named = !path.empty();
  if (!named) return home.empty() ? "" : join_path(home, below_home);
  if (path.starts_with("~/") && !home.empty()) path = join_path(home, path.substr(2));
  return path;
}

bool is_true(const std::string& text) { return in_lower_case(text) == "true"; }

}  // namespace

std::string Profile::setting(const std::string& setting) const {
  const auto found = settings.find(setting);
  if (found == settings.end()) return {};
  if (found->second.find('\n') != std::string::npos) {
    throw DataError("[s3] the profile `" + printable(name) + "`: the value of " + setting +
                        " has several lines",
                    "lines that are indented more deeply than a setting continue it");
  }
  return found->second;
}

Profiles::Profiles() {
  std::vector<std::string> misplaced;  // sections of the configuration that are not profiles
  const auto sections_of = [&](const char* in_variable, const char* below_home) -> Sections {
    bool named = false;
    const std::string path = path_of_file(in_variable, below_home, named);
    if (path.empty()) return {};
    if (!local_files().exists(path)) {
      if (named) missing_file_ = std::string(in_variable) + " names " + path;
      return {};
    }
    // A device, such as /dev/null, is an empty file.
    if (path == "/dev/null") return {};
    return SectionReader(path).read(read_text(local_files(), path));
  };
  for (auto& [title, settings] : sections_of("AWS_CONFIG_FILE", ".aws/config")) {
    const std::vector<std::string> words = shell_words_of(title);
    const bool pair = words.size() == 2;
    if (title == "default" || (pair && words[0] == "profile")) {
      const std::string& name = pair ? words[1] : title;
      const auto [profile, fresh] = profiles_.try_emplace(name);
      if (!fresh) {
        throw DataError("[s3] the configuration of AWS has two sections for the profile `" +
                        printable(name) + "`");
      }
      profile->second.in_config_file = profile->second.settings = settings;
    } else if (pair && words[0] == "services") {
      services_[words[1]] = settings;
    } else {
      misplaced.push_back(title);
    }
  }
  for (auto& [title, settings] : sections_of("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")) {
    Profile& profile = profiles_[title];
    profile.in_credentials_file = settings;
    for (auto& [name, value] : settings) profile.settings[name] = value;
  }
  for (auto& [name, profile] : profiles_) profile.name = name;
  for (const char* const name : {"AWS_DEFAULT_PROFILE", "AWS_PROFILE"}) {
    if (!named_by_.empty() || variable(name).empty()) continue;
    named_by_ = name;
    used_ = variable(name);
  }
  if (named_by_.empty() || has(used_)) return;
  std::string hint = profiles_.empty()
                         ? "there is no profile in ~/.aws/config and ~/.aws/credentials"
                         : suggest(used_, names());
  if (!missing_file_.empty()) hint = missing_file_ + ", which does not exist";
  if (std::find(misplaced.begin(), misplaced.end(), used_) != misplaced.end()) {
    hint = "in the configuration its section must be [profile " + used_ + "]";
  }
  throw InvalidArgument(
      "[s3] " + named_by_ + " names the profile `" + printable(used_) + "`, which does not exist",
      printable(hint));
}

const Profile& Profiles::profile_of(const std::string& name) const {
  static const Profile* const none = [] {
    auto* const profile = new Profile;
    profile->name = "default";
    return profile;
  }();
  const auto found = profiles_.find(name);
  return found == profiles_.end() ? *none : found->second;
}

std::vector<std::string> Profiles::names() const {
  std::vector<std::string> all;
  for (const auto& [name, unused] : profiles_) all.push_back(name);
  return all;
}

std::string Profiles::region() const {
  for (const char* const name : {"AWS_REGION", "AWS_DEFAULT_REGION"}) {
    std::string value = variable(name);
    if (!value.empty()) return value;
  }
  return used().setting("region");
}

std::string Profiles::endpoint(const std::string& service, std::string& from) const {
  const Profile& profile = used();
  if (is_true(variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")) ||
      is_true(profile.setting("ignore_configured_endpoint_urls"))) {
    return {};
  }
  std::string upper = service;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const std::string& name : {"AWS_ENDPOINT_URL_" + upper, std::string("AWS_ENDPOINT_URL")}) {
    std::string value = variable(name.c_str());
    from = name;
    if (!value.empty()) return value;
  }
  from = "endpoint_url of the profile `" + printable(profile.name) + "`";
  const std::string services = profile.setting("services");
  if (!services.empty()) {
    const auto found = services_.find(services);
    if (found == services_.end()) {
      throw InvalidArgument("[s3] the profile `" + printable(profile.name) +
                            "` names the services `" + printable(services) +
                            "`, but there is no section [services " + printable(services) + "]");
    }
    const auto own = found->second.find(service);
    if (own != found->second.end()) {
      std::string value = nested_settings(own->second)["endpoint_url"];
      if (!value.empty()) return value;
    }
  }
  return profile.setting("endpoint_url");
}

bool is_region(const std::string& text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return std::islower(static_cast<unsigned char>(c)) ||
           std::isdigit(static_cast<unsigned char>(c)) || c == '-';
  });
}

Endpoint parsed_endpoint(const std::string& url, const std::string& from) {
  const size_t mark = url.find("://");
  Endpoint endpoint;
  endpoint.scheme = mark == std::string::npos ? "" : url.substr(0, mark);
  endpoint.host = mark == std::string::npos ? "" : url.substr(mark + 3);
  while (endpoint.host.ends_with('/')) endpoint.host.pop_back();
  const bool plain = endpoint.host.find_first_of("/?#@ \t\r\n") == std::string::npos;
  if ((endpoint.scheme != "http" && endpoint.scheme != "https") || endpoint.host.empty() ||
      !plain) {
    throw InvalidArgument("[s3] " + from + " is not a valid address of a service",
                          "it is https://HOST or https://HOST:PORT, without path and keys");
  }
  const std::string usual = endpoint.scheme == "http" ? ":80" : ":443";
  if (endpoint.host.ends_with(usual)) {
    endpoint.host.resize(endpoint.host.size() - usual.size());
  }
  return endpoint;
}

Endpoint aws_endpoint(const std::string& service, const std::string& region) {
  return {"https",
          service + "." + region + ".amazonaws.com" + (region.starts_with("cn-") ? ".cn" : "")};
}

}  // namespace lockstep::storage
