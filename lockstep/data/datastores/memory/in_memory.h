// Base class of datastores in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/datastores/datastores.h"

namespace lockstep {

// Holds the labels, the classes and the names of the observations.
class InMemory : public Datastore {
 public:
  // `where` is the function that errors name. `names` returns the name of an observation by index.
  // `kind` describes all of them, for example "images". Throws InvalidArgument for labels that do
  // not fit; without labels, all observations have the first class.
  InMemory(std::string where, int64_t size, ImageLabels labels, std::string (*names)(int64_t),
           std::string kind);

  int64_t size() const override { return size_; }
  int64_t label(int64_t index) const override { return labels_.labels[check(index)]; }
  const std::vector<std::string>& classes() const override { return labels_.classes; }
  std::string name(int64_t index) const override;
  std::string describe() const override;

 protected:
  // Returns the index. Throws InvalidArgument for one out of range.
  size_t check(int64_t index) const;
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  void name_classes();

  std::string where_;
  int64_t size_;
  ImageLabels labels_;
  std::string (*names_)(int64_t);
  std::string kind_;
};

}  // namespace lockstep
