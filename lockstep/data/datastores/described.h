// A datastore with a description of where its observations come from.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/datastores/datastore_wrapper.h"

namespace lockstep {

// Thread-safe.
class Described final : public DatastoreWrapper {
 public:
  struct Description {
    std::string source;                     // describe(): "folder /data/waves"
    std::vector<std::string> names;         // of the observations: files, lines
    std::vector<std::string> columns = {};  // of the first input
    std::string label_column = {};          // see ExampleSpec
    std::vector<std::string> notices = {};
  };

  Described(DatastorePtr store, Description description)
      : DatastoreWrapper(std::move(store)), of_(std::move(description)) {}
  ExampleSpec spec() const override {
    ExampleSpec spec = wrapped().spec();
    spec.inputs[0].columns = of_.columns;
    spec.label_column = of_.label_column;
    return spec;
  }
  std::string name(int64_t index) const override {
    wrapped().name(index);  // throws for an index out of range
    return of_.names[static_cast<size_t>(index)];
  }
  std::string describe() const override { return of_.source; }
  std::vector<std::string> notices() const override { return of_.notices; }

 private:
  const Description of_;
};

}  // namespace lockstep
