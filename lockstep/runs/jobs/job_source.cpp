#include "lockstep/runs/jobs/job_source.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr int deepest = 64;
constexpr size_t longest_file = size_t{16} << 20;

[[noreturn]] void bad_syntax(const std::string& path, const std::string& where,
                             const std::string& what) {
  throw DataError("[job file] " + path + where + ": " + what);
}

json value_of(const std::string& text) {
  try {
    const JobSource table = parse_toml("value = " + text, "");
    if (table.tree.size() == 1) return table.tree.at("value");
  } catch (const DataError&) {
    // It is text: an expression, a name or a folder.
  }
  return text;
}

}  // namespace

JobSource read_job_source(FileSystem& files, const std::string& path) {
  if (files.is_folder(path)) {
    throw DataError("[job file] " + path + " is a folder, not a job file");
  }
  const std::string text = read_text(files, path);
  if (text.size() > longest_file) {
    bad_syntax(path, "", "has " + std::to_string(text.size()) + " bytes, too large for a job file");
  }
  JobSource source;
  if (path.ends_with(".json")) {
    try {
      source.tree = parse_json<json>(text, {.deepest = deepest});
    } catch (const JsonError& error) {
      const bool syntax = error.kind() == JsonError::Kind::syntax;
      bad_syntax(path, syntax ? ", byte " + std::to_string(error.byte()) : "",
                 syntax ? "this is not JSON" : error.what());
    }
    if (!source.tree.is_object()) bad_syntax(path, "", "it must be a JSON object");
    return source;
  }
  return parse_job_source(text, path);
}

JobSource parse_job_source(const std::string& text, const std::string& path) {
  return parse_toml(text, "[job file] " + path);
}

namespace {

// The entry of a list that a part of a key names.
json& entry_of(json& list, const std::string& part, const std::string& key) {
  const bool number = !part.empty() && part.size() < 10 &&
                      part.find_first_not_of("0123456789") == std::string::npos;
  const size_t index = number ? std::stoul(part) : list.size();
  if (index < list.size()) return list[index];
  throw InvalidArgument("[--set] " + key + ": the list has the entries 0 to " +
                        std::to_string(list.size() - 1) + ", but no `" + part + "`");
}

}  // namespace

std::string set_field(JobSource& source, const std::string& key, json value,
                      const std::function<std::string(const std::string& key)>& path_of) {
  const std::string path = path_of(key);
  if (std::count(path.begin(), path.end(), '.') >= deepest) {
    throw InvalidArgument("[--set] " + key.substr(0, 100) + "...: a key has at most " +
                          std::to_string(deepest) + " parts");
  }
  json* at = &source.tree;
  std::string pointer;
  for (size_t begin = 0;;) {
    const size_t end = path.find('.', begin);
    const std::string part = path.substr(begin, end == std::string::npos ? end : end - begin);
    if (at->is_array() && !at->empty()) {
      at = &entry_of(*at, part, key);
    } else if (at->is_object()) {
      at = &(*at)[part];
    } else {
      throw InvalidArgument("[--set] " + key + ": there is no table `" + path.substr(0, begin - 1) +
                            "`");
    }
    pointer += "/" + part;
    if (end == std::string::npos) break;
    if (at->is_null()) *at = json::object();
    begin = end + 1;
  }
  *at = std::move(value);
  // The lines of the replaced value are no longer valid.
  std::erase_if(source.lines, [&](const auto& line) {
    return line.first == pointer || line.first.starts_with(pointer + "/");
  });
  return pointer;
}

std::string apply_setting(JobSource& source, const std::string& setting,
                          const std::function<std::string(const std::string& key)>& path_of) {
  const size_t equals = setting.find('=');
  const auto trimmed = [](std::string text) {
    const size_t begin = text.find_first_not_of(" \t");
    if (begin == std::string::npos) return std::string();
    return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
  };
  const std::string key = equals == std::string::npos ? "" : trimmed(setting.substr(0, equals));
  if (key.empty() || key.front() == '.' || key.back() == '.' ||
      key.find("..") != std::string::npos) {
    throw InvalidArgument("[--set] expected KEY=VALUE, received `" + setting + "`",
                          "for example: --set training.max_epochs=5");
  }
  // First, because an unknown key has the better message.
  const std::string pointer = set_field(source, key, json::object(), path_of);
  const std::string value = trimmed(setting.substr(equals + 1));
  if (!is_utf8(setting)) {
    throw InvalidArgument("[--set] " + key + ": `" + value + "` is not UTF-8");
  }
  try {
    source.tree[json::json_pointer(pointer)] = value_of(value);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("[--set] " + key + ": " + error.what(), error.hint());
  }
  return pointer;
}

}  // namespace lockstep
