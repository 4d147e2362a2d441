#include "lockstep/base/os/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace lockstep {
namespace {

struct Search {
  uintptr_t code;
  std::string id;
};

bool contains(const dl_phdr_info& object, uintptr_t code) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const auto& p = object.dlpi_phdr[i];
    const uintptr_t begin = object.dlpi_addr + p.p_vaddr;
    if (p.p_type == PT_LOAD && code >= begin && code < begin + p.p_memsz) return true;
  }
  return false;
}

std::string id_in_notes(const char* at, const char* end) {
  constexpr char kDigits[] = "0123456789abcdef";
  while (at + sizeof(ElfW(Nhdr)) <= end) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const char* const name = at + sizeof note;
    const char* const content = name + (note.n_namesz + 3) / 4 * 4;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      std::string id;
      for (unsigned k = 0; k < note.n_descsz; ++k) {
        const auto byte = static_cast<unsigned char>(content[k]);
        id += {kDigits[byte >> 4], kDigits[byte & 15]};
      }
      return id;
    }
    at = content + (note.n_descsz + 3) / 4 * 4;
  }
  return {};
}

int look(dl_phdr_info* object, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  if (!contains(*object, search.code)) return 0;
  for (int i = 0; i < object->dlpi_phnum && search.id.empty(); ++i) {
    const auto& p = object->dlpi_phdr[i];
    if (p.p_type != PT_NOTE) continue;
    const auto* const notes = reinterpret_cast<const char*>(object->dlpi_addr + p.p_vaddr);
    search.id = id_in_notes(notes, notes + p.p_memsz);
  }
  return 1;
}

}  // namespace

std::string build_id_of(const void* code) {
  Search search{reinterpret_cast<uintptr_t>(code), {}};
  dl_iterate_phdr(look, &search);
  return search.id.empty() ? "none" : search.id;
}

}  // namespace lockstep
