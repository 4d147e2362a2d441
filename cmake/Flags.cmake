# Compiler flags of Lockstep's own targets.

if(LOCKSTEP_SANITIZE)
  # For everything linked, so that the run-time library is there. No NDEBUG: assertions stay.
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
  # What GCC defines, for the sources that ask.
  foreach(kind address thread)
    string(TOUPPER "__SANITIZE_${kind}__" macro)
    if(LOCKSTEP_SANITIZE MATCHES "${kind}" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      add_compile_definitions("$<$<COMPILE_LANGUAGE:CXX>:${macro}=1>")
    endif()
  endforeach()
  if(LOCKSTEP_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

function(lockstep_set_flags target)
  set(options
      # Contraction would let the compiler, not the source, choose how sums round.
      -ffp-contract=off
      # The build id shall not depend on where the source lies.
      -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.)
  set(warnings -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # False alarms of GCC 12 inside its own std::string and std::vector (its bugs 105329, 105651).
    list(APPEND warnings -Wno-restrict -Wno-free-nonheap-object)
  endif()
  if(LOCKSTEP_WARNINGS_AS_ERRORS)
    list(APPEND warnings -Werror)
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${options};${warnings}>")
  # Highway compiles each kernel for SCALAR, SSE4, AVX2 and AVX-512. No processor of the last fifteen
  # years has SSSE3 alone. Sanitizers see those that are used.
  set(without HWY_SSSE3)
  if(LOCKSTEP_SANITIZE)
    string(APPEND without "|HWY_SSE4")
  endif()
  target_compile_definitions(${target} PRIVATE "HWY_DISABLED_TARGETS=(${without})")
  # nvcc hands options to the host's compiler; its own code would be contracted too. The code that it
  # makes for the host gives warnings of its own, so fewer are asked for.
  string(REPLACE ";" "," for_host "${options};-Wall;-Wextra;-Wno-unused-parameter")
  target_compile_options(
    ${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;-Xcompiler=${for_host}>")
endfunction()

# Code that a training runs a few times a second at most: text, options, files, processes and
# messages. It has no loops over elements of tensors. -O1 shortens its compile time by a third.
# Kernels, sums, digests, images, queues and executors run in each iteration and are compiled at
# -O3. The floating-point options do not differ, so the bits do not differ either.
set(lockstep_cold_code
    "base/(field|suggest|text|toml/)"
    "cluster/"
    "engine/formats/"
    "engine/kernels/(backends|self_test)/|engine/kernels/(loading|cpu/table)\\."
    "engine/nn/(architectures/|formulas/|layers/|loss|network_analysis|network_json)"
    "parallel/process/"
    "report/"
    "runs/"
    "storage/"
    "train/(options|records|state|workers)/"
    "train/(trainer|training_checks)")

# Compiles those of the `sources` that are cold code for a short compile time, in release builds.
function(lockstep_set_cold_flags)
  list(JOIN lockstep_cold_code "|" cold)
  set(sources ${ARGN})
  list(FILTER sources INCLUDE REGEX "^${PROJECT_SOURCE_DIR}/lockstep/(${cold})")
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O1>")
endfunction()

# A square root that may set errno is a call for negative numbers, and what may trap is not computed
# without need: loops with either are not vectorized. The bits do not differ.
function(lockstep_set_loop_flags)
  set(sources ${ARGN})
  list(FILTER sources INCLUDE REGEX
       "/kernels/cpu/(solvers|elementwise|losses)/|/data/images/augment_sequence")
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS
                                                    "-fno-math-errno;-fno-trapping-math")
endfunction()
