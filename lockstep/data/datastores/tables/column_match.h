// Columns of tables in the order of other tables, by name.
#pragma once

#include <string>
#include <vector>

#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

// What notices() says after the description of a datastore.
inline constexpr const char* kMatchedByName =
    " has its columns in a different order than the training data: they are matched by name";

// The same examples with the columns of input number `input` (of the target, if it is the number of
// inputs) in the order `expected`, by name. Returns `store` if that is their order, or if nothing
// is expected. Columns without names stay in their order. notices() says what was done. Throws
// InvalidArgument naming the columns that are missing or not expected. Thread-safe.
DatastorePtr with_columns(DatastorePtr store, size_t input,
                          const std::vector<std::string>& expected);

}  // namespace lockstep
