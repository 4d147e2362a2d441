#include "lockstep/storage/content_type.h"

#include <algorithm>
#include <map>

namespace lockstep::storage {

std::string content_type_of(std::string_view name) {
  static const std::map<std::string_view, const char*> kinds{
      {"bmp", "image/bmp"},
      {"bz2", "application/x-bzip2"},
      {"css", "text/css"},
      {"csv", "text/csv"},
      {"gif", "image/gif"},
      {"gz", "application/gzip"},
      {"htm", "text/html"},
      {"html", "text/html"},
      {"ico", "image/vnd.microsoft.icon"},
      {"jfif", "image/jpeg"},
      {"jpeg", "image/jpeg"},
      {"jpg", "image/jpeg"},
      {"js", "text/javascript"},
      {"json", "application/json"},
      {"jsonl", "application/x-ndjson"},
      {"log", "text/plain"},
      {"md", "text/markdown"},
      {"mp4", "video/mp4"},
      {"pbm", "image/x-portable-bitmap"},
      {"pdf", "application/pdf"},
      {"pgm", "image/x-portable-graymap"},
      {"png", "image/png"},
      {"ppm", "image/x-portable-pixmap"},
      {"py", "text/x-python"},
      {"svg", "image/svg+xml"},
      {"tar", "application/x-tar"},
      {"tif", "image/tiff"},
      {"tiff", "image/tiff"},
      {"toml", "application/toml"},
      {"tsv", "text/tab-separated-values"},
      {"txt", "text/plain"},
      {"webp", "image/webp"},
      {"xml", "application/xml"},
      {"yaml", "application/yaml"},
      {"yml", "application/yaml"},
      {"zip", "application/zip"},
  };
  name.remove_prefix(std::min(name.rfind('/') + 1, name.size()));
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return unknown_content;
  std::string end(name.substr(dot + 1));
  for (char& c : end) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  const auto found = kinds.find(end);
  return found == kinds.end() ? unknown_content : found->second;
}

}  // namespace lockstep::storage
