# Sources compiled together.
#
# Most of the time that a source takes goes to the headers that it includes. With LOCKSTEP_UNITY
# neighboring sources of a component are compiled as one, which halves the time of a complete build;
# a change then compiles its neighbors again. Without it every source is compiled alone, which is
# better for work on the library and shows includes that are missing.

option(LOCKSTEP_UNITY
       "Compile neighboring sources as one: faster from nothing, slower after a change" OFF)

# Bytes of sources that are compiled as one, about.
set(lockstep_unit_size 200000)

# A new option, or a new kernel, changes these headers. Sources that include them are apart from
# others of their component, which need not be compiled again.
set(lockstep_changing_headers "lockstep/train/options/options.h"
                              "lockstep/engine/kernels/backends/kernel_list.h")

# Sets `result` to the headers that include `header`, directly or not, and itself: paths from the
# root, with | in between.
function(lockstep_includers_of header result)
  file(GLOB_RECURSE headers RELATIVE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/lockstep/*.h"
       "${PROJECT_SOURCE_DIR}/apps/*.h")
  set(includers "${header}")
  set(before "")
  while(NOT before STREQUAL includers)
    set(before "${includers}")
    foreach(path IN LISTS headers)
      file(STRINGS "${PROJECT_SOURCE_DIR}/${path}" found LIMIT_COUNT 1
           REGEX "^#include \"(${includers})\"")
      if(found)
        string(APPEND includers "|${path}")
        list(REMOVE_ITEM headers "${path}")
      endif()
    endforeach()
  endwhile()
  set(${result} "${includers}" PARENT_SCOPE)
endfunction()

# Replaces sources in the list `variable` by files that include several of them: neighbors of the same
# component, of about equal sizes. Sources that match `alone`, a regular expression, stay as they are,
# and those that Highway compiles for each instruction set, because they include themselves. Sources
# with other flags (see Flags.cmake) are apart.
function(lockstep_unite_sources variable alone)
  foreach(header IN LISTS lockstep_changing_headers)
    cmake_path(GET header STEM name)
    lockstep_includers_of("${header}" includers_${name})
  endforeach()
  set(united "")
  set(kinds "")
  foreach(source IN LISTS ${variable})
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE path)
    file(STRINGS "${source}" found LIMIT_COUNT 1 REGEX "^#include <hwy/foreach_target.h>")
    if(found OR path MATCHES "${alone}")
      list(APPEND united "${source}")
      continue()
    endif()
    string(REGEX MATCH "^[^/]+/(engine/kernels|[^/]+)" kind "${path}")
    get_source_file_property(options "${source}" COMPILE_OPTIONS)
    if(options MATCHES "-O1")
      string(APPEND kind "-cold")
    elseif(options)
      string(APPEND kind "-loops")
    else()
      set(options "")
    endif()
    foreach(header IN LISTS lockstep_changing_headers)
      cmake_path(GET header STEM name)
      file(STRINGS "${source}" found LIMIT_COUNT 1 REGEX "^#include \"(${includers_${name}})\"")
      if(found)
        string(APPEND kind "-${name}")
      endif()
    endforeach()
    if(NOT kind IN_LIST kinds)
      list(APPEND kinds "${kind}")
      set(options_of_${kind} "${options}")
      set(bytes_of_${kind} 0)
    endif()
    file(SIZE "${source}" bytes)
    math(EXPR bytes_of_${kind} "${bytes_of_${kind}} + ${bytes}")
    list(APPEND sources_of_${kind} "${path}")
  endforeach()
  foreach(kind IN LISTS kinds)
    set(all ${bytes_of_${kind}})
    math(EXPR units "(${all} + ${lockstep_unit_size} / 2) / ${lockstep_unit_size}")
    if(units EQUAL 0)
      set(units 1)
    endif()
    set(unit 1)
    set(written 0)
    set(text "")
    foreach(path IN LISTS sources_of_${kind})
      string(APPEND text "#include \"${path}\"\n")
      file(SIZE "${PROJECT_SOURCE_DIR}/${path}" bytes)
      math(EXPR written "${written} + ${bytes}")
      # Whether the unit has its share.
      math(EXPR part "${written} * ${units}")
      math(EXPR share "${all} * ${unit}")
      if(NOT part LESS share)
        lockstep_write_unit(united "${kind}-${unit}" "${text}" "${options_of_${kind}}")
        math(EXPR unit "${unit} + 1")
        set(text "")
      endif()
    endforeach()
  endforeach()
  set(${variable} "${united}" PARENT_SCOPE)
endfunction()

# Writes one such file and appends it to the list `variable`.
function(lockstep_write_unit variable name text options)
  set(file "${PROJECT_BINARY_DIR}/unity/${name}.cpp")
  file(CONFIGURE OUTPUT "${file}" CONTENT "${text}" @ONLY)
  # GCC warns of types of unnamed namespaces in members of classes that a header names; it does not
  # where they are in the file that is compiled, which is the case if each source is alone.
  set_source_files_properties("${file}" PROPERTIES COMPILE_OPTIONS
                                                   "-Wno-subobject-linkage;${options}")
  set(${variable} ${${variable}} "${file}" PARENT_SCOPE)
endfunction()
