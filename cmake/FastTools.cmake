# Tools that shorten builds, used where they are installed: ccache, which remembers what it has
# compiled, and the linker mold. The executables behave the same without them.

option(LOCKSTEP_FAST_TOOLS "Use ccache and mold where they are installed" ${PROJECT_IS_TOP_LEVEL})
if(NOT LOCKSTEP_FAST_TOOLS)
  return()
endif()

find_program(LOCKSTEP_CCACHE ccache)
mark_as_advanced(LOCKSTEP_CCACHE)
if(LOCKSTEP_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers need this laxity (ccache's manual, "Precompiled headers").
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros
                                  "${LOCKSTEP_CCACHE}")
endif()

find_program(LOCKSTEP_MOLD mold)
mark_as_advanced(LOCKSTEP_MOLD)
if(LOCKSTEP_MOLD)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=mold LOCKSTEP_MOLD_WORKS)
  if(LOCKSTEP_MOLD_WORKS)
    add_link_options(-fuse-ld=mold)
  endif()
endif()
