#include "lockstep/train/input/observation_list.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::string_view kFormat = "lockstep observations 1";

// Fields end with a zero byte, because names may contain any other byte.
void append(std::string& text, std::string_view field) {
  text += field;
  text += '\0';
}

// Takes the next field. Returns false at the end.
bool take(std::string_view& rest, std::string& field) {
  const size_t end = rest.find('\0');
  if (end == std::string_view::npos) return false;
  field = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return true;
}

void add_part(std::vector<std::string>& parts, const std::vector<std::string>& names,
              const char* what) {
  if (names.empty()) return;
  parts.push_back(std::to_string(names.size()) + " " + what +
                  (names.size() > 1 ? " (such as " : " (") + names.front() + ")");
}

}  // namespace

void ObservationList::add(const ExampleCache& cache) {
  const Datastore& store = *cache.store();
  for (int64_t i = 0; i < store.size(); ++i) {
    const auto label = static_cast<size_t>(store.label(i));
    all_.push_back({store.name(i), label < store.classes().size() ? store.classes()[label] : "",
                    cache.content(i).to_string()});
  }
}

void ObservationList::write(FileSystem& files, const std::string& path) const {
  std::string text;
  append(text, kFormat);
  for (const Entry& entry : all_) {
    append(text, entry.content);
    append(text, entry.label);
    append(text, entry.name);
  }
  write_atomically(files, path, text);
}

ObservationList ObservationList::read(FileSystem& files, const std::string& path) {
  ObservationList list;
  std::string text;
  try {
    text = read_text(files, path);
  } catch (const Error&) {
    return list;
  }
  std::string_view rest = text;
  std::string format;
  if (!take(rest, format) || format != kFormat) return list;
  while (!rest.empty()) {
    Entry entry;
    if (!take(rest, entry.content) || !take(rest, entry.label) || !take(rest, entry.name)) {
      return {};
    }
    list.all_.push_back(std::move(entry));
  }
  return list;
}

std::string ObservationList::changes_to(const ObservationList& now) const {
  std::vector<Entry> before = all_, after = now.all_, removed_ones, come;
  std::sort(before.begin(), before.end());
  std::sort(after.begin(), after.end());
  std::set_difference(before.begin(), before.end(), after.begin(), after.end(),
                      std::back_inserter(removed_ones));
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                      std::back_inserter(come));
  std::vector<std::string> changed, added, removed;
  size_t b = 0, a = 0;
  while (b < removed_ones.size() || a < come.size()) {
    if (a == come.size() || (b < removed_ones.size() && removed_ones[b].name < come[a].name)) {
      removed.push_back(removed_ones[b++].name);
    } else if (b == removed_ones.size() || come[a].name < removed_ones[b].name) {
      added.push_back(come[a++].name);
    } else {
      changed.push_back(removed_ones[b++].name);
      ++a;
    }
  }
  std::vector<std::string> parts;
  add_part(parts, changed, "changed");
  add_part(parts, added, "added");
  add_part(parts, removed, "removed");
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  }
  return text;
}

}  // namespace lockstep
