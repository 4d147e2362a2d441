# Sources compiled together.
#
# Most of the time that a source takes goes to the headers that it includes. With LOCKSTEP_UNITY the
# sources of a folder are compiled as one, which halves the time of a complete build; a change then
# compiles its folder anew. Without it every source is compiled alone, which is better for work on
# the library and shows includes that are missing.

option(LOCKSTEP_UNITY "Compile the sources of a folder as one: faster from nothing, slower after a change"
       OFF)

# Replaces sources in the list `variable` by files that include all sources of a folder. Sources that
# match `alone`, a regular expression, stay as they are. Cold code (see Flags.cmake) and other code
# of a folder are apart, because their flags differ.
function(lockstep_unite_sources variable alone)
  set(united "")
  set(groups "")
  foreach(source IN LISTS ${variable})
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE path)
    if(path MATCHES "${alone}")
      list(APPEND united "${source}")
      continue()
    endif()
    cmake_path(GET path PARENT_PATH group)
    get_source_file_property(options "${source}" COMPILE_OPTIONS)
    if(options)
      string(APPEND group "/cold")
    endif()
    if(NOT group IN_LIST groups)
      list(APPEND groups "${group}")
      set(text_of_${group} "")
      set(options_of_${group} "${options}")
    endif()
    string(APPEND text_of_${group} "#include \"${path}\"\n")
  endforeach()
  foreach(group IN LISTS groups)
    set(file "${PROJECT_BINARY_DIR}/unity/${group}.cpp")
    file(CONFIGURE OUTPUT "${file}" CONTENT "${text_of_${group}}" @ONLY)
    # GCC warns of types of unnamed namespaces in members of classes that a header names; it does not
    # where they are in the file that is compiled, which is the case if each source is alone.
    set(options -Wno-subobject-linkage)
    if(options_of_${group})
      list(APPEND options "${options_of_${group}}")
    endif()
    set_source_files_properties("${file}" PROPERTIES COMPILE_OPTIONS "${options}")
    list(APPEND united "${file}")
  endforeach()
  set(${variable} "${united}" PARENT_SCOPE)
endfunction()
