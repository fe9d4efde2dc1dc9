# SPDX-License-Identifier: Apache-2.0
#
# Tutti::sodium: libsodium, for this build and for programs that link libtutti.a.
find_path(TUTTI_SODIUM_INCLUDE sodium.h)
find_library(TUTTI_SODIUM_LIBRARY sodium)
if(TUTTI_SODIUM_INCLUDE AND TUTTI_SODIUM_LIBRARY AND NOT TARGET Tutti::sodium)
    add_library(Tutti::sodium UNKNOWN IMPORTED)
    set_target_properties(Tutti::sodium PROPERTIES
        IMPORTED_LOCATION ${TUTTI_SODIUM_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${TUTTI_SODIUM_INCLUDE})
endif()
