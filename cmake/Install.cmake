# Installation: library, headers, command, and the package for find_package(lockstep).

include(CMakePackageConfigHelpers)

set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")

install(TARGETS lockstep EXPORT lockstepTargets)
if(TARGET lockstep_command)
  install(TARGETS lockstep_command)
endif()
if(TARGET lockstep_share)
  set(share "${PROJECT_BINARY_DIR}/share")
  install(FILES "${share}/lockstep.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
  install(FILES "${share}/lockstep"
          DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
  install(FILES "${share}/_lockstep" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
  install(FILES "${share}/lockstep.fish"
          DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
endif()
if(TARGET lockstep_cuda)
  install(TARGETS lockstep_cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
endif()
# File by file: a whole folder would install empty ones too.
file(GLOB_RECURSE headers RELATIVE "${PROJECT_SOURCE_DIR}" CONFIGURE_DEPENDS
     "${PROJECT_SOURCE_DIR}/lockstep/*.h")
foreach(header IN LISTS headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES "${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/${folder}")
endforeach()
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")

install(
  EXPORT lockstepTargets
  NAMESPACE lockstep::
  DESTINATION "${package_folder}")
configure_package_config_file(cmake/lockstepConfig.cmake.in
                              "${PROJECT_BINARY_DIR}/lockstepConfig.cmake"
                              INSTALL_DESTINATION "${package_folder}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/lockstepConfig.cmake"
              "${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake" cmake/FindxxHash.cmake
        DESTINATION "${package_folder}")
