// Ten thousand drawn digits, so that training can be tried and tested without any download.
#pragma once

#include <string>

#include "lockstep/data/datastore.h"

namespace lockstep {

// 10,000 images of digits, 28 x 28 x 1, light on dark, 1,000 of each class "0" to "9", listed class
// by class. Each is drawn by strokes in one of several handwriting variants with random slant,
// rotation, size, place, thickness, wobble and pixel noise; a function of the index alone
// (RandomUse::digits), with the same bytes on every machine. Drawing all takes well under a second;
// read() draws anew each time. Thread-safe.
DatastorePtr builtin_digits();

// Writes every observation to <folder>/<class>/<number>.png, numbered from 0 within its class with
// enough leading zeros for the listing's order to stay. Throws FileError.
void export_as_folder(const ImageDatastore& store, const std::string& folder);

}  // namespace lockstep
