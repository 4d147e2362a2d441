// The fields of Augmentation that are for sequences.
#pragma once

namespace lockstep {

class FieldVisitor;
struct Augmentation;

void visit_sequence_fields(Augmentation& augmentation, FieldVisitor& v);
// Throws InvalidArgument, as Augmentation::check().
void check_sequence_fields(const Augmentation& augmentation);

}  // namespace lockstep
