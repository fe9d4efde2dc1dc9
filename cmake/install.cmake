# SPDX-License-Identifier: Apache-2.0
#
# What `make install` puts where. Everything finds its prefix from where it lies, so the tree can be moved. The target
# `installed` makes what is installed, and nothing else.
add_custom_target(installed DEPENDS tutti_shared tutti_static ${tool} ${man_page})
install(TARGETS tutti_shared tutti_static EXPORT TuttiTargets)
install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(tool)
    install(TARGETS tutti)
endif()
if(man_page)
    install(FILES ${man_page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()

# README.md beside the rest of the documentation, its link to the header to where that goes
file(RELATIVE_PATH to_headers /${CMAKE_INSTALL_DOCDIR} /${CMAKE_INSTALL_INCLUDEDIR})
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS README.md)
file(READ README.md readme)
string(REPLACE "](include/" "](${to_headers}/" readme "${readme}")
file(WRITE ${CMAKE_BINARY_DIR}/README.md "${readme}")
install(FILES LICENSE ${CMAKE_BINARY_DIR}/README.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.c")

# pkg-config
file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/tutti.pc.in tutti.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tutti.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# find_package(Tutti): Tutti::tutti is the shared library, Tutti::tutti_static the static one
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tutti)
install(EXPORT TuttiTargets NAMESPACE Tutti:: DESTINATION ${package_dir})
configure_package_config_file(cmake/TuttiConfig.cmake.in TuttiConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(TuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TuttiConfig.cmake ${CMAKE_BINARY_DIR}/TuttiConfigVersion.cmake
              cmake/TuttiLibraries.cmake
        DESTINATION ${package_dir})
