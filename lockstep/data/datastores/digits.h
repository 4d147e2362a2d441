// Ten thousand drawn digits for tests and examples that need no download.
#pragma once

#include <string>

#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

// 10,000 images of digits, 28 x 28 x 1, light on dark, 1,000 of each class "0" to "9", listed class
// by class. Each image has the strokes of one of several handwriting variants with random slant,
// rotation, size, place, thickness, wobble and pixel noise. It is a function of the index only
// (RandomUse::digits), with the same bytes on every machine. Drawing all images takes well under a
// second. read() draws the image on each call. Thread-safe.
DatastorePtr builtin_digits();

// Writes every observation to <folder>/<class>/<number>.png. Numbers start at 0 in each class and
// have leading zeros, so that the order of the listing stays the same. Throws FileError.
void export_as_folder(const ImageDatastore& store, const std::string& folder);

}  // namespace lockstep
