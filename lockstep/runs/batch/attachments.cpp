#include "lockstep/runs/batch/attachments.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file.h"
#include "lockstep/storage/object_store.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Replaces every text below `value`.
template <class Replace>
void replace_texts(nlohmann::ordered_json& value, const Replace& replace) {
  if (value.is_string()) {
    value = replace(value.get<std::string>());
  } else if (value.is_structured()) {
    for (auto& below : value) replace_texts(below, replace);
  }
}

}  // namespace

Attachments::Attachments(const std::vector<std::string>& paths, const std::string& folder) {
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::path original = fs::canonical(path, error);
    if (error) {
      throw InvalidArgument("[batch] " + path + " cannot be attached: " + error.message());
    }
    // The name that the user knows, which may be that of a link.
    const std::string name = fs::absolute(path).lexically_normal().filename().string();
    const std::string copy = join_path(folder, name.empty() ? original.filename().string() : name);
    make_folders(local_files(), folder);
    if ((fs::canonical(folder).string() + "/").starts_with(original.string() + "/")) {
      throw InvalidArgument("[batch] " + path + " cannot be attached: it holds the folder of jobs",
                            "attach a folder below it");
    }
    if (local_files().exists(copy)) {
      throw InvalidArgument("[batch] two attached files have the name " + name,
                            "tasks and trainings find them by name");
    }
    fs::copy(original, copy, fs::copy_options::recursive, error);
    if (error) {
      throw FileError("[batch] " + path + " cannot be attached: " + error.message());
    }
    copies_.push_back({original.string(), copy});
  }
}

std::string Attachments::attached_path(const std::string& path) const {
  if (copies_.empty() || path.empty() || storage::is_address(path)) return path;
  std::error_code error;
  const std::string real = fs::weakly_canonical(path, error).string();
  if (error) return path;
  for (const Copy& copy : copies_) {
    if (real == copy.original) return copy.copy;
    if (real.starts_with(copy.original + "/")) return copy.copy + real.substr(copy.original.size());
  }
  return path;
}

std::string Attachments::job_with_attached_paths(const std::string& job) const {
  auto tree = parse_json_or_discard<nlohmann::ordered_json>(job);
  if (copies_.empty() || !tree.is_object() || !tree.contains("data")) return job;
  replace_texts(tree["data"], [this](const std::string& text) {
    return text.starts_with("/") ? attached_path(text) : text;
  });
  return tree.dump(2) + "\n";
}

}  // namespace lockstep
