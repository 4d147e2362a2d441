# Sources compiled together.
#
# Most of the time that a source takes goes to the headers that it includes. With LOCKSTEP_UNITY
# neighboring sources of a component are compiled as one, which halves the time of a complete build;
# a change then compiles its neighbors anew. Without it every source is compiled alone, which is
# better for work on the library and shows includes that are missing.

option(LOCKSTEP_UNITY
       "Compile neighboring sources as one: faster from nothing, slower after a change" OFF)

# Bytes of sources that are compiled as one, unless a single folder has more.
set(lockstep_unit_size 80000)

# Replaces sources in the list `variable` by files that include several of them: those of a folder,
# and of the folders that follow it in the same component, up to the size above. Sources that match
# `alone`, a regular expression, stay as they are. Cold code (see Flags.cmake) and other code are
# apart, because their flags differ.
function(lockstep_unite_sources variable alone)
  set(united "")
  set(kinds "")
  foreach(source IN LISTS ${variable})
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE path)
    if(path MATCHES "${alone}")
      list(APPEND united "${source}")
      continue()
    endif()
    string(REGEX MATCH "^[^/]+/[^/]+" kind "${path}")
    get_source_file_property(options "${source}" COMPILE_OPTIONS)
    if(options)
      string(APPEND kind "-cold")
    else()
      set(options "")
    endif()
    if(NOT kind IN_LIST kinds)
      list(APPEND kinds "${kind}")
      set(options_of_${kind} "${options}")
    endif()
    list(APPEND sources_of_${kind} "${path}")
  endforeach()
  foreach(kind IN LISTS kinds)
    set(unit 1)
    set(size 0)
    set(folder "")
    set(text "")
    foreach(path IN LISTS sources_of_${kind})
      file(SIZE "${PROJECT_SOURCE_DIR}/${path}" bytes)
      math(EXPR size "${size} + ${bytes}")
      cmake_path(GET path PARENT_PATH folder_of_path)
      if(size GREATER lockstep_unit_size AND NOT folder_of_path STREQUAL folder AND text)
        lockstep_write_unit(united "${kind}-${unit}" "${text}" "${options_of_${kind}}")
        math(EXPR unit "${unit} + 1")
        set(size ${bytes})
        set(text "")
      endif()
      set(folder "${folder_of_path}")
      string(APPEND text "#include \"${path}\"\n")
    endforeach()
    lockstep_write_unit(united "${kind}-${unit}" "${text}" "${options_of_${kind}}")
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
