#include "lockstep/data/datastores/memory/in_memory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"

namespace lockstep {

InMemory::InMemory(std::string where, int64_t size, ImageLabels labels,
                   std::string (*names)(int64_t), std::string kind)
    : where_(std::move(where)),
      size_(size),
      labels_(std::move(labels)),
      names_(names),
      kind_(std::move(kind)) {
  if (size < 0) refuse(std::to_string(size) + " " + kind_);
  std::vector<int64_t>& given = labels_.labels;
  std::vector<std::string>& classes = labels_.classes;
  if (given.empty()) {
    if (classes.empty()) classes.emplace_back();
    if (size > 0 && classes.size() > 1) {
      refuse(counted(classes.size(), "class", "classes") + ", but no labels");
    }
    given.assign(static_cast<size_t>(size), 0);
  }
  if (static_cast<int64_t>(given.size()) != size) {
    refuse(counted(given.size(), "label") + " for " + std::to_string(size) + " " + kind_);
  }
  if (classes.empty()) name_classes();
  if (std::set<std::string>(classes.begin(), classes.end()).size() != classes.size()) {
    refuse("two classes have the same name");
  }
  const auto count = static_cast<int64_t>(classes.size());
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] >= 0 && given[i] < count) continue;
    refuse(names_(static_cast<int64_t>(i)) + " has the label " + std::to_string(given[i]) +
           ", but there " + (count == 1 ? "is " : "are ") + counted(count, "class", "classes") +
           ", counted from 0");
  }
}

std::string InMemory::name(int64_t index) const {
  check(index);
  return names_(index);
}

std::string InMemory::describe() const {
  return std::to_string(size_) + " " + kind_ + " in memory";
}

size_t InMemory::check(int64_t index) const {
  if (index < 0 || index >= size_) {
    throw InvalidArgument("[datastore] no observation with index " + std::to_string(index) +
                          " among " + std::to_string(size_) + " (" + describe() + ")");
  }
  return static_cast<size_t>(index);
}

void InMemory::refuse(const std::string& what) const {
  throw InvalidArgument("[" + where_ + "] " + what);
}

void InMemory::name_classes() {
  constexpr int64_t most = 1'000'000;  // limits the memory that a wrong label can allocate
  const int64_t last = *std::max_element(labels_.labels.begin(), labels_.labels.end());
  if (last >= most) refuse("a label is " + std::to_string(last) + ": name the classes");
  for (int64_t c = 0; c <= last; ++c) labels_.classes.push_back(std::to_string(c));
}

}  // namespace lockstep
