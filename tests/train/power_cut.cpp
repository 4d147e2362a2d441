#include "tests/train/power_cut.h"

#include <algorithm>
#include <random>

namespace lockstep::testing {

class PowerCutFiles::File : public WritableFile {
 public:
  File(PowerCutFiles& files, std::shared_ptr<Content> content)
      : files_(files), content_(std::move(content)) {}
  void append(std::span<const std::byte> bytes) override {
    // Written in two chunks, like an interrupted write.
    for (const auto& chunk : {bytes.first(bytes.size() / 2), bytes.subspan(bytes.size() / 2)}) {
      files_.step();
      content_->now.insert(content_->now.end(), chunk.begin(), chunk.end());
    }
  }
  void sync() override {
    files_.step();
    content_->safe = content_->now;
  }

 private:
  PowerCutFiles& files_;
  std::shared_ptr<Content> content_;
};

void PowerCutFiles::step() {
  if (!dead_ && calls_ == cut_at_) dead_ = true;
  if (dead_) throw PowerCut();
  ++calls_;
}

void PowerCutFiles::apply(Names& names, const Change& change) {
  if (!change.gone.empty()) names.erase(change.gone);
  if (change.content) {
    names[change.name] = change.content;
  } else if (!change.name.empty()) {
    names.erase(change.name);
  }
}

void PowerCutFiles::change(Change change) {
  apply(now_, change);
  pending_.push_back(std::move(change));
}

void PowerCutFiles::power_on(Rest rest, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (const Change& change : pending_) {
    const bool kept = rest == Rest::everything || (rest == Rest::some && random() % 2 == 0);
    if (kept) apply(safe_, change);
  }
  pending_.clear();
  for (const auto& [name, content] : safe_) {
    Content& c = *content;
    if (rest == Rest::everything) c.safe = c.now;
    if (rest == Rest::some) {
      switch (random() % 4) {
        case 0:
          c.safe = c.now;
          break;
        case 1:  // the last write is lost
          if (c.now.size() > c.safe.size()) {
            const bool appended = std::equal(c.safe.begin(), c.safe.end(), c.now.begin());
            const size_t least = appended ? c.safe.size() : 0;
            const size_t kept = least + random() % (c.now.size() - least);
            c.safe = {c.now.begin(), c.now.begin() + static_cast<std::ptrdiff_t>(kept)};
          }
          break;
        case 2:  // the new size was stored, but not the bytes
          c.safe.resize(std::max(c.safe.size(), c.now.size()));
          break;
        default:
          break;
      }
    }
    c.now = c.safe;
  }
  // A folder whose name is lost loses its contents. Names of folders come before their contents.
  const auto lost = [&](const auto& entry) {
    const std::string folder = folder_of(entry.first);
    return folder != "." && !safe_.count(folder);
  };
  for (auto at = safe_.begin(); at != safe_.end();) at = lost(*at) ? safe_.erase(at) : ++at;
  now_ = safe_;
  calls_ = 0;
  cut_at_ = -1;
  dead_ = false;
}

std::vector<std::byte> PowerCutFiles::read(const std::string& path) {
  if (dead_) throw PowerCut();
  const auto found = now_.find(path);
  if (found == now_.end()) throw FileError("[test] " + path + " is not there");
  return found->second->now;
}

std::unique_ptr<WritableFile> PowerCutFiles::open(const std::string& path, bool append) {
  step();
  const auto found = now_.find(path);
  if (found != now_.end()) {
    if (!append) found->second->now.clear();
    return std::make_unique<File>(*this, found->second);
  }
  if (!is_folder(folder_of(path))) throw FileError("[test] no folder for " + path);
  auto content = std::make_shared<Content>();
  change({path, "", content});
  return std::make_unique<File>(*this, std::move(content));
}

void PowerCutFiles::rename(const std::string& from, const std::string& to) {
  step();
  const auto found = now_.find(from);
  if (found == now_.end()) throw FileError("[test] " + from + " is not there");
  change({to, from, found->second});
}

void PowerCutFiles::sync_folder(const std::string& folder) {
  step();
  const auto safe = [&](const Change& change) { return folder_of(change.name) == folder; };
  for (const Change& change : pending_) {
    if (safe(change)) apply(safe_, change);
  }
  std::erase_if(pending_, safe);
}

void PowerCutFiles::make_folder(const std::string& folder) {
  step();
  if (is_folder(folder)) return;
  if (now_.count(folder)) throw FileError("[test] " + folder + " is a file");
  if (!is_folder(folder_of(folder))) throw FileError("[test] no folder for " + folder);
  auto content = std::make_shared<Content>();
  content->folder = true;
  change({folder, "", content});
}

bool PowerCutFiles::exists(const std::string& path) {
  if (dead_) throw PowerCut();
  return now_.count(path) || is_folder(path);
}

bool PowerCutFiles::is_folder(const std::string& path) {
  if (dead_) throw PowerCut();
  const auto found = now_.find(path);
  return path == "." || (found != now_.end() && found->second->folder);
}

std::vector<std::string> PowerCutFiles::list(const std::string& folder) {
  if (dead_) throw PowerCut();
  if (!is_folder(folder)) throw FileError("[test] " + folder + " is not a folder");
  std::vector<std::string> names;
  for (const auto& [name, content] : now_) {
    if (folder_of(name) == folder)
      names.push_back(folder == "." ? name : name.substr(folder.size() + 1));
  }
  return names;
}

void PowerCutFiles::remove(const std::string& path) {
  step();
  if (now_.count(path)) change({path, "", nullptr});
}

}  // namespace lockstep::testing
